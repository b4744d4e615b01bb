"""Measurements: times of one statement, with what was measured."""

import contextlib
import dataclasses
from statistics import median

import numpy as np

import tapegrad

__all__ = ["Measurement", "TaskSpec", "select_unit", "set_torch_threads", "trim_sigfig", "unit_to_english"]

_UNITS = {"ns": (1e-9, "nanosecond"), "us": (1e-6, "microsecond"), "ms": (1e-3, "millisecond"), "s": (1.0, "second")}
_FEW = 4  # repetitions from which on a spread says something
_WIDE, _TOO_WIDE = 0.1, 0.25  # of the interquartile range by the median


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What is measured; two measurements belong together where these are equal."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement where it is one line."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt if "\n" not in self.stmt else f"stmt:{_indented(self.stmt)}" + (f"\nsetup:{_indented(self.setup)}" if self.setup.strip() != "pass" else "")

    def setup_str(self) -> str:
        return "" if self.setup in ("pass", "") else f"setup:\n{_indented(self.setup)}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(p for p in parts if p)


def _indented(text: str) -> str:
    return "\n" + "\n".join("  " + line for line in text.splitlines())


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """Times of a statement: `raw_times` in seconds, each of `number_per_run` runs of it."""

    number_per_run: int
    raw_times: list
    task_spec: TaskSpec
    metadata: dict | None = None

    def __post_init__(self) -> None:
        self._sorted = sorted(t / self.number_per_run for t in self.raw_times)

    def __getattr__(self, name: str):
        # The task's own: label, stmt, num_threads ...
        if name.startswith("__") or name == "task_spec" or name not in TaskSpec.__dataclass_fields__:
            raise AttributeError(f"'Measurement' object has no attribute '{name}'")
        return getattr(self.task_spec, name)

    def _some(self) -> list:
        if not self._sorted:
            raise ValueError("Measurement: there are no times")
        return self._sorted

    @property
    def times(self) -> list:
        """Seconds per run of the statement."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return median(self._some())

    @property
    def mean(self) -> float:
        return float(np.mean(self._some()))

    @property
    def iqr(self) -> float:
        """The distance of the quartiles."""
        low, high = np.percentile(self._some(), [25, 75])
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread supports (an interval of 95 % of a normal distribution)."""
        n = len(self._some())
        deviation = max(self.iqr / 1.349, self.median / (1000 if n >= _FEW else 10)) / n**0.5  # clocks have an error, too
        digits = np.floor(np.log10(self.median / (2 * 1.96 * deviation))) + 1 if deviation > 0 and self.median > 0 else 1
        return int(min(max(digits, 1), 5))

    @property
    def has_warnings(self) -> bool:
        return bool(self._warning())

    def _warning(self) -> str:
        if not self._sorted:
            return ""
        spread = self.iqr / self.median if self.median else 0.0
        if spread < _WIDE:
            return ""
        text = f"WARNING: Interquartile range is {spread * 100:.1f}% of the median measurement.\n"
        return text + ("         This suggests significant environmental influence." if spread > _TOO_WIDE else "         This could indicate system fluctuation.")

    def meets_confidence(self, threshold: float = _WIDE) -> bool:
        """Whether the spread is below a share of the median."""
        return len(self._some()) >= _FEW and self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        lines = [f"<{type(self).__module__}.{type(self).__name__} object at {hex(id(self))}>", self.task_spec.summarize()]
        n = len(self._sorted)
        if n:
            unit, scale = select_unit(self.median)
            if n > 1:
                low, high = np.percentile(self._sorted, [25, 75])
                lines += [f"  Median: {self.median / scale:.2f} {unit}", f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})"]
            else:
                lines.append(f"  {self.median / scale:.2f} {unit}")
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {self.number_per_run} runs {'per measurement,' if n > 1 else ','} "
                     f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}")
        return "\n".join([*lines, *([self._warning()] if self.has_warnings else [])])

    @staticmethod
    def merge(measurements) -> list:
        """Measurements of one task as one."""
        groups: dict = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).append(m)
        return [Measurement(1, [t for m in group for t in m.times], spec, None) for spec, group in groups.items()]


def select_unit(t: float):
    """("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3) or ("s", 1): the unit of a time in seconds, and how long it is."""
    unit = "ns" if t < 1e-6 else "us" if t < 1e-3 else "ms" if t < 1 else "s"
    return unit, _UNITS[unit][0]


def unit_to_english(u: str) -> str:
    return _UNITS[u][1]


def trim_sigfig(x: float, n: int) -> float:
    """A number with n significant digits."""
    return float(f"{x:.{n - 1}e}")


@contextlib.contextmanager
def set_torch_threads(n: int):
    """A number of threads for a while."""
    before = tapegrad.get_num_threads()
    try:
        tapegrad.set_num_threads(n)
        yield
    finally:
        tapegrad.set_num_threads(before)
