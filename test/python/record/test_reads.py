"""Values that a recorded step reads and goes on by: a plan is for one way, what is read is compared in each replay, and where it is another
value all is put back and the step begins again."""

from __future__ import annotations

import functools
import logging
import math
import signal
import threading
import warnings

import pytest
import tapegrad as tg
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tapegrad import nn

ops = st.tuples(st.sampled_from(["add", "mul", "sin", "rand", "weight", "buffer", "argument", "grad", "view", "step"]), st.integers(0, 3), st.integers(0, 3))
reads = st.tuples(st.sampled_from(["if", "item", "int", "list", "while", "isfinite", "float", "equal", "index"]), st.integers(0, 3), st.integers(0, 3))
programs = st.lists(st.one_of(ops, ops, reads), min_size=1, max_size=9)


def same(a, b) -> bool:
    return a.dtype is b.dtype and a.equal(b)


class State:
    """What a program may change: a weight with a gradient, a buffer."""

    def __init__(self):
        self.weight = tg.full((3,), 0.7, requires_grad=True)
        self.buffer = tg.zeros(4)
        self.optimizer = tg.optim.SGD([self.weight], lr=0.1, momentum=0.5)

    def tensors(self) -> list:
        return [self.weight.detach(), self.buffer, self.weight.grad]


def run(program, state, x, random: bool):
    pool = [x * 1, x * 2]
    for name, i, k in program:
        a, b = pool[i % len(pool)], pool[k % len(pool)]
        if name == "add":
            made = a + b
        elif name == "mul":
            made = a * b * 0.5
        elif name == "sin":
            made = a.sin()
        elif name == "rand":
            made = a + tg.rand(3) if random else a - 0.3
        elif name == "weight":
            made = a * state.weight.detach()
            with tg.no_grad():
                state.weight.mul_(0.9)
        elif name == "buffer":
            state.buffer[1:] += a
            made = state.buffer[:3] * 0.1
        elif name == "argument":
            x.mul_(0.5)
            made = x + b
        elif name == "grad":
            (state.weight * a).sum().backward()
            made = a * 0.5
        elif name == "step":
            state.optimizer.step()
            made = a - state.weight.detach()
        elif name == "view":
            made = a.flip(0)
            made[:2].add_(b[1:])
        elif name == "if":
            made = a + 1 if a.sum() > 0.2 else b - 1
        elif name == "item":
            made = a * (a.sum() * 2).int().item()
        elif name == "int":
            n = int((a > 0).sum())
            made = b[:n].sum() + b
        elif name == "list":
            made = b * sum(t.numel() for t in a.split((a > 0).int().sum().reshape(1).tolist() + [3 - int((a > 0).sum())]))
        elif name == "while":
            made = a
            while made.abs().sum() > 2:
                made = made * 0.5
        elif name == "isfinite":
            made = a * 2 if math.isfinite((a - 0.1).log().sum().item()) else b
        elif name == "float":
            level = a.sum().item()
            made = b + 1 if level > 0.5 else b * 0.7
        elif name == "equal":
            made = a if (a > 0).any() and not (b > 0).all() else b + 2
        else:
            made = a + b[int(a.argmax())]
        pool = [made, *pool[:3]]
    return pool[0] * 1, pool[1] + 0


@settings(max_examples=120, deadline=None)
@given(programs, st.booleans(), st.integers(0, 2**20))
def test_programs(program, random, seed):
    """Results, weights, buffers, arguments, gradients and the generator are those of eager calls, after each call."""
    found = []
    for recorded in (False, True):
        tg.manual_seed(seed)
        state, results = State(), []

        def step(x, state=state):
            return run(program, state, x, random)

        call = tg.record(step, pure=True) if recorded else step
        inputs = [tg.randn(3) * (0.3 + k % 2) for k in range(14)]
        for k, x in enumerate(inputs + inputs[:5]):
            if k % 3 == 0:
                state.weight.grad = None
            results += [*call(x), x.clone(), *(t if t is None else t.clone() for t in state.tensors()), tg.rand(1)]
            if recorded:
                call._replays.scribble()
        found.append(results)
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None) and (mine is None or same(mine, theirs) or mine.isnan().any())


