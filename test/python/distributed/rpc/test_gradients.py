"""Backward passes over several workers give the gradients of one process."""

import functools

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from autograd.leaves import Same
from distributed.rpc import workers as w
from distributed.rpc.workers import run_workers
from tapegrad import nn, optim
from tapegrad.distributed import rpc
from tapegrad.distributed.autograd import _contexts
from threads import run_all


def run(rref, x):
    return rref.local_value()(x)


def run_with(rref, weight, x):
    return rref.local_value()(x) * weight


def close(a, b):
    tg.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def equal_to_one_process(context_id, modules, copies):
    """modules: RRefs to the parts on the workers; copies: the same here, whose .grad was computed at once."""
    for rref, copy in zip(modules, copies, strict=True):
        got = rpc.rpc_sync(rref.owner(), w.gradients, args=(context_id, rref))
        for a, p in zip(got, copy.parameters(), strict=True):
            assert (a is None) == (p.grad is None)
            if a is not None:
                close(a, p.grad)


def parts(count=2):
    """The same modules on w1, w2, ... and here."""
    sizes = [(3, 4, 3), (3, 5, 3)]
    made = [rpc.remote(f"w{1 + i % 2}", w.net, args=(sizes[i % 2], i)) for i in range(count)]
    return made, [w.net(sizes[i % 2], i) for i in range(count)]


def data(rows=4):
    return tg.randn(rows, 3, dtype=tg.float64, generator=tg.Generator().manual_seed(3))


def scenario_shapes_of_graphs():
    (a, b), (ca, cb) = parts()
    here, x = nn.Linear(3, 3).double(), data()

    def both(remote, local, extra=()):
        for module in (ca, cb, here):
            module.zero_grad()
        with dist.autograd.context() as context_id:
            dist.autograd.backward(context_id, [remote()])
            got = dist.autograd.get_gradients(context_id)
            local().backward()
            equal_to_one_process(context_id, (a, b), (ca, cb))
            for p in [*here.parameters(), *extra]:
                assert (p.grad is None) == (p not in got)
                if p.grad is not None:
                    close(got[p], p.grad)
                    p.grad = None
        assert w.contexts() == 0

    def call(rref, *args):
        return rpc.rpc_sync(rref.owner(), run, args=(rref, *args))

    # One after the other, from here; a leaf of this worker as input; the answer of one goes to the other.
    leaf = x.clone().requires_grad_()
    both(lambda: call(b, call(a, here(leaf))).sum(), lambda: cb(ca(here(leaf))).sum(), [leaf])
    # Side by side, from one tensor, which both use; asynchronous.
    def fan():
        h = here(x)
        futures = [rpc.rpc_async(r.owner(), run, args=(r, h)) for r in (a, b, a)]
        one, two, three = tg.futures.wait_all(futures)
        return (one * two + three).sum()

    def fan_here():
        h = here(x)
        return (ca(h) * cb(h) + ca(h)).sum()

    both(fan, fan_here)
    # Results that stay there, and are used there.
    def staying():
        first = rpc.remote("w1", run, args=(a, here(x)))
        second = rpc.remote("w2", on_result, args=(b, first))
        return (second.to_here() + first.to_here()).sum()

    both(staying, lambda: (cb(ca(here(x))) + ca(here(x))).sum())
    # One worker calls the other, which calls this one.
    both(lambda: rpc.rpc_sync("w1", onwards, args=(a, b, here(x))).sum(), lambda: (cb(ca(here(x))) ** 2 * 3).sum())
    # A recurrence: what was sent in one step is part of all later ones.
    def recurrent(step):
        h = here(x)
        total = 0
        for i in range(6):
            h = tg.tanh(h + step(i, h))
            total = total + h.sum()
        return total

    both(lambda: recurrent(lambda i, h: call((a, b)[i % 2], h)), lambda: recurrent(lambda i, h: (ca, cb)[i % 2](h)))
    # Calls whose results are not used take no part, and are not waited for.
    def unused():
        h = here(x)
        call(b, h)
        rpc.rpc_sync("w1", w.echo, args=(h.sum(),))
        return call(a, h).sum()

    both(unused, lambda: ca(here(x)).sum())
    # Calls from this worker to itself.
    both(lambda: (rpc.rpc_sync("w0", w.add, args=(here(x), rpc.rpc_sync("w0", w.echo, args=(here(x),)))) ** 2).sum(),
         lambda: ((here(x) * 2) ** 2).sum())
    # A parameter as argument; several roots; no remote call at all.
    weight = nn.Parameter(tg.ones(3, dtype=tg.float64))
    both(lambda: rpc.rpc_sync("w1", run_with, args=(a, weight, x)).sum(), lambda: (ca(x) * weight).sum(), [weight])
    both(lambda: here(x).sum(), lambda: here(x).sum())


