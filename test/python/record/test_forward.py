"""Recorded forward passes whose backward pass comes later: `compile(model)` in a training loop that is not recorded itself."""

import copy
import gc

import pytest
import tapegrad as tg
from interpreter.programs import run
from recorded import Layers, assert_same, batches, in_threads, mlp, plans, replays
from tapegrad import nn

F = nn.functional


def pair(make=mlp):
    a = make()
    b = copy.deepcopy(a)
    return a, tg.compile(b), b.forward


def train(net, optimizer, x, y, seed=0):
    tg.manual_seed(seed)
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("make", [mlp, Layers])
def test_training_with_a_compiled_model(make):
    tg.manual_seed(0)
    a, b, step = pair(make)
    first, second = (tg.optim.AdamW(n.parameters(), lr=0.01) for n in (a, b))
    for i, (x, y) in enumerate(batches(40)):
        expected = train(a, first, x, y, i)
        step._replays.scribble()
        assert tg.equal(train(b, second, x, y, i), expected), f"step {i}: {step.summary()}"
        assert_same(a, b, f"step {i}")
        if i % 5 == 4:  # an evaluation between two steps
            a.eval(), b.eval()
            with tg.no_grad():
                assert tg.equal(a(x), b(x))
            a.train(), b.train()
    assert replays(step) >= 8, step.summary()


def test_a_pure_function_of_parameters():
    w = tg.ones(3, requires_grad=True)
    step = tg.record(lambda x: (w * x).sum())
    for i in range(6):
        step(tg.arange(3.0)).backward()
        assert w.grad.tolist() == [0.0, i + 1.0, 2.0 * (i + 1)]
    assert replays(step) >= 3


def test_two_forward_passes_before_the_backward_passes():
    a, b, step = pair()
    data = batches(20)
    for i in range(0, 20, 2):
        for net in (a, b):
            net.zero_grad()
            losses = [F.cross_entropy(net(x), y) for x, y in data[i:i + 2]]
            losses[1].backward()
            losses[0].backward()
        assert_same(a, b, f"pair {i}")
    assert replays(step) > 0


def test_gradients_add_up_over_steps():
    a, b, step = pair()
    for i, (x, y) in enumerate(batches(12)):
        for net in (a, b):
            F.cross_entropy(net(x), y).backward()
        assert_same(a, b, f"step {i}")
    assert replays(step) > 5


def test_autograd_grad_and_parts_of_the_parameters():
    a, b, step = pair()
    for x, y in batches(8):
        results = [tg.autograd.grad(F.cross_entropy(net(x), y), [net[0].weight, net[4].bias]) for net in (a, b)]
        assert all(tg.equal(p, q) for p, q in zip(*results, strict=True))
    assert replays(step) > 3


def test_backward_twice():
    a, b, step = pair()
    for i, (x, y) in enumerate(batches(10)):
        keep = i > 4
        for net in (a, b):
            net.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward(retain_graph=keep)
            if keep:
                loss.backward(retain_graph=True)
                loss.backward()
        assert_same(a, b, f"step {i}")
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    assert replays(step) > 4


def test_gradients_of_gradients_are_refused_as_pytorch_does():
    a, b, step = pair()
    x, y = batches(1)[0]
    F.cross_entropy(b(x), y).backward()
    for _ in range(6):  # while it is recorded, and replayed
        loss = F.cross_entropy(b(x), y)
        with pytest.raises(RuntimeError, match="double backward"):
            tg.autograd.grad(loss, list(b.parameters()), create_graph=True)
        del loss
        F.cross_entropy(b(x), y).backward()
    assert replays(step) > 0
    for net in (a, b):
        net.zero_grad()
    with tg.compiler.set_stance("force_eager"):
        for net in (a, b):
            (g,) = tg.autograd.grad(F.cross_entropy(net(x), y), [net[0].weight], create_graph=True)
            g.square().sum().backward()
    assert_same(a, b, "second derivative")


def test_a_backward_pass_that_never_comes():
    a, b, step = pair()
    for x, _ in batches(20):
        assert tg.equal(a(x), b(x))
    for x, y in batches(20):
        F.cross_entropy(b(x), y).backward()  # given up, or recorded: right in any case
        F.cross_entropy(a(x), y).backward()
        assert_same(a, b, "after it")
    # Once replayed: a result that is dropped frees the plan for the next call.
    c = tg.compile(mlp())
    for x, y in batches(6):
        F.cross_entropy(c(x), y).backward()
    before = replays(c.forward)
    for x, _ in batches(4):
        c(x)
    assert replays(c.forward) == before + 4
    kept = [c(x) for x, _ in batches(4)]
    assert replays(c.forward) == before + 5
    assert len({k.data_ptr() for k in kept}) == 4


