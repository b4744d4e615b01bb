"""utils.benchmark: timers, measurements, tables."""

import pickle

import pytest
import tapegrad
from tapegrad.utils import benchmark
from tapegrad.utils.benchmark import Compare, Measurement, TaskSpec, Timer


def measurement(times, number=1, **task):
    return Measurement(number, times, TaskSpec(**{"stmt": "f(x)", "setup": "pass", **task}))


def test_timer():
    timer = Timer("y = x + n", setup="n = 1", globals={"x": tapegrad.ones(3)}, label="add", sub_label="small", description="here", num_threads=1)
    once = timer.timeit(50)
    assert once.number_per_run == 50 and len(once.raw_times) == 1 and 0 < once.median < 1 and once.title == "add: small"
    calls = []
    many = timer.blocked_autorange(callback=lambda number, seconds: calls.append(number), min_run_time=0.02)
    assert len(many.raw_times) == len(calls) and sum(many.raw_times) >= 0.02
    adaptive = timer.adaptive_autorange(threshold=0.5, max_run_time=0.5)
    assert len(adaptive.raw_times) >= 4 or sum(adaptive.raw_times) >= 0.5
    assert "add: small" in repr(many) and "1 thread" in repr(many)
    assert Timer("torch.ones(2)").timeit(3).median > 0


def test_threads_and_errors():
    before = tapegrad.get_num_threads()
    seen = []
    Timer("seen.append(tapegrad.get_num_threads())", globals={"seen": seen}, num_threads=2).timeit(2)
    assert set(seen) == {2} and tapegrad.get_num_threads() == before
    with pytest.raises(ValueError):
        Timer(len)
    with pytest.raises(ValueError):
        Timer("1", global_setup="x")
    with pytest.raises(NotImplementedError):
        Timer("1", language=benchmark.Language.CPP)
    with pytest.raises(NotImplementedError):
        Timer("1").collect_callgrind()
    with pytest.raises(NameError):
        Timer("nothing_there").timeit(1)


def test_measurement():
    m = measurement([4.0, 2.0, 6.0, 8.0], number=2)
    assert m.times == [2.0, 1.0, 3.0, 4.0] and m.median == 2.5 and m.mean == 2.5 and m.iqr == 1.5
    assert m.has_warnings and not m.meets_confidence() and "Interquartile range" in repr(m)
    steady = measurement([1.0, 1.0001, 0.9999, 1.0, 1.0])
    assert steady.meets_confidence() and not steady.has_warnings and steady.significant_figures >= 3 and steady.stmt == "f(x)"
    assert [len(x.times) for x in Measurement.merge([steady, steady, measurement([1.0], stmt="g")])] == [10, 1]
    assert pickle.loads(pickle.dumps(steady)).median == 1.0
    with pytest.raises(ValueError):
        measurement([]).median  # noqa: B018
    with pytest.raises(AttributeError):
        steady.nothing  # noqa: B018
    assert benchmark.select_unit(2e-5) == ("us", 1e-6) and benchmark.trim_sigfig(1.2345, 2) == 1.2 and benchmark.unit_to_english("ms") == "millisecond"


def test_compare(capsys):
    results = [measurement([t], label="ops", sub_label=row, description=column, num_threads=n) for n in (1, 2)
               for row, column, t in (("add", "a", 2e-6), ("add", "b", 1e-6), ("mul", "a", 3e-6))]
    table = Compare(results)
    table.trim_significant_figures()
    table.highlight_warnings()
    text = str(table)
    assert "[" in text and " ops " in text and text.index("1 threads: ") < text.index("2 threads: ") and "Times are in microseconds (us)." in text
    assert text.count("add") == 2 and text.count("mul") == 2
    table.colorize(rowwise=True)
    table.print()
    assert "\033[92m" in capsys.readouterr().out
    with pytest.raises(ValueError):
        Compare([1])
    assert benchmark.utils.common.TaskSpec is TaskSpec and benchmark.utils.timer.Timer is Timer