def on_result(rref, first):
    return rref.local_value()(first.to_here())


def onwards(a, b, x):
    return rpc.rpc_sync(b.owner(), onwards_again, args=(b, a.local_value()(x))) * 3


def onwards_again(b, x):
    return rpc.rpc_sync("w0", square, args=(b.local_value()(x),))


def square(x):
    return x ** 2


def test_graphs_of_all_shapes(tmp_path):
    run_workers(3, scenario_shapes_of_graphs, tmp_path)


def scenario_contexts():
    (a, _), (ca, _) = parts()
    x = data()
    # Twice through one graph, and what a context gathers.
    with dist.autograd.context() as context_id:
        loss = rpc.rpc_sync("w1", run, args=(a, x)).sum()
        dist.autograd.backward(context_id, [loss], retain_graph=True)
        dist.autograd.backward(context_id, [loss, loss])
        for _ in range(3):
            ca(x).sum().backward()
        equal_to_one_process(context_id, [a], [ca])
        with pytest.raises(RuntimeError, match="Error on Node 1: (?s:.*)freed"):
            dist.autograd.backward(context_id, [loss])
        with pytest.raises(RuntimeError, match="Already have an autograd context"), dist.autograd.context():
            pass
    assert w.until(lambda: rpc.rpc_sync("w1", w.contexts) == 0) and w.contexts() == 0
    # Contexts of several threads do not mix.
    found = {}

    def train(i):
        with dist.autograd.context() as context_id:
            loss = (rpc.rpc_sync("w1", run, args=(a, x * i))).sum()
            dist.autograd.backward(context_id, [loss])
            found[i] = rpc.rpc_sync("w1", w.gradients, args=(context_id, a))

    run_all([functools.partial(train, i) for i in range(1, 6)])
    for i in range(1, 6):
        ca.zero_grad()
        ca(x * i).sum().backward()
        for g, p in zip(found[i], ca.parameters(), strict=True):
            close(g, p.grad)
    # What is wrong is said, and the workers go on.
    leaf = tg.ones(2, requires_grad=True)
    with dist.autograd.context() as context_id:
        for roots, text in [([], "No tensors provided"), ([tg.ones(1)], "requires_grad not set on root"), ([leaf * 2], "all roots need to be scalar"),
                            ([tg.ones((), requires_grad=True)], "does not have a valid gradient function")]:
            with pytest.raises(RuntimeError, match=text):
                dist.autograd.backward(context_id, roots)
        y = rpc.rpc_sync("w1", fails_backward, args=(leaf,))
        with pytest.raises(RuntimeError, match=r"(?s)Error on Node 1: On WorkerInfo\(id=1, name=w1\).*not today"):
            dist.autograd.backward(context_id, [y.sum()])
        y = rpc.rpc_sync("w1", through_third, args=(leaf,))
        with pytest.raises(RuntimeError, match=r"(?s)Error on Node [12].*not today"):
            dist.autograd.backward(context_id, [y.sum()])
        z = rpc.rpc_sync("w1", square, args=(leaf,)).sum()
        with pytest.raises(RuntimeError, match="call distributed.autograd.backward"):
            z.backward()
        dist.autograd.backward(context_id, [z])
        assert dist.autograd.get_gradients(context_id)[leaf].tolist() == [2, 2] and leaf.grad is None
        assert [len(c.passes) for c in rpc._get_current_rpc_agent().contexts.all.values()] == [0]
    for f in (dist.autograd.get_gradients, lambda c: dist.autograd.backward(c, [leaf.sum()]), dist.autograd._retrieve_context):
        with pytest.raises(RuntimeError, match="Could not find autograd context with id"):
            f(context_id)
    # Outside of a context nothing is recorded, and leaves are leaves.
    assert rpc.rpc_sync("w1", square, args=(leaf,)).is_leaf
    # A call that is under way when its context ends leaves nothing behind.
    with dist.autograd.context() as context_id:
        late = rpc.rpc_async("w1", slow_square, args=(leaf,))
    late.wait()
    assert w.until(lambda: rpc.rpc_sync("w1", w.contexts) == 0) and w.contexts() == 0