def test_tensors_written_between_the_passes():
    b = tg.compile(mlp())
    data = batches(8)
    for x, y in data[:5]:
        F.cross_entropy(b(x), y).backward()
    assert replays(b.forward) > 0
    for spoil in (lambda x, out: b[2].weight.data.mul_(1) if False else b[2].weight.detach().mul_(2), lambda x, out: x.add_(1)):
        x, y = data[6]
        out = b(x)
        spoil(x, out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
    x, y = data[7]
    b.zero_grad()
    a = copy.deepcopy(b)
    F.cross_entropy(b(x), y).backward()
    F.cross_entropy(a(x), y).backward()
    assert_same(a, b, "after the errors")


@pytest.mark.parametrize("what", ["argument", "weight"])
def test_memory_is_exchanged_between_the_passes(what):
    w = tg.ones(64, 64, requires_grad=True)
    step = tg.record(lambda x: (w * w * x).tanh() * x)
    for _ in range(5):
        step(tg.ones(64, 64)).sum().backward()
    assert replays(step) > 0
    x = tg.ones(64, 64)
    out = step(x)
    storage = (x if what == "argument" else w.detach()).untyped_storage()
    storage.resize_(1 << 22)
    storage.resize_(4)
    with pytest.raises(RuntimeError, match="its memory was exchanged"):
        out.sum().backward()


def test_results_written_between_the_passes():
    w = tg.full((3,), 0.5, requires_grad=True)
    step = tg.record(lambda x: (w * x).tanh())
    for _ in range(5):
        step(tg.ones(3)).sum().backward()
    assert replays(step) > 0
    out = step(tg.ones(3))
    with tg.no_grad():
        out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_several_results_of_which_some_are_used():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 2), nn.Linear(4, 3)

        def forward(self, x):
            h = self.body(x).relu()
            return {"a": self.a(h), "b": self.b(h), "none": None, "best": self.b(h).argmax(1), "x": x}

    a, b, step = pair(Heads)
    for i, (x, _) in enumerate(batches(15)):
        for net in (a, b):
            net.zero_grad()
            out = net(x)
            assert out["x"] is x and out["none"] is None
            loss = out["a"].square().mean() if i % 3 == 0 else out["b"].exp().sum() if i % 3 == 1 else (out["a"].sum() + out["b"].sum())
            loss.backward()
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            if p.grad is None:  # what no result led to is zero
                assert q.grad is None or not q.grad.any()
            else:
                assert tg.equal(p.grad, q.grad), i
    assert replays(step) > 0, step.summary()


def test_hooks_and_custom_functions():
    class Double(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + 0 * ctx.saved_tensors[0]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = nn.Linear(6, 3), []

        def forward(self, x):
            return Double.apply(self.layer(x))

    a, b, step = pair(Net)
    for net in (a, b):
        net.layer.weight.register_post_accumulate_grad_hook(lambda p, net=net: net.seen.append(p.grad.clone()))
    for x, y in batches(8):
        for net in (a, b):
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
        assert_same(a, b, "custom")
    assert len(a.seen) == len(b.seen) == 8 and all(tg.equal(p, q) for p, q in zip(a.seen, b.seen, strict=True))

    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            h = self.layer(x)
            if h.requires_grad:
                h.register_hook(lambda g: g * 3)
            return h * 2

    a, b, step = pair(Hooked)
    for x, y in batches(8):
        for net in (a, b):
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
        assert_same(a, b, "hook")
    assert replays(step) == 0 and "hook" in step.summary()


def test_arguments_that_need_a_gradient_run_eagerly():
    a, b, _ = pair()
    for x, y in batches(6):
        grads = []
        for net in (a, b):
            x2 = x.clone().requires_grad_()
            F.cross_entropy(net(x2), y).backward()
            grads.append(x2.grad)
        assert tg.equal(*grads)
        assert_same(a, b, "inputs")


def test_autocast_around_it_and_checkpoints_within():
    from tapegrad.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(checkpoint(lambda t: self.a(t).relu(), x, use_reentrant=False))

    a, b, _ = pair(Net)
    for i, (x, y) in enumerate(batches(12)):
        for net in (a, b):
            net.zero_grad()
            with tg.autocast("cpu", dtype=tg.bfloat16, enabled=i % 2 == 1):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
        assert_same(a, b, f"step {i}")


def test_threads_train_copies_and_share_one():
    nets = [tg.compile(mlp()) for _ in range(3)]
    expected = mlp()
    optimizer = tg.optim.SGD(expected.parameters(), lr=0.1)
    for x, y in batches(15):
        train(expected, optimizer, x, y)
    batches_of = batches(15)

    def work(net):
        optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
        for x, y in batches_of:
            train(net, optimizer, x, y)

    in_threads(work, nets)
    for net in nets:
        assert_same_weights(expected, net)


def assert_same_weights(a, b):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert tg.equal(p, q)


def test_nothing_is_left_behind():
    import weakref

    net = tg.compile(mlp())
    for x, y in batches(6):
        out = net(x)
        F.cross_entropy(out, y).backward()
    ref = weakref.ref(net)
    out = net(x)  # its node holds the plan
    del net
    gc.collect()
    out.sum().backward()
    del out
    gc.collect()
    assert ref() is None


def test_an_error_in_the_backward_pass_frees_the_plan():
    _, b, step = pair()
    x, y = batches(1)[0]
    for _ in range(5):
        F.cross_entropy(b(x), y).backward()
    before = replays(step)
    for _ in range(4):
        out = b(x)
        with pytest.raises(RuntimeError, match="double backward"):
            tg.autograd.grad(F.cross_entropy(out, y).exp(), list(b.parameters()), create_graph=True)
        out = None
    assert replays(step) == before + 4


def test_exit_between_the_passes():
    program = """
import tapegrad as tg
from tapegrad import nn
net = tg.compile(nn.Linear(3, 3))
for _ in range(6):
    out = net(tg.ones(2, 3)); out.sum().backward()
out = net(tg.ones(2, 3))
print(net.forward.summary().split(",")[-1])
"""
    assert "replays" in run(program)


def test_a_changed_model_is_recorded_anew():
    a, b, step = pair()
    data = batches(24)
    for i, (x, y) in enumerate(data):
        if i == 8:
            for net in (a, b):
                net[0].weight.requires_grad_(False)
        if i == 16:
            for net in (a, b):
                net[2] = nn.Identity()
        for net in (a, b):
            net.zero_grad()
            F.cross_entropy(net(x), y).backward()
        assert_same(a, b, f"step {i}")
    assert plans(step) >= 1
