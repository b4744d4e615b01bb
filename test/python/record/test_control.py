"""Control flow in recorded steps: one call each, whose bodies are recorded when they first run; right, or refused with the line."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
import tapegrad as tg
from tapegrad import nn
from tapegrad._higher_order_ops import associative_scan, cond, map, scan, while_loop
from tapegrad.record import _step


def same(a, b) -> bool:
    return a.dtype is b.dtype and a.equal(b)


def check(step, function, calls, replayed: bool = True) -> None:
    """step(*args) equals function(*args) for each of the calls, with temporaries overwritten in between."""
    for args in calls:
        got, wanted = step(*args), function(*args)
        for x, y in zip(got, wanted, strict=True):
            assert same(x, y)
        step._replays.scribble()
    assert (step._replays.count > 0) is replayed, step.summary()


def bodies() -> dict[str, int]:
    """How often the bodies of recorded steps that live were replayed, by their names."""
    gc.collect()
    counts: dict[str, int] = {}
    for step in _step._all:
        if " of " in step.name:
            counts[step.name] = counts.get(step.name, 0) + step._replays.count
    return counts


def by_cond(x, limit):
    h = x * 2
    return cond(h.sum() > limit, lambda a: (a + h, a.sum()), lambda a: ((a - h) * 3, h.sum()), (x,)), h


def by_if(x, limit):
    h = x * 2
    return ((x + h, x.sum()) if h.sum() > limit else ((x - h) * 3, h.sum())), h


def flat(function):
    def f(*args):
        (a, b), c = function(*args)
        return a * 1, b * 1, c * 1

    return f


def test_branches_are_recorded_when_they_are_first_taken():
    step = tg.record(flat(by_cond), fullgraph=True)
    often, seldom = tg.tensor(-1.0), tg.tensor(100.0)
    check(step, flat(by_if), [(tg.rand(4), often) for _ in range(4)] + [(tg.rand(4), seldom if k % 3 else often) for k in range(30)])
    assert step._replays.count == 30  # of 34: two recordings, two audits
    # The bodies are recorded and replayed, too: each ran in 9 or more of these.
    assert {name: count > 4 for name, count in bodies().items()} == {"the true branch of cond": True, "the false branch of cond": True}


def test_loops():
    def looped(x):
        def more(i, v):
            return v.sum() < 100

        count, v = while_loop(more, lambda i, v: (i + 1, v * 2 + h), (tg.zeros((), dtype=tg.int64), (h := x + 1)))
        return count + 0, v * 1

    def plain(x):
        h = v = x + 1
        count = tg.zeros((), dtype=tg.int64)
        while v.sum() < 100:
            count, v = count + 1, v * 2 + h
        return count, v

    step = tg.record(looped, fullgraph=True)
    check(step, plain, [(tg.rand(5) * 10 ** (k % 3),) for k in range(30)])
    assert bodies()["a turn of while_loop"] > 30


def test_trees_and_nesting():
    def step(x, p, q):
        def outer(tree, y):
            return cond(q.sum() > 0, lambda t: {"r": t["a"] * y}, lambda t: {"r": t["a"] - y}, (tree,))

        out = cond(p.sum() > 0, outer, lambda tree, y: {"r": y * 3}, ({"a": x * 2}, x))
        return (out["r"] + 1,)

    def plain(x, p, q):
        r = (x * 2 * x if q.sum() > 0 else x * 2 - x) if p.sum() > 0 else x * 3
        return (r + 1,)

    yes, no = tg.ones(1), -tg.ones(1)
    check(tg.record(step, fullgraph=True), plain, [(tg.rand(3), yes if k % 2 else no, yes if k % 3 else no) for k in range(30)])


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(4, 4), nn.Linear(4, 4), 2.0

    def forward(self, x):
        return cond(x.sum() > 2, lambda x: self.a(x), lambda x: self.b(x) * self.scale, (x,)).relu()


def test_a_module_whose_state_changes_between_calls():
    model = Switched().eval()
    compiled = tg.compile(Switched().eval(), fullgraph=True)
    compiled.load_state_dict(model.state_dict())
    with tg.no_grad():
        for k in range(40):
            if k == 20:
                model.scale = compiled.scale = 3.0  # of a branch that may not have run
            if k == 30:
                for m in (model, compiled):
                    m.b.weight.mul_(2)
            x = tg.rand(4)
            assert same(compiled(x), model(x))
    assert compiled.forward._replays.count > 10


def trained(model, optimizer, loss, data, recorded: bool):
    """Weights, gradients and losses of training steps; and the step."""
    def step(x):
        optimizer.zero_grad()
        value = loss(model, x)
        value.backward()
        optimizer.step()
        return value

    run = tg.record(step, fullgraph=True) if recorded else step
    found = []
    for x in data:
        found += [run(x).detach().clone(), *(p.detach().clone() for p in model.parameters()), *(p.grad for p in model.parameters())]
        if recorded:
            run._replays.scribble()
    return found, run


def assert_all_same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None) and (a is None or same(a, b))


@pytest.mark.parametrize("rule", [tg.optim.SGD, tg.optim.Adam])
def test_training_through_what_is_chosen(rule):
    """A plan for each way; gradients of the branch that did not run are none, as eagerly."""
    data = [tg.rand(4) + 0.2 * (k % 3) for k in range(40)]
    model, twin = Switched(), Switched()
    twin.load_state_dict(model.state_dict())
    mine, step = trained(model, rule(model.parameters(), lr=0.1), lambda m, x: m(x).square().sum(), data, True)
    theirs, _ = trained(twin, rule(twin.parameters(), lr=0.1), lambda m, x: m(x).square().sum(), data, False)
    assert_all_same(mine, theirs)
    assert len(step._replays.plans()) == 2 and step._replays.count > 20, step.summary()


class Until(nn.Module):
    """As many turns as the values need."""

    def __init__(self):
        super().__init__()
        self.turn, self.dropout = nn.Linear(4, 4), nn.Dropout(0.3)

    def forward(self, x):
        return while_loop(lambda i, h: (h.abs().sum() < 6) & (i < 4), lambda i, h: (i + 1, self.dropout(self.turn(h)) + h * 1.4), (tg.zeros((), dtype=tg.int64), x))[1]


@pytest.mark.parametrize("way", ["step", "model"])
def test_loops_with_gradients_and_random_numbers(way):
    data = [tg.rand(4) * (0.3 + 0.5 * (k % 3)) for k in range(60)]
    found = []
    first = Until()
    for recorded in (True, False):
        model = Until()
        model.load_state_dict(first.state_dict())
        if recorded and way == "model":
            tg.compile(model)
        tg.manual_seed(3)
        results, step = trained(model, tg.optim.SGD(model.parameters(), lr=0.01), lambda m, x: m(x).sum(), data, recorded and way == "step")
        found.append([*results, tg.rand(3)])
        if recorded:
            replays = (step if way == "step" else model.forward)._replays
            assert replays.count > 15 and len(replays.plans()) > 2
    assert_all_same(*found)


def test_a_choice_after_something_has_changed_is_refused(caplog):
    def made():
        weight = tg.ones(3, requires_grad=True)
        return weight, tg.optim.SGD([weight], lr=0.1)

    def step(weight, optimizer, x):
        (weight * x).sum().backward()
        optimizer.step()
        result = cond(weight[0] > 0, lambda y: y * 2, lambda y: y - 1, (weight,))
        result.sum().backward()
        return result.detach() * 1

    mine, twin = made(), made()
    recorded = tg.record(lambda x: step(*mine, x))
    with caplog.at_level(logging.WARNING, logger="tapegrad.record"):
        for _ in range(8):
            x = tg.rand(3)
            assert same(recorded(x), step(*twin, x))
    assert same(mine[0], twin[0]) and same(mine[0].grad, twin[0].grad)
    assert recorded._replays.count == 0
    assert "cond reads a value after the step did what cannot be undone at " + __file__ in caplog.text


def test_versions_rise_once():
    """A way that was not taken has changed nothing: what the tape has saved may still be used."""
    w = tg.ones(3)

    def step(x):
        y = cond((x * leaf).sum() > 0, lambda x: x * 2, lambda x: x * 3, (x * leaf,)).detach()
        w.add_(y)
        return y * 1

    leaf = tg.ones(3, requires_grad=True)
    recorded = tg.record(step)
    for k in range(20):
        x = tg.ones(3) * (1 if k % 2 else -1)
        before = w._version
        recorded(x)
        assert w._version == before + 1
    assert recorded._replays.count > 10 and len(recorded._replays.plans()) == 2


def test_scans_with_gradients_are_replayed():
    def train(x, w):
        w = w.detach().requires_grad_()
        carry, ys = scan(lambda c, a: (c * w + a, c.sin()), x[0] * 2, x)
        rows = map(lambda r: r * w + r.sum(), x)
        sums = associative_scan(lambda a, b: a * b, x * w, 1, combine_mode="generic")
        loop = while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * w), (0, carry))[1]
        grad, = tg.autograd.grad(carry.sum() + ys.sum() + rows.sum() + sums.sum() + loop.sum(), w)
        return carry.detach() + 0, ys.detach() + 0, sums.detach() + 0, grad

    check(tg.record(train, fullgraph=True), train, [(tg.rand(6, 4), tg.rand(4)) for _ in range(12)])


class Box:
    pass


def test_tensors_of_the_step_that_a_body_reaches_in_another_way():
    def hidden(x, p):
        box = Box()
        box.h = x * 2
        return (cond(p.sum() > 0, lambda a: a + box.h, lambda a: a - box.h, (x,)) * 1,)

    def passed(x, batch):
        box = Box()
        box.batch = batch
        return (cond(x.sum() > 0, lambda a: a + box.batch["y"], lambda a: a - box.batch["y"], (x,)) * 1,)

    def in_a_list(x, p):
        parts = [x * 2, {"y": x * 3}]
        return (cond(p.sum() > 0, lambda a: a + parts[0] * parts[1]["y"], lambda a: a - parts[0], (x,)) * 1,)

    yes, no = tg.ones(1), -tg.ones(1)
    for function, calls in ((hidden, [(tg.rand(3), yes if k % 2 else no) for k in range(12)]), (passed, [(tg.rand(3) - k % 2, {"y": tg.rand(3)}) for k in range(12)])):
        step = tg.record(function, fullgraph=True)
        check(step, function, calls)
        assert len(step._replays.plans()) == 2  # one for each way
    check(tg.record(in_a_list, fullgraph=True), in_a_list, [(tg.rand(3), yes if k % 2 else no) for k in range(12)])


def test_writes_to_operands_are_refused(caplog):
    def step(x):
        h = x * 2
        y = cond(h.sum() > 0, lambda a: a.add_(1) * 1, lambda a: a * 1, (h,))
        return h * 1, y

    with caplog.at_level(logging.WARNING, logger="tapegrad.record"):
        check(tg.record(step), step, [(tg.rand(3),) for _ in range(6)], replayed=False)
    assert "cond writes to what it is given" in caplog.text


def test_results_that_are_operands(caplog):
    """They are tensors of their own in a recorded step, as PyTorch wants it; where that would make a difference it is told."""
    def skips(x, p):
        y, z = cond(p.sum() > 0, lambda a: (a * 2, a * 3), lambda a: (a, a), (x,))
        return y + 1, z + x, y * z

    yes, no = tg.ones(1), -tg.ones(1)
    for first in (yes, no):
        check(tg.record(skips, fullgraph=True), skips, [(tg.rand(3), first) for k in range(4)] + [(tg.rand(3), yes if k % 2 else no) for k in range(12)])

    def written(x, p):
        h = x * 2
        y = cond(p.sum() > 0, lambda a: a * 2, lambda a: a, (h,))
        y.add_(1)
        return y * 1, h * 1

    with caplog.at_level(logging.WARNING, logger="tapegrad.record"):
        check(tg.record(written), written, [(tg.rand(3), yes) for k in range(6)], replayed=False)
    assert "what cond was given or gave is written to afterwards: clone() it" in caplog.text
    with pytest.raises(RuntimeError, match="cond: a result of it shares memory with what it was given or with another result, and is written to in a recorded step\nreturn a clone"):
        tg.record(written)(tg.rand(3), no)
    assert tg.ones(2).add_(1).equal(tg.full((2,), 2.0))  # no recording is left on


def test_operands_that_are_no_plain_tensors():
    def batched(xs, p):
        return (tg.vmap(lambda x: cond(p.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,)))(xs) + 1,)

    def per_sample(xs, p):
        return (tg.vmap(lambda x: cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,)))(xs) * p,)

    def sparse(x, p):
        s = x.to_sparse()
        return (cond(p.sum() > 0, lambda s: s * 2, lambda s: s * 3, (s,)).to_dense() + 1,)

    calls = [(tg.randn(4, 3), tg.ones(1) if k % 2 else -tg.ones(1)) for k in range(12)]
    for function in (batched, per_sample, sparse):
        with tg.compiler.set_stance("force_eager"):
            wanted = [function(*args) for args in calls]
        step = tg.record(function)
        for args, (y,) in zip(calls, wanted, strict=True):
            assert same(step(*args)[0], y)
            step._replays.scribble()


def test_buffers_of_modules_are_written_by_the_branch_that_runs():
    def run(compiled: bool):
        tg.manual_seed(0)
        norm = nn.BatchNorm1d(3)
        step = lambda x, p: (cond(p.sum() > 0, lambda x: norm(x), lambda x: x * 2, (x,)) + 1,)  # noqa: E731
        if compiled:
            step = tg.record(step)
        out = []
        with tg.no_grad():
            for k in range(12):
                out += step(tg.rand(4, 3), tg.ones(1) if k % 3 else -tg.ones(1))
        return [*out, norm.running_mean, norm.num_batches_tracked]

    for a, b in zip(run(True), run(False), strict=True):
        assert same(a, b)


def test_random_numbers_of_bodies_come_anew():
    def step(x, p):
        y = cond(p.sum() > 0, lambda x: x + tg.rand(3), lambda x: x * 2, (x,))
        return y + tg.rand(3), y * 1

    calls = [(tg.rand(3), tg.ones(1) if k % 3 else -tg.ones(1)) for k in range(20)]
    recorded = tg.record(step)
    results = []
    for f in (recorded, step):
        tg.manual_seed(7)
        results.append([t for args in calls for t in f(*args)])
    assert all(same(a, b) for a, b in zip(*results, strict=True))


def test_variables_that_change_after_the_call():
    """Bodies see the variables of the function around them as they were when it was called, replays included."""
    def step(x, p):
        out = []
        for k, scale in enumerate((2.0, 3.0, 4.0)):
            x = cond(p[k] > 0, lambda a: a * scale + k, lambda a: a - scale * x, (x,))
            out.append(x * 1)
        scale = 100.0
        return out

    def plain(x, p):
        out = []
        for k, scale in enumerate((2.0, 3.0, 4.0)):
            x = x * scale + k if p[k] > 0 else x - scale * x
            out.append(x)
        return out

    check(tg.record(step, fullgraph=True), plain, [(tg.rand(3), tg.tensor([k % 2 - 0.5, k % 3 - 0.5, k % 5 - 0.5])) for k in range(30)])


def test_bodies_that_write_to_variables():
    def step(x):
        count = 0

        def noted(a):
            nonlocal count
            count += 1
            return a * 2

        y = cond(x.sum() > 0, noted, lambda a: a + 1, (x,))
        return y * 1, x + count

    def plain(x):
        return (x * 2, x + 1) if x.sum() > 0 else (x + 1, x)

    step = tg.record(step, pure=True)
    check(step, plain, [(tg.rand(3) - k % 2,) for k in range(16)])
    assert len(step._replays.plans()) == 2  # one for each way


LOG: list = []


def test_effects_of_a_branch_happen_in_each_call():
    def step(x):
        def noted(x):
            LOG.append(1)
            return x * 2

        return (cond(x.sum() > 0, lambda x: x + 1, noted, (x,)) * 1,)

    recorded = tg.record(step)
    for k in range(12):
        recorded(tg.ones(3) if k < 4 or k % 2 else -tg.ones(3))
    assert len(LOG) == 4 and recorded._replays.count > 0


def test_errors_in_a_body():
    broken = [None]

    def step(x):
        def second(x):
            if broken[0] is not None:
                raise broken[0]
            return x * 2

        return (cond(x.sum() > 0, lambda x: x + 1, second, (x,)) * 1,)

    recorded = tg.record(step)
    for _ in range(4):
        recorded(tg.ones(3))
    for error in (ValueError("no"), KeyboardInterrupt(), SystemExit(3)):
        broken[0] = error
        with pytest.raises(type(error)):
            recorded(-tg.ones(3))
        assert same(recorded(tg.ones(3))[0], tg.ones(3) + 1)
    broken[0] = None
    for _ in range(4):
        assert same(recorded(-tg.ones(3))[0], -tg.ones(3) * 2)


def test_results_of_other_sizes():
    def step(x):
        return (cond(x.sum() > 0, lambda x: x + 1, lambda x: x[:2], (x,)).sum(0, keepdim=True) * 1,)

    recorded = tg.record(step)
    for _ in range(4):
        recorded(tg.ones(3))
    with pytest.raises(RuntimeError, match=r"cond: its bodies must give tensors of the same sizes and dtypes: got .*float32\[2\], and .*float32\[3\] when it was recorded"):
        recorded(-tg.ones(3))


def test_constants_of_closures_tell_calls_apart():
    """The same code with another constant, which no watch sees: two recordings differ."""
    made = iter(range(100))

    def step(x):
        k = next(made)
        return (cond(x.sum() > 0, lambda x: x + k, lambda x: x - k, (x,)) * 1,)

    recorded = tg.record(step, pure=True)
    for k in range(8):
        assert same(recorded(tg.ones(3))[0], tg.ones(3) + k)


def test_nothing_is_kept():
    model = tg.compile(Switched().eval())
    with tg.no_grad():
        for k in range(8):
            model(tg.rand(4) if k % 2 else -tg.rand(4))
    assert model.forward._replays.count > 0
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
