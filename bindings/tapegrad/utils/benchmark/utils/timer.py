"""Timer: how long a statement takes, with a set number of threads."""

import enum
import textwrap
import timeit

from .common import Measurement, TaskSpec, set_torch_threads

__all__ = ["Language", "Timer", "timer"]

timer = timeit.default_timer


class Language(enum.Enum):
    PYTHON = 0
    CPP = 1


class Timer:
    """Runs a statement of Python many times.

    Args:
        stmt, setup, globals, timer: as timeit.Timer's.
        label, sub_label, description, env: what results are called and how Compare lays them out: a table per label, a row
            per sub_label, a column per description.
        num_threads: of the operators; one by default.

    Statements are not warmed up for the compiler: the first run is not counted.
    """

    _timer_cls = timeit.Timer

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer=timer, globals: dict | None = None, label: str | None = None,
                 sub_label: str | None = None, description: str | None = None, env: str | None = None, num_threads: int = 1, language=Language.PYTHON):
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise NotImplementedError("Timer: only statements of Python are timed\na C++ program can be timed with its own clock")
        if global_setup:
            raise ValueError("global_setup is C++ only")
        stmt, setup = textwrap.dedent(stmt), textwrap.dedent(setup)
        stmt, setup = ("\n".join(line.rstrip() for line in s.strip("\n").splitlines()) or "pass" for s in (stmt, setup))
        self._globals = dict(globals or {})
        import tapegrad

        for name in ("tapegrad", "torch"):  # as scripts call it
            self._globals.setdefault(name, tapegrad)
        self._timer = self._timer_cls(stmt=stmt, setup=setup, timer=timer, globals=self._globals)
        self._task_spec = TaskSpec(stmt=stmt, setup=setup, global_setup="", label=label, sub_label=sub_label, description=description, env=env,
                                   num_threads=num_threads)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _measurement(self, number: int, times: list) -> Measurement:
        return Measurement(number_per_run=number, raw_times=times, task_spec=self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One time of `number` runs, behind a few that are not counted."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(int(number // 100), 2))
            return self._measurement(number, [self._timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback=None) -> None:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """So many runs that asking the clock is 0.1 % of their time."""
        with set_torch_threads(self._task_spec.num_threads):
            overhead = sorted(self._timeit(0) for _ in range(5))[2]
            number = 1
            while True:
                taken = self._timeit(number)
                share = overhead / taken
                if share <= 1e-4 and taken >= min_run_time / 1000 or taken > min_run_time:
                    return number
                number *= 10

    def blocked_autorange(self, callback=None, min_run_time: float = 0.2) -> Measurement:
        """Times of blocks of runs until `min_run_time` seconds have passed; the median of several blocks is steadier than
        one long one. callback(number, seconds) per block."""
        number = self._block_size(min_run_time)
        times: list = []
        with set_torch_threads(self._task_spec.num_threads):
            while sum(times) < min_run_time or not times:
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
        return self._measurement(number, times)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback=None) -> Measurement:
        """Blocks until the interquartile range is below `threshold` of the median, or max_run_time seconds have passed."""
        number = self._block_size(0.05)
        times: list = []
        with set_torch_threads(self._task_spec.num_threads):
            while sum(times) < max_run_time:
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
                if sum(times) >= min_run_time and len(times) >= 4 and self._measurement(number, times).meets_confidence(threshold):
                    break
        return self._measurement(number, times)

    def collect_callgrind(self, number: int = 100, *, repeats=None, collect_baseline: bool = True, retain_out_file: bool = False):
        raise NotImplementedError("Timer: collect_callgrind is not there\nrun the script with: valgrind --tool=callgrind python script.py")
