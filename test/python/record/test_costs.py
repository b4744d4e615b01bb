"""What recording costs beside the step itself, as counts of work: times are measured by the benchmark "recorded calls" (benchmarks/recorded.py)."""

import sys

import pytest
import tapegrad as tg
from recorded import batches, replays, training
from tapegrad import nn
from tapegrad.record import _flow, _reads, _step, _watch


def deep(layers):
    tg.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *(nn.Linear(8, 8) for _ in range(layers)), nn.Linear(8, 3))


@pytest.fixture
def python_calls(monkeypatch):
    """How many functions of Python ran in each watch, and how often it was asked about a native function."""
    counts, asked = [], []

    def counted(*args):
        n = 0

        def see(frame, event, arg):
            nonlocal n
            n += event == "call"

        sys.setprofile(see)
        try:
            return watch(*args)
        finally:
            sys.setprofile(None)
            counts.append(n)

    watch, effect_of = _step.watch, _watch._effect_of
    monkeypatch.setattr(_step, "watch", counted)
    monkeypatch.setattr(_watch, "_effect_of", lambda *args: (asked.append(args[1]), effect_of(*args))[1])
    return counts, asked


def run(net, n=4):
    step = tg.record(training(net, tg.optim.Adam(net.parameters())))
    for x, y in batches(n):
        step(x, y)
    return step


def test_layers_are_watched_without_python(python_calls):
    counts, asked = python_calls
    tg.optim.optimizer.register_optimizer_step_pre_hook(print).remove()  # from then on steps look for hooks
    run(deep(1))
    few, few_asked = max(counts), len(asked)
    counts.clear()
    asked.clear()
    run(deep(40))
    assert max(counts) == few < 60
    assert len(asked) == few_asked < 10


def test_audits_do_not_look_for_what_is_read(python_calls):
    counts, _ = python_calls
    step = run(deep(1), 70)
    recordings = len(counts)
    assert replays(step) > 60 and recordings <= 4
    for x, y in batches(70):
        step(x, y)
    assert len(counts) == recordings


def test_the_second_recording_does_not_look_again(python_calls):
    """Where the same code has run and nothing has changed it would find the same; other code is looked at."""
    net = deep(3)
    step = training(net, tg.optim.Adam(net.parameters()))
    x, y = batches(1)[0]
    step(x, y)  # makes the optimizer's state
    recorded = tg.record(step)
    for _ in range(4):
        recorded(x, y)
    assert replays(recorded) == 2 and len(python_calls[0]) == 1

    class Hidden:
        """What nobody sees: an attribute whose name no code spells."""

    hidden, name = Hidden(), "".join(("tu", "rns"))
    setattr(hidden, name, [False, True])

    def by_turns(x):
        return x * 2 if getattr(hidden, name).pop() else other(x)

    def other(x):
        return x * 2

    recorded = tg.record(by_turns, pure=True)
    for _ in range(4):
        assert recorded(x).equal(x * 2)
    assert len(python_calls[0]) == 3


def by_sizes(x):
    rows, columns = x.shape
    if rows == 1:
        return x
    y = x.view(columns, rows)
    return y.reshape(rows * columns) + tg.zeros(rows * columns)


def test_sizes_are_followed_where_a_plan_is_made(monkeypatch):
    """In the second of two recordings and in no audit; what a function does with them is looked for once."""
    asked, analysed = [], []
    uses, analyse = _reads.size_uses, _flow._size_uses
    monkeypatch.setattr(_reads, "size_uses", lambda *args: (asked.append(1), uses(*args))[1])
    monkeypatch.setattr(_flow, "_size_uses", lambda *args: (analysed.append(1), analyse(*args))[1])
    step = tg.record(by_sizes)
    for turn in range(3):
        step.reset()
        asked.clear()
        for _ in range(40):
            step(tg.ones(4, 6))
        assert replays(step) == 36 and len(asked) == 1, turn
    assert len(analysed) == 1
    made = step._replays.made
    assert step(tg.ones(3, 2)).equal(by_sizes(tg.ones(3, 2))) and step._replays.made == made + 1


def test_what_is_watched_is_found_however_deep():
    """Also what is refused is named by how it was reached."""
    class Odd:
        __slots__ = ("value",)

    inner = Odd()
    inner.value = 2.0
    outer = {"lists": [1.0, (3.0, {"odd": inner})]}
    step = tg.record(lambda x: x * outer["lists"][1][1]["odd"].value)
    for _ in range(4):
        step(tg.ones(2))
    assert "outer.lists[1][1].odd is a Odd, whose changes cannot be seen" in step.summary()


def test_more_objects_than_can_be_watched(monkeypatch):
    monkeypatch.setattr(_watch, "_MOST_OBJECTS", 50)
    values = [[float(i)] for i in range(60)]
    step = tg.record(lambda x: x * values[3][0])
    for _ in range(4):
        assert step(tg.ones(2)).tolist() == [3.0, 3.0]
    assert "it reads more than 50 objects of the program" in step.summary()


def test_nothing_is_kept_of_what_was_looked_at():
    import gc
    import weakref

    class Held:
        scale = 2.0

    def make(held):
        return tg.record(lambda x: x * held.scale)

    held = Held()
    step = make(held)
    for _ in range(4):
        step(tg.ones(2))
    assert replays(step) == 2
    gone = weakref.ref(held)
    del held, step
    gc.collect()
    assert gone() is None