def check(step, function, calls, replays: int, plans: int | None = None) -> None:
    for args in calls:
        got, wanted = step(*args), function(*args)
        for a, b in zip(got, wanted, strict=True):
            assert same(a, b) if isinstance(a, tg.Tensor) else type(a) is type(b) and (a == b or a != a)
        step._replays.scribble()
    assert step._replays.count >= replays, step.summary()
    assert plans is None or len(step._replays.plans()) == plans, step.summary()


def test_a_plan_for_each_way():
    def f(x):
        y = x * 2
        if y.sum() > 1:
            return (y + 1,)
        return (y[: int((y > 0.25).sum())] - 1,)

    check(tg.record(f, fullgraph=True), f, [(tg.tensor([k % 3, 0.5 * (k % 2), -1.0]),) for k in range(90)], 50, 4)


def test_elements_of_a_tensor_and_of_lists():
    def f(x, lengths):
        return (*x.split(lengths.tolist()), x * lengths[0].item())

    x = tg.rand(6)
    check(tg.record(f, fullgraph=True), f, [(x * k, tg.tensor([1 + k % 2, 5 - k % 2])) for k in range(40)], 30, 2)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out, self.dropout = nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Dropout(0.2)

    def forward(self, x):
        return self.out(self.dropout(self.norm(x)))