def slow_square(x):
    w.waits(0.1)
    return x ** 2


class Fails(Same):
    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("not today")


def fails_backward(x):
    return Fails.apply(x)


def through_third(x):
    return rpc.rpc_sync("w2", fails_backward, args=(x * 2,)) + x


def test_contexts(tmp_path):
    run_workers(3, scenario_contexts, tmp_path)


def old_nodes():
    """Nodes with numbers as low as those of gates: made before the thread knew of contexts."""
    (a, b), (ca, cb) = parts()
    x = data()
    _contexts._local.left = True  # this thread leaves no numbers
    here = nn.Linear(3, 3).double()
    h, h2 = here(x), here(x)
    with dist.autograd.context() as context_id:
        for i in range(4):
            h = tg.tanh(h + rpc.rpc_sync((a, b)[i % 2].owner(), run, args=((a, b)[i % 2], h)))
            h2 = tg.tanh(h2 + (ca, cb)[i % 2](h2))
        one = h.sum()
        pass_ = _contexts.Pass(_contexts.current(), (0, -1), None)
        pass_.walk([one])
        assert pass_._least < 4
        dist.autograd.backward(context_id, [one])
        h2.sum().backward()
        equal_to_one_process(context_id, (a, b), (ca, cb))
        for p in here.parameters():
            close(dist.autograd.get_gradients(context_id)[p], p.grad)


def scenario_training():
    """A model on two workers and here, with an optimizer for all."""
    old_nodes()  # first: this thread has made no nodes yet
    (a, b), (ca, cb) = parts()
    tg.manual_seed(9)
    here = nn.Linear(3, 3).double()
    copy = nn.Linear(3, 3).double()
    copy.load_state_dict(here.state_dict())
    rrefs = [r for m in (a, b) for r in rpc.rpc_sync(m.owner(), w.parameter_rrefs, args=(m,))] + [rpc.RRef(p) for p in here.parameters()]
    distributed = dist.optim.DistributedOptimizer(optim.Adam, rrefs, lr=0.05)
    alone = optim.Adam([*ca.parameters(), *cb.parameters(), *copy.parameters()], lr=0.05)
    x, losses = data(), []
    for _ in range(4):
        with dist.autograd.context() as context_id:
            loss = b.rpc_sync().forward(a.rpc_sync().forward(here(x))).pow(2).mean()
            dist.autograd.backward(context_id, [loss])
            distributed.step(context_id)
        alone.zero_grad()
        other = cb(ca(copy(x))).pow(2).mean()
        other.backward()
        alone.step()
        losses.append((loss.item(), other.item()))
    tg.testing.assert_close([a for a, _ in losses], [b for _, b in losses], rtol=1e-11, atol=0)
    assert losses[-1][0] < losses[0][0] and all(p.grad is None for p in here.parameters())
    with pytest.raises(RuntimeError, match="Could not find autograd context"):
        distributed.step(context_id)
    with pytest.raises(ValueError, match="Invalid learning rate|learning rate"):
        dist.optim.DistributedOptimizer(optim.SGD, rrefs, lr=-1.0)
    remote_module()


