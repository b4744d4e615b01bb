"""Recorded steps: training steps have eager's bits, and what Python does between two calls is seen or refused."""

import collections
import copy
import dataclasses

import pytest
import tapegrad as tg
from recorded import Layers, assert_same, batches, compare, mlp, plans, refused, replays, training, warm
from tapegrad import nn
from tapegrad.utils._pytree import register_pytree_node

F = nn.functional


OPTIMIZERS = {
    "sgd": lambda p: tg.optim.SGD(p, lr=0.1),
    "momentum": lambda p: tg.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: tg.optim.Adam(p, lr=0.01),
    "adamw": lambda p: tg.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: tg.optim.RMSprop(p, lr=0.01, centered=True),
    "adagrad": lambda p: tg.optim.Adagrad(p, lr=0.01),
}


@pytest.mark.parametrize("zero", ["optimizer", "module", "zeros", "after", "never"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_has_eager_s_bits(name, zero):
    def make():
        net = mlp()
        return net, OPTIMIZERS[name](net.parameters())

    compare(make, batches(), zero=zero)


def test_clipped_gradients():
    def make():
        net = mlp()
        return net, tg.optim.Adam(net.parameters())

    compare(make, batches(), clip=0.5)


def test_gradients_cleared_outside_of_the_step():
    net = mlp()
    other = copy.deepcopy(net)
    step = tg.record(lambda x, y: F.cross_entropy(net(x), y).backward())
    for i, (x, y) in enumerate(batches()):
        net.zero_grad()
        other.zero_grad()
        step(x, y)
        F.cross_entropy(other(x), y).backward()
        assert_same(net, other, f"step {i}")
    assert replays(step) > 5, step.summary()
    # Not cleared: the gradients are added, as they must be, without a replay or by one.
    before = replays(step)
    x, y = batches()[0]
    for _ in range(3):
        step(x, y)
        F.cross_entropy(other(x), y).backward()
        assert_same(net, other, "added up")
    assert replays(step) == before


def test_layers_with_state_and_random_numbers():
    def make():
        tg.manual_seed(0)
        net = Layers()
        return net, tg.optim.AdamW(net.parameters(), lr=0.01)

    compare(make, batches())


def test_other_sizes_are_recorded_once_more():
    net = mlp()
    other = copy.deepcopy(net)
    step = tg.record(training(net, tg.optim.SGD(net.parameters(), lr=0.1)))
    eager = training(other, tg.optim.SGD(other.parameters(), lr=0.1))
    for i in range(12):
        for size in (5, 2):
            ((x, y),) = batches(1, size, seed=i)
            assert tg.equal(step(x, y), eager(x, y))
            assert_same(net, other, f"step {i}, {size} rows")
    assert plans(step) == 2 and replays(step) >= 16


def test_the_learning_rate_may_change():
    def make():
        net = mlp()
        return net, tg.optim.Adam(net.parameters(), lr=0.01)

    (a, first), (b, second) = make(), make()
    eager, step = training(a, first), tg.record(training(b, second))
    for i, (x, y) in enumerate(batches()):
        for optimizer in (first, second):
            optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
        assert tg.equal(step(x, y), eager(x, y))
        assert_same(a, b, f"step {i}")
    assert replays(step) >= 8


def test_schedulers_between_steps():
    net = mlp()
    other = copy.deepcopy(net)
    first, second = (tg.optim.SGD(n.parameters(), lr=0.1) for n in (net, other))
    schedules = [tg.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (first, second)]
    step, eager = tg.record(training(net, first)), training(other, second)
    for i, (x, y) in enumerate(batches()):
        step(x, y), eager(x, y)
        for s in schedules:
            s.step()
        assert_same(net, other, f"step {i}")
    assert replays(step) >= 8


# --- what Python does between two calls ---

SCALE = 2.0
SETTINGS = {"scale": 1.0}
SHIFTS = [1.0, 2.0]


class Options:
    scale = 3.0

    def __init__(self):
        self.shift = 1.0

    @staticmethod
    def twice():
        return 2.0


class FewerOptions(Options):
    pass


OPTIONS, CLASSES, TWICE = Options(), [Options], vars(Options)["twice"]


@pytest.fixture
def restored():
    yield
    global SCALE, OPTIONS
    SCALE = 2.0
    SETTINGS.clear()
    SETTINGS["scale"] = 1.0
    SHIFTS[:] = [1.0, 2.0]
    Options.scale, Options.twice = 3.0, TWICE
    OPTIONS = Options()


def set_global(name, value):
    globals()[name] = value


CHANGES = {
    "a global": (lambda x: x * SCALE, lambda: set_global("SCALE", 5.0)),
    "a value of a dictionary": (lambda x: x * SETTINGS["scale"], lambda: SETTINGS.update(scale=5.0)),
    "an item of a list": (lambda x: x + SHIFTS[1], lambda: SHIFTS.__setitem__(1, 7.0)),
    "a longer list": (lambda x: x + sum(SHIFTS), lambda: SHIFTS.append(7.0)),
    "an attribute": (lambda x: x + OPTIONS.shift, lambda: setattr(OPTIONS, "shift", 9.0)),
    "an attribute by name": (lambda x: x + getattr(OPTIONS, "shift"), lambda: setattr(OPTIONS, "shift", 9.0)),  # noqa: B009
    "the instance's dictionary": (lambda x: x + OPTIONS.shift, lambda: OPTIONS.__dict__.update(shift=9.0)),
    "a class attribute": (lambda x: x * OPTIONS.scale, lambda: setattr(Options, "scale", 4.0)),
    "an attribute of a class": (lambda x: x * Options.scale, lambda: setattr(Options, "scale", 4.0)),
    "an attribute of a class in a list": (lambda x: x * CLASSES[0].scale, lambda: setattr(Options, "scale", 4.0)),
    "a base's attribute": (lambda x: x * FewerOptions.scale, lambda: setattr(Options, "scale", 4.0)),
    "a static method": (lambda x: x * Options.twice(), lambda: setattr(Options, "twice", staticmethod(lambda: 5.0))),
    "another object": (lambda x: x + OPTIONS.shift, lambda: set_global("OPTIONS", type("O", (), {"shift": 3.0})())),
}


@pytest.mark.parametrize("change", CHANGES)
def test_state_that_changes_between_calls(change, restored):
    function, alter = CHANGES[change]
    step, x = tg.record(function), tg.arange(3.0)
    warm(step, x)
    alter()
    for _ in range(4):
        assert tg.equal(step(x), function(x)), change


def test_variables_of_enclosing_functions():
    scale = 2.0

    @tg.record
    def step(x):
        return x * scale

    x = tg.arange(3.0)
    warm(step, x)
    scale = 4.0
    assert step(x).tolist() == [0.0, 4.0, 8.0]


def test_what_modules_hold():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    net.eval()
    step = tg.record(lambda x: net(x).detach())
    x = tg.randn(4, 3)

    def same(what):
        for i in range(4):
            state = copy.deepcopy(net.state_dict())
            tg.manual_seed(i)
            expected = net(x).detach()
            net.load_state_dict(state)
            tg.manual_seed(i)
            assert tg.equal(step(x), expected), what

    with tg.no_grad():
        warm(step, x)
        net.train()
        same("train()")
        net.eval()
        same("eval()")
        net[0].weight = nn.Parameter(tg.randn(3, 3))
        same("another parameter")
        net[0].weight.data = tg.randn(3, 3)
        same("other memory of a parameter")
        net[1] = nn.Linear(3, 3)
        same("another module")
        net[0].register_forward_hook(lambda m, a, out: out * 2)
        same("a hook")
        net[2].running_mean = tg.ones(3)
        same("another buffer")
        net[0].weight.mul_(3)
        same("other values of a parameter")
        net[0].forward = lambda x: x + 1
        same("another forward")
    assert replays(step) > 0


def test_frozen_parameters():
    net = mlp()
    step = tg.record(lambda x, y: F.cross_entropy(net(x), y).backward())
    other = copy.deepcopy(net)
    data = batches()
    for x, y in data[:6]:
        for n in (net, other):
            n.zero_grad()
        step(x, y)
        F.cross_entropy(other(x), y).backward()
    assert replays(step) > 0
    for wanted in (False, True):
        for n in (net, other):
            n[0].weight.requires_grad_(wanted)
        for i, (x, y) in enumerate(data[6:]):
            for n in (net, other):
                n.zero_grad()
            step(x, y)
            F.cross_entropy(other(x), y).backward()
            assert_same(net, other, f"requires_grad {wanted}, {i}")


def test_reads_in_the_middle(caplog):
    for read in (lambda x: x * x.numpy().sum(), lambda x: x[x > 0] * 2, lambda x: x.nonzero() + 1, lambda x: x.unique() + 0):
        refused(read, tg.ones(2), caplog=caplog, why="reads a value")


def test_a_read_names_its_line(caplog):
    step = tg.record(lambda x: x + len(x.nonzero()))
    for _ in range(3):
        step(tg.ones(2))
    assert "test_steps.py:" in step.summary()


def test_effects_are_refused(caplog, tmp_path):
    import random
    import time

    seen, counts = [], {"calls": 0}

    def counting(x):
        counts["calls"] += 1
        return x + 1

    for f, why in ((lambda x: (print(end=""), x + 1)[1], "calls print"), (lambda x: x + time.time(), "time"), (lambda x: x + random.random(), "random"),
                   (lambda x: (seen.append(1), x + 1)[1], "changes"), (counting, "changes"), (lambda x: (open(str(tmp_path / "f"), "w").close(), x + 1)[1], "calls")):
        refused(f, tg.ones(2), caplog=caplog, why=why)
    assert counts["calls"] == 6 and len(seen) == 6


def test_attributes_that_the_step_sets(caplog):
    class Net(nn.Module):
        def forward(self, x):
            self.last = x * 2
            return self.last + 1

    net = Net()
    results = refused(lambda x: net(x), tg.ones(2), caplog=caplog, why="")
    assert results[-1].tolist() == [3.0, 3.0] and net.last.tolist() == [2.0, 2.0]


def test_tensors_that_are_kept_elsewhere(caplog):
    kept = []
    step = tg.record(lambda x: (kept.append(x * 2), x + 1)[1], pure=True)
    for i in range(6):
        step(tg.full((2,), float(i)))
    assert [k[0].item() for k in kept] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0] and replays(step) == 0


def test_numbers_that_differ_in_each_call(caplog):
    following = iter(range(100)).__next__  # which nothing can watch
    step = tg.record(lambda x: x + following())
    assert [step(tg.zeros(1)).item() for _ in range(6)] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert replays(step) == 0 and "a number was" in step.summary()


def test_audits_find_what_the_watch_does_not():
    """The value lies where nothing watches: behind a C function."""
    import operator

    hidden = operator.attrgetter("scale")
    step = tg.record(lambda x: x * hidden(OPTIONS), pure=True)
    x = tg.ones(2)
    for _ in range(40):
        step(x)
    assert replays(step) > 30
    Options.scale = 8.0
    try:
        for _ in range(40):
            got = step(x)
        assert got.tolist() == [8.0, 8.0]
    finally:
        Options.scale = 3.0


# --- results and arguments ---


def test_results_are_fresh():
    step = tg.record(lambda x: (x + 1, {"a": [x * 2], "b": 3, "c": None}))
    x = tg.zeros(2)
    results = [step(x + i) for i in range(6)]
    assert replays(step) == 4
    for i, (a, rest) in enumerate(results):
        assert a.tolist() == [i + 1.0] * 2 and rest["a"][0].tolist() == [2.0 * i] * 2 and rest["b"] == 3 and rest["c"] is None
    addresses = {a.data_ptr() for a, _ in results}
    assert len(addresses) == 6


def test_one_buffer_returned_twice_and_views_of_it():
    def f(x):
        y = x * 2
        return y, y.view(2, 2), y[1:3], y

    step = tg.record(f)
    for i in range(5):
        a, b, c, d = step(tg.arange(4.0) + i)
        a[1] = -1
        assert b[0, 1] == -1 and c[0] == -1 and d[1] == -1
    assert replays(step) == 3


def test_arguments_given_back_and_views_of_them():
    def f(x, y):
        y.add_(1)
        return x, y, x[1:], y.view(-1)

    step = tg.record(f)
    for i in range(6):
        base = tg.arange(12.0)
        x, y = base[i:i + 3], tg.full((2, 2), float(i))
        version = y._version
        a, b, c, d = step(x, y)
        assert a is x and b is y and y[0, 0] == i + 1 and y._version == version + 1
        assert c.tolist() == base[i + 1:i + 3].tolist() and c.data_ptr() == x[1:].data_ptr() and d.data_ptr() == y.data_ptr()
    assert replays(step) >= 3


def test_arguments_at_other_addresses_and_offsets():
    step = tg.record(lambda x, y: (x @ y).relu().sum(0))
    tg.manual_seed(0)
    big = tg.randn(40, 8)
    for i in range(10):
        x, y = big[i:i + 4], tg.randn(8, 3)
        assert tg.equal(step(x, y), (x @ y).relu().sum(0)), i
    assert replays(step) == 8


def test_arguments_that_share_memory():
    def f(x, y):
        x.mul_(2)
        return y + 1

    step = tg.record(f)
    for _ in range(4):
        step(tg.ones(3), tg.ones(3))
    assert replays(step) == 2
    x = tg.ones(3)
    for expected in (3.0, 5.0, 9.0):
        assert step(x, x).tolist() == [expected] * 3
    base = tg.ones(4)
    assert step(base[:3], base[1:]).tolist() == [3.0, 3.0, 2.0]


def test_an_argument_that_the_function_holds_too():
    w = tg.ones(3)
    step = tg.record(lambda x: (w + x).sum())
    for _ in range(4):
        assert step(w).item() == 6.0
    assert step(tg.zeros(3)).item() == 3.0
    for _ in range(4):
        assert step(tg.zeros(3)).item() == 3.0
    assert step(w).item() == 6.0


@pytest.mark.parametrize("args", [(1, 2), (1.0, -0.0), (True, 1), ("a", "b"), (None, 0), ((1, 2), [1, 2]), ({"a": 1}, {"a": 2}), (float("nan"), 1.0)])
def test_values_of_arguments_choose_the_plan(args):
    @tg.record
    def f(x, option):
        return x + (hash(repr(option)) % 1000)

    x = tg.zeros(2)
    for _ in range(4):
        for option in args:
            assert f(x, option)[0].item() == hash(repr(option)) % 1000


def test_dtypes_strides_and_modes_choose_the_plan():
    step = tg.record(lambda x: (x * 2).sum(0))
    variants = [tg.arange(6.0).view(2, 3), tg.arange(6.0).view(3, 2).t(), tg.arange(6.0, dtype=tg.float64).view(2, 3), tg.arange(6).view(2, 3),
                tg.arange(6.0).view(2, 3)[:, :2], tg.zeros(0, 3), tg.zeros(3, 0)]
    for _ in range(4):
        for x in variants:
            for mode in (tg.no_grad, tg.enable_grad):
                with mode():
                    got, expected = step(x), (x * 2).sum(0)
                    assert got.dtype == expected.dtype and tg.equal(got, expected)
    before = tg.get_default_dtype()
    other = tg.record(lambda x: x + tg.ones(2) / 3)
    x = tg.zeros(2, dtype=tg.float64)
    warm(other, x)
    try:
        tg.set_default_dtype(tg.float64)
        assert other(x).dtype == tg.float64 and other(x)[0].item() == 1 / 3
    finally:
        tg.set_default_dtype(before)
    with tg.inference_mode():
        assert other(x).is_inference()
    with tg.autocast("cpu", dtype=tg.bfloat16):
        assert tg.record(lambda a: a @ a)(tg.ones(2, 2)).dtype == tg.bfloat16


def test_named_tuples_and_keywords():
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")
    step = tg.record(lambda p, *, scale: Pair(p.b * scale, p.a))
    for i in range(5):
        p = Pair(tg.zeros(1), tg.ones(1) * i)
        got = step(p, scale=2.0)
        assert type(got) is Pair and got.a.item() == 2.0 * i and got.b is p.a
    assert replays(step) == 3


def test_a_result_s_graph_is_used_up():
    net = mlp()
    step = tg.record(training(net, tg.optim.SGD(net.parameters(), lr=0.1)))
    for x, y in batches(5):
        loss = step(x, y)
    assert replays(step) > 0 and loss.requires_grad and loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("call", ["step", "zero_grad"])
def test_gradients_that_the_optimizer_of_the_step_does_not_clear(call):
    """Whether they are there is compared, whatever an optimizer did before."""
    def made():
        weight, other = tg.full((3,), 0.7, requires_grad=True), tg.ones(3, requires_grad=True)
        return weight, tg.optim.SGD([other], lr=0.1)

    def f(weight, optimizer, x):
        getattr(optimizer, call)()
        (weight * x).sum().backward()
        return x * 1

    (mine, optimizer), (theirs, twin) = made(), made()
    step = tg.record(lambda x: f(mine, optimizer, x))
    for k in range(14):
        if k in (0, 8):
            mine.grad = theirs.grad = None
        step(tg.ones(3) * k)
        f(theirs, twin, tg.ones(3) * k)
        assert mine.grad.equal(theirs.grad)
    assert replays(step) > 0


def test_results_that_no_kernel_writes():
    step = tg.record(lambda x: tg.tensor([1.0, 2.0]))
    got = [step(tg.randn(n, 6)) for n in (4, 4, 4, 4, 3)]
    assert [t.tolist() for t in got] == [[1.0, 2.0]] * 5
    got[3].zero_()
    assert step(tg.randn(4, 6)).tolist() == [1.0, 2.0]


def _kept(how, grad):
    """What keeps a gradient or its memory beyond the next call: a function that gives what it has then."""
    kept = {"itself": lambda: grad, "a view": lambda: grad[0], "detached": grad.detach, "numpy": grad.numpy, "its storage": grad.untyped_storage}[how]()
    return lambda: tg.tensor(list(kept)) if how == "its storage" else tg.as_tensor(kept).clone()


@pytest.mark.parametrize("how", ["itself", "a view", "detached", "numpy", "its storage"])
def test_gradients_that_somebody_keeps(how):
    """Small ones are made where the last ones lay, if nobody has those."""
    net = mlp()
    step = tg.record(training(net, tg.optim.SGD(net.parameters(), lr=0.1)))
    data, kept = batches(12), []
    for i, (x, y) in enumerate(data):
        step(x, y)
        if i % 3 != 0:
            look = _kept(how, net[0].weight.grad)
            kept.append((look, look()))
    assert replays(step) > 6, step.summary()
    for look, was in kept:
        assert tg.equal(look(), was)


def test_gradients_that_were_changed_before_they_were_dropped():
    """Their form, version and tape are those of new ones afterwards."""
    net, other = mlp(), mlp()
    step = tg.record(training(net, tg.optim.SGD(net.parameters(), lr=0.1)))
    eager = training(other, tg.optim.SGD(other.parameters(), lr=0.1))
    changes = [lambda g: g.mul_(2), lambda g: g.t_(), lambda g: g.requires_grad_(), lambda g: g.resize_(2, 2), lambda g: setattr(g, "data", tg.ones(1)),
               lambda g: setattr(g, "tag", 1), lambda g: g.squeeze_(), lambda g: g.untyped_storage().resize_(0)]
    for i, (x, y) in enumerate(batches(4 + 2 * len(changes))):
        assert tg.equal(step(x, y), eager(x, y)), i
        assert_same(net, other, i)
        for p, q in zip(net.parameters(), other.parameters(), strict=True):
            g, h = p.grad, q.grad
            assert (g._version, g.requires_grad, g.stride(), g.is_leaf, hasattr(g, "tag")) == (h._version, h.requires_grad, h.stride(), h.is_leaf, False), i
        if i >= 4 and i % 2 == 0:
            for n in (net, other):
                changes[(i - 4) // 2](n[0].weight.grad)
    assert replays(step) > 8, step.summary()


class Box:
    def __init__(self, value, **others):
        self.value = value
        self.__dict__.update(others)


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: tg.Tensor
    number: int = 3

    def __post_init__(self):
        object.__setattr__(self, "more", 7)


class Registered(dict):
    """A result as libraries have them."""


register_pytree_node(Registered, lambda x: (list(x.values()), list(x)), lambda values, keys: Registered(zip(keys, values, strict=True)))
OPTIONS, THERE = Box(3), Box(tg.ones(4))


def nested(x):
    t = x * 2
    inner = Box(t, options=OPTIONS, there=THERE)
    return Box(inner, again=inner, list=[t, t], tensor=t)


RESULTS = {
    "object": (lambda x: Box(x * 2, n=1), lambda r, two: tg.equal(r.value, two) and r.n == 1),
    "frozen dataclass": (lambda x: Frozen(x * 2), lambda r, two: tg.equal(r.value, two) and (type(r), r.number, r.more) == (Frozen, 3, 7)),
    "registered": (lambda x: Registered(a=x * 2, b=None), lambda r, two: tg.equal(r["a"], two) and type(r) is Registered and list(r) == ["a", "b"]),
    "ordered": (lambda x: collections.OrderedDict(b=x * 2, a=1), lambda r, two: tg.equal(r["b"], two) and list(r) == ["b", "a"] and type(r) is collections.OrderedDict),
    "deque": (lambda x: collections.deque([x * 2], maxlen=3), lambda r, two: tg.equal(r[0], two) and r.maxlen == 3),
    "nested": (nested, lambda r, two: tg.equal(r.value.value, two) and r.again is r.value and r.list[0] is r.list[1] is r.tensor is r.value.value
               and r.value.options is OPTIONS and r.value.there is THERE),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_objects_in_results_are_made_anew(kind):
    make, right = RESULTS[kind]
    step = tg.record(make)
    results = [step(tg.full((4,), float(i))) for i in range(6)]
    assert all(right(r, tg.full((4,), 2.0 * i)) for i, r in enumerate(results)) and len({id(r) for r in results}) == 6
    assert replays(step) > 2, step.summary()


def test_objects_in_results_of_forward_passes():
    """As models of transformers give them: a loss, and a cache of layers with tensors."""
    tg.manual_seed(0)
    net = mlp()

    def forward(x, y):
        logits = net(x)
        return Registered(loss=F.cross_entropy(logits, y), cache=Box([Box(logits, keys=x * 2)], logits=logits))

    step, found = tg.record(forward), {}
    for x, y in batches():
        for name, function in (("eager", forward), ("recorded", step)):
            net.zero_grad()
            result = function(x, y)
            result["loss"].backward()
            found[name] = [result["loss"].detach(), result["cache"].value[0].keys, *(p.grad for p in net.parameters())]
            assert result["cache"].logits is result["cache"].value[0].value
        assert all(map(tg.equal, found["eager"], found["recorded"]))
    assert replays(step) > 2, step.summary()


class Wrong(Box):
    pass


class Worse(Box):
    pass


register_pytree_node(Wrong, lambda x: ([x.value], None), lambda values, _: 1 / 0)
register_pytree_node(Worse, lambda x: [].pop(), lambda values, _: Worse(*values))
class Told(Box):
    pass


class Fresh(Box):
    pass


register_pytree_node(Told, lambda x: ([x.value], x.value + 0), lambda values, _: Told(*values))
register_pytree_node(Fresh, lambda x: ([x.value * 1, [x.value + 1], {"k": x.value + 2}], None), lambda values, _: Fresh(values[0]))
KEPT = Box(None)
KEEPING = {
    "global": lambda x: (setattr(KEPT, "value", x * 2), KEPT)[1],
    "in a list": lambda x: (LIST.append(Box(x * 2)), LIST[-1])[1],
    "in another": lambda x: (setattr(KEPT, "last", Box(x * 2)), KEPT.last)[1],
    "a class that cannot be made anew": lambda x: Wrong(x * 2),
    "a class that cannot be taken apart": lambda x: Worse(x * 2),
    "with itself": lambda x: (box := Box(x * 2), setattr(box, "me", box))[0],
    "in one that it holds": lambda x: (box := Box(x * 2), setattr(box, "other", Box(x, me=box)))[0],
    "in its list": lambda x: (box := Box(x * 2), setattr(box, "list", [box]))[0],
    "with tensors in what it is taken apart to": lambda x: Told(x * 2),
    "taken apart to new tensors": lambda x: Fresh(x * 2, others=[Fresh(x), [x + 1]]),
}
LIST: list = []


@pytest.mark.parametrize("how", KEEPING)
def test_objects_that_are_kept_are_not_made_anew(how):
    LIST.clear()
    step = tg.record(KEEPING[how])
    for i in range(6):
        result = step(tg.full((4,), float(i)))
        assert result.value[0].item() == 2 * i
        assert result is {"global": KEPT, "in a list": LIST and LIST[-1], "in another": getattr(KEPT, "last", None)}.get(how, result)
        assert how != "with itself" or result.me is result
    assert replays(step) == 0 and (how != "in a list" or len(LIST) == 6)


@pytest.mark.parametrize("make", [lambda x: (made := [x * 2], made.append(made))[0], lambda x: (made := {0: x * 2}, made.update(me=(made,)))[0]], ids=["list", "dict"])
def test_containers_that_hold_themselves(make):
    step = tg.record(make)
    for i in range(6):
        result = step(tg.full((4,), float(i)))
        assert result[0][0].item() == 2 * i and (result[1] if isinstance(result, list) else result["me"][0]) is result
    assert replays(step) == 0
