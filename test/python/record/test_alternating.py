"""Values that a step reads and that are now this and now that: a plan for each, kept while others are used."""

import gc
import weakref

import pytest
import tapegrad as tg
from recorded import assert_same, batches, plans, replays
from tapegrad import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        tg.manual_seed(0)
        self.first, self.norm, self.drop, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).relu()))


def both(x, y, net, optimizer):
    """What a step does in training and in evaluation."""
    loss = nn.functional.cross_entropy(net(x), y)
    if net.training:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def build():
    net = Net()
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, lambda x, y: both(x, y, net, optimizer)


def run_alternating(modes, data):
    (a, eager), (b, f) = build(), build()
    step = tg.record(f)
    for i, (x, y) in enumerate(data):
        mode = modes(i)
        a.train(mode), b.train(mode)
        tg.manual_seed(i)
        expected = eager(x, y)
        tg.manual_seed(i)
        step._replays.scribble()
        assert tg.equal(step(x, y), expected), f"call {i}: {step.summary()}"
        assert_same(a, b, f"call {i}")
    return step


@pytest.mark.parametrize("modes", [lambda i: i % 2 == 0, lambda i: i % 3 != 2, lambda i: i // 5 % 2 == 0, lambda i: i % 7 in (1, 2, 5)])
def test_training_and_evaluation_in_turn(modes):
    step = run_alternating(modes, batches(40))
    assert plans(step) == 2 and replays(step) >= 28, step.summary()
    assert not step._reasons


def test_sizes_of_both():
    step = run_alternating(lambda i: i % 2 == 0, [batches(1, size=(5, 5, 5, 5, 7, 7, 9, 9, 7, 5)[i % 10], seed=i)[0] for i in range(40)])
    assert step._replays.made >= 2 and replays(step) >= 28, step.summary()


def test_compiled_module_in_turn():
    plain, compiled = Net(), tg.compile(Net())
    for i, (x, _) in enumerate(batches(30)):
        train = i % 2 == 0
        outs = []
        for net in (plain, compiled):
            net.train(train)
            tg.manual_seed(i)
            with tg.set_grad_enabled(train):
                out = net(x)
            if train:
                net.zero_grad()
                out.square().sum().backward()
            outs.append(out.detach())
        assert tg.equal(*outs), i
        assert_same(plain, compiled, i)
    assert replays(compiled.forward) >= 20, compiled.forward.summary()


def test_evaluation_with_gradients_between_the_passes_of_training():
    """The plan of the forward pass is in use, and keeps its memory."""
    plain, compiled = Net(), tg.compile(Net())
    for i, (x, _) in enumerate(batches(30)):
        outs = []
        for net in (plain, compiled):
            net.train()
            net.zero_grad()
            tg.manual_seed(i)
            out = net(x)
            net.eval()
            other = net(x)
            out.square().sum().backward()
            other.sum().backward()
            outs += [out.detach(), other.detach()]
        assert tg.equal(outs[0], outs[2]) and tg.equal(outs[1], outs[3]), i
        assert_same(plain, compiled, i)


FLAGS = {"way": "a"}


def test_globals_variables_and_lists():
    scale, some = 2.0, [1, 2]

    def f(x):
        return (x * scale if FLAGS["way"] == "a" else x + scale) * some[0]

    step = tg.record(f)
    x = tg.arange(4.0)
    for i in range(24):
        FLAGS["way"], scale, some[0] = ("a", 2.0, 1) if i % 2 else ("b", 3.0, 5)
        assert tg.equal(step(x), f(x)), step.summary()
    assert plans(step) == 2 and replays(step) >= 16, step.summary()
    FLAGS["way"] = "a"


def test_three_values_and_always_another_one(caplog):
    class Config:
        k = 0

    config = Config()
    config.k = 0

    def f(x):
        return x * config.k + 1

    step, x = tg.record(f), tg.arange(4.0)
    for i in range(30):
        config.k = i % 3
        assert tg.equal(step(x), f(x)), step.summary()
    assert plans(step) == 3 and replays(step) >= 20, step.summary()
    step = tg.record(f)
    for i in range(60):  # two calls with each: a plan that is never used again
        config.k = 100 + i // 2
        assert tg.equal(step(x), f(x)), step.summary()
        assert plans(step) <= 4
    assert "again and again" in caplog.text and "k has changed" in caplog.text


def test_memory_of_a_plan_that_waits_is_free():
    class Config:
        wide = True

    config = Config()
    config.wide = True

    def f(x):
        for _ in range(3):
            x = (tg.cat([x, x]) if config.wide else x * 2).cumsum(0)
        return x.sum()

    step, x = tg.record(f), tg.rand(200_000)
    for wide in (True, False):
        config.wide = wide
        for _ in range(4):
            step(x)
    both = [n for _, n, _ in step._replays.plans()]
    assert len(both) == 2 and min(both) > 700_000
    gc.collect()
    before = tg.cpu.memory_allocated()
    config.wide = True
    step(x)  # the other one has its memory now
    assert abs(tg.cpu.memory_allocated() - before - (both[1] - both[0])) < 20_000
    for i in range(8):
        config.wide = i % 2 == 0
        step._replays.scribble()
        assert tg.equal(step(x), f(x))
    assert replays(step) == 2 + 2 + 1 + 8, step.summary()


def evaluated():
    """A module, its replayed step and an argument."""
    net = Net().eval()
    step, x = tg.record(lambda x: net(x)), tg.rand(5, 6)
    with tg.no_grad():
        for _ in range(4):
            step(x)
    return net, step, x


def test_objects_that_are_replaced_are_let_go():
    """Only plain values may come back: a plan keeps no weights that the program has dropped."""
    net, step, x = evaluated()
    with tg.no_grad():
        old = weakref.ref(net.first.weight)
        net.first.weight = nn.Parameter(tg.rand(8, 6))
        net.eval()
        assert tg.equal(step(x), net(x)) and plans(step) == 0
        gc.collect()
        assert old() is None


def test_both_change_at_once():
    """A value and an object: the plan goes."""
    net, step, x = evaluated()
    with tg.no_grad():
        net.train()
        net.norm = nn.BatchNorm1d(8)
        step(x)
        assert plans(step) == 0


def test_a_step_that_changes_the_value_itself_is_refused():
    class State:
        def __init__(self):
            self.n, self.flag = 0, False

    state = State()

    def counts(x):
        state.n += 1
        return x * state.n

    def flips(x):
        state.flag = not state.flag
        return x + 1 if state.flag else x * 3

    def sets(x):
        was, state.flag = state.flag, True
        return x * 2 if was else x * 5

    x = tg.arange(3.0)
    step = tg.record(counts)
    for i in range(12):
        assert tg.equal(step(x), x * (i + 1)), step.summary()
    assert replays(step) == 0
    state.flag = False
    step = tg.record(flips)
    for i in range(16):
        assert tg.equal(step(x), x + 1 if i % 2 == 0 else x * 3), step.summary()
    assert replays(step) == 0
    step = tg.record(sets)
    for i in range(24):
        state.flag = i % 3 == 0
        assert tg.equal(step(x), x * 2 if i % 3 == 0 else x * 5), step.summary()


SCHEDULES = {
    "lambda": lambda o: tg.optim.lr_scheduler.LambdaLR(o, lambda i: 1 / (i + 1)),
    "step": lambda o: tg.optim.lr_scheduler.StepLR(o, 3, 0.5),
    "cosine": lambda o: tg.optim.lr_scheduler.CosineAnnealingLR(o, 20),
    "own": lambda o: type("Own", (tg.optim.lr_scheduler.LRScheduler,), {"get_lr": lambda self: [0.1 / (1 + self.last_epoch)]})(o),
    "chained": lambda o: tg.optim.lr_scheduler.SequentialLR(o, [tg.optim.lr_scheduler.ConstantLR(o, 0.5, 2), tg.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_of_the_learning_rate_inside(schedule):
    """As in PyTorch's tutorial of the compiled optimizer: a replay would repeat one rate for ever."""
    def run(compiled):
        tg.manual_seed(0)
        net = nn.Linear(4, 2)
        optimizer = tg.optim.Adam(net.parameters(), lr=0.1)
        schedule_of = SCHEDULES[schedule](optimizer)

        def f():
            optimizer.step()
            schedule_of.step()

        f, found = tg.compile(f) if compiled else f, []
        for i in range(12):
            tg.manual_seed(i)
            optimizer.zero_grad()
            loss = net(tg.randn(8, 4)).square().sum()
            loss.backward()
            f()
            found.append((loss.item(), optimizer.param_groups[0]["lr"], schedule_of.last_epoch))
        return found

    assert run(True) == run(False)


def test_a_schedule_between_the_calls_keeps_the_plan():
    net = nn.Linear(4, 2)
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    @tg.record
    def f(x):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    for _ in range(8):
        f(tg.ones(1, 4))
        schedule.step()
    assert replays(f) == 6, f.summary()


def test_audits_compare_with_the_plan_of_these_values():
    """What the watch cannot see changes for one of two plans: the audit of that one finds it, and the other stays."""
    class Config:
        training, hidden = True, 2.0

    config = Config()
    config.training, config.hidden = True, 2.0
    name = ["hid", "den"]

    def f(x):
        return x * 3 if config.training else x * getattr(config, "".join(name))

    step, x = tg.record(f), tg.arange(4.0)
    for i in range(12):
        config.training = i % 2 == 0
        assert tg.equal(step(x), f(x))
    assert plans(step) == 2
    config.hidden = 5.0
    wrong = 0
    for i in range(60):
        config.training = i % 2 == 0
        got, expected = step(x), f(x)
        assert not config.training or tg.equal(got, expected)
        wrong += not tg.equal(got, expected)
    assert 0 < wrong < 16, step.summary()  # up to its next audit
    assert max(n for _, _, n in step._replays.plans()) >= 28, step.summary()  # the other one was not dropped
    config.training = False
    assert tg.equal(step(x), f(x))