def remote_module():
    module = dist.nn.RemoteModule("w1/cpu", nn.Linear, args=(3, 2), kwargs={"bias": False})
    rref = module.get_module_rref()
    weight = module.remote_parameters()[0].to_here()
    x = tg.ones(4, 3, requires_grad=True)
    with dist.autograd.context() as context_id:
        y = module(x)
        dist.autograd.backward(context_id, [y.sum() + module.forward_async(x).wait().sum()])
        close(dist.autograd.get_gradients(context_id)[x], (2 * weight.sum(0)).expand(4, 3))
        assert rpc.rpc_sync("w1", w.gradients, args=(context_id, rref))[0].tolist() == [[8.0] * 3] * 2
    assert y.equal(x @ weight.t()) and len(module.remote_parameters(recurse=False)) == 1
    assert rpc.rpc_sync("w2", forward_there, args=(module, x.detach())).equal(y)
    assert module.eval().training is False and rpc.rpc_sync("w1", is_training, args=(rref,)) is False
    assert dist.nn.RemoteModule("rank:2", nn.Identity)(x).equal(x)
    with pytest.raises(ValueError, match="Please use ``remote_parameters`` instead"):
        module.parameters()
    with pytest.raises(ValueError, match="Method ``to`` not supported for RemoteModule"):
        module.to("cpu")
    with pytest.raises(ValueError, match="Expect `module_cls"):
        dist.nn.RemoteModule("w1", w.Counter).forward(x)
    for bad in ("w1/", "/cpu", "rank:x/cpu", "w1/cpu/cpu", 3):
        with pytest.raises(ValueError, match="remote_device|RemoteModule"):
            dist.nn.RemoteModule(bad, nn.Identity)
    with pytest.raises(RuntimeError, match="only be pickled when using RPC"):
        module.__getstate__()


def forward_there(module, x):
    return module(x)


def is_training(rref):
    return rref.local_value().training


def test_training_and_remote_modules(tmp_path):
    run_workers(3, scenario_training, tmp_path)


def trains(rank, size, path):
    """Workers 0 and 1 train copies of one layer on their own data, behind a layer on worker 2."""
    trainers = dist.new_group([0, 1])
    with w.working(rank, size, path):
        if rank == 2:
            return None
        behind = rpc.remote("w2", w.net, args=((3, 4, 3), 0))
        copies = [w.net((3, 4, 3), 0), w.net((3, 5, 3), 7)]
        model = nn.parallel.DistributedDataParallel(w.net((3, 5, 3), 7 + rank), process_group=trainers)  # rank 0's values are everybody's
        inputs = [data() * (r + 1) for r in range(2)]
        for _ in range(2):
            with dist.autograd.context() as context_id:
                loss = model(behind.rpc_sync().forward(inputs[rank])).pow(2).sum()
                dist.autograd.backward(context_id, [loss])
                got = [dist.autograd.get_gradients(context_id)[p] for p in model.parameters()]
                there = rpc.rpc_sync("w2", w.gradients, args=(context_id, behind))
            copies[1].zero_grad()
            for r, x in enumerate(inputs):
                copies[0].zero_grad()
                copies[1](copies[0](x)).pow(2).sum().backward()
                if r == rank:
                    own = [p.grad for p in copies[0].parameters()]
            for a, p in zip(got, copies[1].parameters(), strict=True):
                close(a, p.grad / 2)  # the mean over the trainers
            for a, b in zip(there, own, strict=True):
                close(a, b)  # of this trainer alone
            assert all(p.grad is None for p in model.parameters())
        return [g.tolist() for g in got]


def test_data_parallel_training_with_a_part_elsewhere(tmp_path):
    from distributed.ranks import results, run_ranks

    got = results(run_ranks(3, trains, str(tmp_path / "rpc"), timeout=60))
    assert got[0] == got[1]