def trained(recorded: bool, function, calls: int = 60):
    """Losses, weights, gradients and statistics after each step, and the step."""
    tg.manual_seed(4)
    model = Norm()
    optimizer = tg.optim.Adam(model.parameters(), lr=0.05)
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)

    def step(x):
        return function(model, optimizer, scaler, x)

    if recorded:
        step = tg.record(step)
    found = []
    for k in range(calls):
        x = tg.randn(5, 3)
        if k % 7 == 6:
            x[0, 0] = math.inf
        found.append(step(x))
        found += [t.clone() for t in model.state_dict().values()] + [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
        if recorded:
            step._replays.scribble()
    return [*found, tg.rand(2)], step


def left_out(model, optimizer, scaler, x):
    """Statistics of batch norm, gradients and random numbers of a way that was not taken are put back."""
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if not loss.isfinite():
        return loss.detach() * 0
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    if norm > 0.4:
        return loss.detach() * 2
    optimizer.step()
    return loss.detach() + 1


def added_to(model, optimizer, scaler, x):
    """Gradients are added to, and so are they where the way is undone."""
    loss = model(x).square().mean().clamp(max=100)
    loss.backward()
    if not sum(p.grad.abs().sum() for p in model.parameters()).isfinite():
        optimizer.zero_grad(set_to_none=False)
        return loss.detach() * 3
    return loss.detach() + 1


def scaled(model, optimizer, scaler, x):
    optimizer.zero_grad()
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    return x.sum()


def raised(model, optimizer, scaler, x):
    """An exception where the loss is infinite, after the statistics have changed."""
    try:
        loss = model(x).square().mean()
        if not math.isfinite(loss.item()):
            raise ValueError("infinite")
    except ValueError:
        optimizer.zero_grad()
        return x * 0
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach() * 2


def there_before(model, optimizer, scaler, x):
    """A value that is there before the optimizer's step, which cannot be undone, is compared before it."""
    many = (x > 0.5).sum()
    model(x.nan_to_num(posinf=0.0)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return x * many.item()


def made_behind(model, optimizer, scaler, x):
    """What makes a value of others after the optimizer's step is done before it."""
    out = model(x.nan_to_num(posinf=0.0))
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right = (out.argmax(1) == 1).float()
    right.mul_(2)
    if right.mean() > 1 or loss.detach() * 2 > 1.0:
        return loss.detach() * 3
    return loss.detach() + int(right.sum())


@pytest.mark.parametrize("function", [left_out, added_to, scaled, raised, there_before, made_behind])
def test_training(function):
    (mine, step), (theirs, _) = trained(True, function), trained(False, function)
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None) and (a is None or same(a, b) or same(a.isnan(), b.isnan()) and same(a.nan_to_num(), b.nan_to_num()))
    assert step._replays.count >= 25, step.summary()


@pytest.mark.parametrize("value", ["weight", "drawn", "index", "overwritten"])
def test_a_value_made_after_the_optimizer_s_step(value, caplog):
    def made():
        weight = tg.ones(3, requires_grad=True)
        return weight, tg.optim.SGD([weight], lr=0.1)

    def step(weight, optimizer, x, i):
        y = x * 2
        z = y + 1
        (weight * z).sum().backward()
        optimizer.step()
        if value == "weight":
            way = weight.sum() > 0
        elif value == "drawn":
            way = (y + tg.rand(3)).sum() > 2
        elif value == "index":
            way = y[i].sum() > 1
        else:
            w = z * y
            way = y.add_(w.exp()).sum() > weight.detach().sum() * 3
        return x * 2 if way else x * 3

    mine, theirs = made(), made()
    recorded = tg.record(lambda x, i: step(*mine, x, i))
    for k in range(12):
        x, i = tg.rand(3), tg.tensor([0, 2])
        tg.manual_seed(k)
        with caplog.at_level(logging.WARNING, logger="tapegrad.record"):
            got = recorded(x, i)
        tg.manual_seed(k)
        assert same(got, step(*theirs, x, i))
    assert same(mine[0], theirs[0]) and recorded._replays.count == 0
    assert f"bool reads a value after the step did what cannot be undone at {__file__}" in caplog.text


def test_another_value_in_each_call(caplog):
    step = tg.record(lambda x: x * round(x.sum().item(), 9))
    for k in range(60):
        x = tg.tensor([float(k), 0.5])
        with caplog.at_level(logging.WARNING, logger="tapegrad.record"):
            assert same(step(x), x * round(k + 0.5, 9))
    assert "a value that it reads is another one in each call (item at " + __file__ in caplog.text


def test_one_look_at_each_way():
    """A way that is known up to a read rules out the other plans: 16 of them are not tried one after the other."""
    w = tg.zeros(1)

    def f(x):
        y = x + w
        return y[: int(x.sum())] * 1

    step = tg.record(f)
    for n in [k % 12 for k in range(24)] * 2:
        x = tg.zeros(12)
        x[0] = n
        assert same(step(x), f(x))
    assert len(step._replays.plans()) == 12
    before, tried = step._replays.count, []
    for n in (3, 7, 3, 11):
        x = tg.zeros(12)
        x[0] = n
        found = step._replays.run(((x,), {}))
        tried.append(found is not NotImplemented and found.shape[0] == n)
    assert all(tried) and step._replays.count == before + 4


def test_an_error_in_the_way_leaves_what_eager_leaves():
    def f(buffer, x, i):
        buffer.add_(1)
        y = buffer[i] * 1
        return y + 1 if x.sum() > 0 else y

    mine, theirs = tg.zeros(3), tg.zeros(3)
    step = tg.record(lambda x, i: f(mine, x, i))
    good, bad, x = tg.tensor([0, 1]), tg.tensor([0, 7]), tg.ones(2)
    for k in range(12):
        with pytest.raises(IndexError) if k == 9 else threading.Lock():
            step(x, bad if k == 9 else good)
        with pytest.raises(IndexError) if k == 9 else threading.Lock():
            f(theirs, x, bad if k == 9 else good)
        assert same(mine, theirs) and mine._version == theirs._version
    assert step._replays.count == 9


def test_interrupts():
    """Ctrl-C at any time leaves a state that eager calls go through, undone or not, and the next calls are right."""
    state, other = tg.zeros(100), tg.zeros(100)

    def f(x):
        state.add_(1)
        y = x @ x
        other.add_(1)
        y = (y @ x).sum()
        state.add_(1)
        return x * 2 if y > 0 else x * 3

    step = tg.record(f)
    for _ in range(6):
        step(tg.ones(400, 400))
    assert step._replays.count == 4

    def interrupt(*_):
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, interrupt)
    hit = 0
    try:
        for k in range(60):
            x = tg.ones(400, 400) * (1 if k % 3 else -1)
            before = state[0].item(), other[0].item()
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00005 + 0.0001 * k)
                step(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hit += 1
            assert state.amin() == state.amax() and other.amin() == other.amax()
            assert (state[0].item() - before[0], other[0].item() - before[1]) in ((0, 0), (1, 0), (1, 1), (2, 1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert 0 < hit < 60
    for sign in (1, -1, 1):
        x = tg.eye(3) * sign
        before = state[0].item()
        assert same(step(x), x * 2 if (x @ x @ x).sum() > 0 else x * 3) and state[0].item() == before + 2


def test_threads():
    def f(x):
        y = x * 2
        for _ in range(3):
            if y.sum() > 4:
                y = y - 1
        return y * int(y[0] > 0.5)

    step = tg.record(f)
    for k in range(40):
        step(tg.full((3,), 0.2 * (k % 8)))
    wrong = []

    def work(seed):
        for k in range(300):
            x = tg.full((3,), 0.2 * ((k * seed) % 8))
            if not same(step(x), f(x)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 3, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and step._replays.count > 100


def test_programs_are_still_refused():
    """A program of tapegrad.export has no guards."""
    for f in (lambda x: x * x.sum().item(), lambda x: x * 2 if x.sum() > 0 else x, lambda x: x * x.tolist()[0]):
        with pytest.raises(RuntimeError, match="reads a value"):
            tg.export.export(f, (tg.ones(2),))


# --- numbers that are results ---


def evaluated(recorded: bool, function_of, calls: int = 60):
    tg.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = tg.optim.Adam(model.parameters(), lr=0.05)
    function = function_of(model, optimizer)
    if recorded:
        function = tg.record(function, fullgraph=True)
    found = []
    for k in range(calls):
        x = tg.randn(6, 3) * (1 + 2 * (k % 2))
        found.append(function(x, tg.randint(0, 2, (6,))))
        if recorded:
            function._replays.scribble()
    return found, [p.detach().clone() for p in model.parameters()], function


def assert_same_results(function_of, replays: int, plans: int):
    mine, weights, step = evaluated(True, function_of)
    theirs, others, _ = evaluated(False, function_of)
    assert repr(mine) == repr(theirs)
    for a, b in zip(weights, others, strict=True):
        assert same(a, b)
    assert step._replays.count >= replays and len(step._replays.plans()) == plans, step.summary()


def test_losses_are_results():
    def of(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            value = loss.item()
            right = (out.argmax(1) == y).sum().item()
            return {"loss": value, "right": right, "of": 6, "all": (out.softmax(1)[0].tolist(), [value, right])}

        return step

    assert_same_results(of, 55, 1)


def test_losses_that_are_compared():
    def of(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            value = loss.item()
            if not math.isfinite(loss.item()) or math.isnan(value):
                return 0.0
            if value > 0.68:
                return -1.0, value
            if 0.25 >= value:
                return value, None
            loss.backward()
            optimizer.step()
            return value

        return step

    assert_same_results(of, 40, 2)


def test_float_and_no_grad():
    def of(model, optimizer):
        @tg.no_grad()
        def step(x, y):
            with tg.autograd.profiler.record_function("loss"):
                return float(nn.functional.cross_entropy(model(x), y)), x.shape[0]

        return step

    assert_same_results(of, 55, 1)


def test_small_integers_are_told_apart():
    """CPython has one object for each small integer: a constant of the same value is no read."""
    def f(x):
        return 3, x.sum().item(), 3

    check(tg.record(f, fullgraph=True), f, [(tg.tensor([k % 5, 1, -3]),) for k in range(30)], 25, 1)


def test_a_number_is_read_when_it_is_read():
    """Not when the step ends."""
    w, v = tg.zeros(1), tg.zeros(1)

    def f(w, x):
        before = w.item()
        w.add_(x)
        return before, w.item()

    step = tg.record(lambda x: f(w, x))
    recorded = tg.record(f)
    for k in range(20):
        x = tg.full((1,), float(k))
        expected = f(v, x)
        assert step(x) == expected
    w.zero_()
    v.zero_()
    for k in range(20):
        x = tg.full((1,), float(k))
        assert recorded(w, x) == f(v, x)
    assert recorded._replays.count == 17


GOOD = {
    "item": "return x.item()", "twice": "return x.item(), x.item()", "both": "l = x.item()\n if l > 3: return [l]\n return {'a': {'b': (l, 1)}}",
    "int": "return int(7), x.item()", "loop": "l = 9.0\n while l > 3: l = x.item() - 0 if False else 1.0\n return x.item()", "float": "return float(x), 2",
    "none": "x.item()\n return 1", "unpacked": "a, b = x.item(), 1\n return a", "try": "try: l = x.item()\n except ValueError: l = 3\n return l",
    "tests": "return 1 if x.item() else 2", "not": "return not x.item()", "finite": "return math.isfinite(x.item()), isinf(x.item())",
    "global": "l = x.item()\n if l > L: return 1\n return 2", "argument": "return limit < x.item()", "attribute of an argument": "return x.item() >= b.level.height",
    "branches": "l = x.item()\n if x.sum() > 0: return l\n return -1, l",
}
BAD = {
    "sum": "return x.item() + 1", "format": "return f'{x.item():.2f}'", "call": "return round(x.item(), 2)", "max": "return max(0.0, x.item())",
    "key": "return {x.item(): 1}", "attribute": "B.b = x.item()\n return 0", "closure": "l = x.item()\n return (lambda: l)()", "list": "a = []\n a.append(x.item())\n return a",
    "identity": "l = x.item()\n return l is None, l", "variable": "l, k = x.item(), 1.25\n if l > k: return 1\n return 2", "locals": "l = x.item()\n return dict(locals())['l']",
    "handler": "l = x.item()\n try: raise ValueError\n except ValueError: return l * 2", "mapped": "return max(map(tg.Tensor.item, [x, x * 2]))",
    "string": "return str(x.item())", "other": "return 2 * x.item() < 3", "and": "return x.item() and 5", "comprehension": "return [v for v in x.reshape(1).tolist()]",
    "index": "return x.reshape(1).tolist()[0] * 2", "compared list": "return x.reshape(1).tolist() == [0.0]", "set": "return {x.item()}", "unpack": "a, = x.reshape(1).tolist()\n return a + 1",
    "named": "return (l := x.item()) * 2 + l", "deleted": "l = x.item()\n del l\n return x.item() % 2", "chained": "return 0 < x.item() < 1", "default": "return (lambda a=x.item(): a)()",
    "assert": "l = x.item()\n assert l != L, l\n return l", "in": "return x.item() in (1.0, 2.0)", "stored": "limit = 2.0 * limit\n return limit < x.item()",
    "property": "return x.item() > P().level", "class": "return x.item() > B.c", "boolean": "return x.item() > True", "star": "return (*x.reshape(1).tolist(), 1)", "slice": "return x.reshape(1).tolist()[:1]",
}


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_uses_of_a_number(name, caplog):
    """Whatever a function does with a number, results are eager's; where it is followed, all calls are served by few plans."""
    class B:
        b, c = 0, 1.5

        def __init__(self):
            self.level = self

    class P:
        level = property(lambda self: 1.25)

    b = B()
    b.height = 3
    source = f"def f(x, limit=1.25, b=b):\n {GOOD.get(name) or BAD[name]}\n"
    space = {"math": math, "isinf": math.isinf, "tg": tg, "L": 1.25, "B": B, "b": b, "P": P}
    exec(compile(source, "<f>", "exec"), space)
    f = space["f"]
    step = tg.record(f)
    values = [0.5 * k for k in range(30)] + [math.inf, math.nan, -0.0]
    for _ in range(2):
        for value in values:
            x = tg.tensor(value)
            assert repr(step(x)) == repr(f(x)), (value, step.summary())
            step._replays.scribble()
    if name in GOOD:
        assert step._replays.count > 40 and len(step._replays.plans()) <= 5, step.summary()


def expressions(inner):
    def of(text):
        return st.tuples(inner, inner).map(lambda pair: text.format(*pair))

    return st.one_of(inner, *map(of, (
        "({} < 1.0)", "(L >= {})", "({}, {})", "[{}]", "{{'k': {}, 'l': {}}}", "({} + 1)", "max({}, 1)", "({} if {} else 2)", "({} and {})", "(not {})", "math.isfinite({})",
        "({})[0]", "'%s' % ({},)", "(lambda v: v)({})", "g({})", "(-{})", "({} == {})", "({} is None)", "(a := {})", "[v for v in ({}, 3)]", "dict(k={})", "(*({},), 1)",
        "({},)[:1]", "(0.5 < {} < 2.0)", "h({})")))


leaves = st.sampled_from(["x.item()", "x.item()", "float(x)", "a", "b", "1.25", "n.item()", "x.reshape(1).tolist()", "None", "limit", "g(x.item())", "h(x)"])
expression = expressions(expressions(leaves))


def statements(inner):
    body = st.lists(inner, min_size=1, max_size=2)

    def block(text):
        def written(parts):
            e, one, two = parts
            indent = [" " + line for s in one for line in s], [" " + line for s in two for line in s]
            return [line for t in text.format(e).split("\n") for line in (indent[int(t)] if t in ("0", "1") else [t])]

        return st.tuples(expression, body, body).map(written)

    return st.one_of(inner, *map(block, ("if {}:\n0\nelse:\n1", "try:\n0\nexcept (TypeError, ValueError):\n1", "for b in ({}, 2):\n0", "with tg.no_grad():\n0", "for _ in (1, 2):\n0\n if {} is None:\n  break")))


simple = st.one_of(st.sampled_from(["a = {}", "b = {}", "return {}", "{}", "a, b = {}, 1", "del a", "y = x * 2", "raise ValueError({})"]).flatmap(
    lambda t: expression.map(lambda e: [t.format(e)])))


@settings(max_examples=150, deadline=None)
@given(st.lists(statements(statements(simple)), min_size=1, max_size=4), st.booleans())
def test_functions(body, long):
    """Whatever functions do with numbers that they read, they return or raise what they do eagerly."""
    lines = [" " + line for s in body for line in s]
    if long:  # arguments of instructions of more than a byte
        lines = [" if x is None:"] + [f"  v{k} = {k}.5" for k in range(300)] + lines
    source = "def h(v):\n return float(v)\ndef f(x, n, limit=1.5):\n a = b = 0\n" + "\n".join(lines) + "\n return a, b\n"
    space = {"math": math, "tg": tg, "L": 1.0, "g": abs}
    try:
        exec(compile(source, "<f>", "exec"), space)
    except SyntaxError:  # an assignment in a comprehension
        assume(False)

    def outcome(function, x, n):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return repr(function(x, n))
        except (TypeError, ValueError, LookupError, UnboundLocalError, OverflowError) as error:
            return type(error), str(error)

    step = tg.record(space["f"])
    for k in range(14):
        x, n = tg.tensor((0.5, 1.0, 3.0, 0.0, math.nan, math.inf, -0.0)[k // 2]), tg.tensor(k % 3)
        assert outcome(step, x, n) == outcome(space["f"], x, n), source
        step._replays.scribble()


def test_what_a_test_of_a_number_names_may_change():
    space = {"math": math}
    exec("def f(x):\n return 1 if math.isfinite(x.item()) else 2", space)
    step = tg.record(space["f"])
    for _ in range(10):
        assert step(tg.tensor(math.inf)) == 2

    class Other:
        @staticmethod
        def isfinite(value):
            return value > 0

    space["math"] = Other
    for _ in range(10):
        assert step(tg.tensor(math.inf)) == 1 and step(tg.tensor(-1.0)) == 2


class Limited:
    def __init__(self):
        self.limit = 2.0

    def step(self, x):
        if x.sum().item() > self.limit:
            return x * 2
        return x * 3


def test_limits_that_change():
    """A number that is compared with is watched like everything that the function reads."""
    mine, theirs = Limited(), Limited()
    step = tg.record(mine.step)
    for k in range(60):
        if k % 20 == 10:
            mine.limit = theirs.limit = mine.limit + 1
        x = tg.full((2,), 0.37 * (k % 7))
        assert same(step(x), theirs.step(x))
    assert step._replays.count > 35

    LIMIT[0] = 1.0

    def f(x):
        return x * 2 if x.sum().item() > LIMIT[0] else x * 3  # not an attribute

    step = tg.record(f)
    for k in range(30):
        LIMIT[0] = 1.0 + k // 10
        x = tg.full((2,), 0.37 * (k % 7))
        assert same(step(x), f(x))


LIMIT = [1.0]


class Trainer:
    def loss(self, x):
        value = x.sum()
        return {"loss": value.item(), "all": x.tolist()}

    def step(self, x):
        result = self.loss(x)
        return result, number(x)


def number(x):
    return x[0].item()


def test_functions_that_the_step_calls():
    trainer = Trainer()
    step = tg.record(trainer.step, fullgraph=True)
    for k in range(40):
        x = tg.tensor([k * 0.5, 1.0])
        assert step(x) == trainer.step(x)
    assert step._replays.count == 36

    def inner(x):
        return x.item()

    def outer(x):
        return inner(x)

    def decorated(*args, **kwargs):
        with tg.no_grad():
            return outer(*args, **kwargs)

    def doubled(x):
        return inner(x) * 2

    def listed(x):
        return list(map(inner, [x, x + 1]))

    def largest(x):
        return max(map(inner, [x, 3 - x]))

    def lent(x, f=inner):
        return f(x)

    def wrapped(x):
        return functools.lru_cache(inner)(x)

    def exchanged(x):
        nonlocal inner
        return inner(x)

    for function in (outer, decorated, doubled, listed, largest, lent, wrapped, exchanged):
        step = tg.record(function)
        for k in range(60):
            assert step(tg.tensor(float(k % 9))) == function(tg.tensor(float(k % 9)))
        assert function not in (outer, decorated) or step._replays.count > 50


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        h = self.norm(x)
        h = self.a(h) if h[0].sum() > 0 else self.b(h) * 2
        while h.abs().sum() > 20:
            h = h * 0.5
        return h[: int((x[:, 0] > -1).sum())]


@pytest.mark.parametrize("memory", [None, 0.7])
def test_compiled_models_that_read(memory):
    """The forward pass alone is recorded; its backward pass is the second part of each way."""
    def train(compiled):
        tg.manual_seed(6)
        model = Routed()
        if compiled:
            tg.compile(model, options={"memory": memory} if memory else None)
        optimizer = tg.optim.SGD(model.parameters(), lr=0.02)
        found = []
        for _ in range(90):
            optimizer.zero_grad()
            loss = model(tg.randn(4, 3)).square().sum()
            loss.backward()
            optimizer.step()
            found += [loss.detach(), *(p.grad if p.grad is None else p.grad.clone() for p in model.parameters())]
            if compiled:
                model.forward._replays.scribble()
        return [*found, *(t.clone() for t in model.state_dict().values()), tg.rand(1)], model

    (mine, model), (theirs, _) = train(True), train(False)
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None) and (a is None or same(a, b))
    assert model.forward._replays.count > 20, model.forward.summary()
