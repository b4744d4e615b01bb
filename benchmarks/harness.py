"""Timing: alternating rounds, medians, ratios."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

CLOCK = time.perf_counter
BEST = False  # the least of all rounds counts, not their median: on a machine that does other things, too


@dataclass
class Case:
    """One question. `runs` maps a library's name to a function without arguments; `tapegrad` must be among them."""

    group: str
    name: str
    runs: dict[str, Callable[[], object]]
    inner: int = 0  # calls per measurement; 0: chosen so that one takes about `slice_s`
    rounds: int = 0  # 0: as many as the run asks for
    seconds: dict[str, list[float]] = field(default_factory=dict)
    finish: Callable[[], object] | None = None  # ends a measurement: waits for a device

    def median(self, library: str) -> float:
        return min(self.seconds[library]) if BEST else statistics.median(self.seconds[library])

    def ratio(self, library: str) -> float | None:
        """How many times faster tapegrad is than the library."""
        if library not in self.seconds:
            return None
        if BEST:
            return min(self.seconds[library]) / min(self.seconds["tapegrad"])
        pairs = zip(self.seconds[library], self.seconds["tapegrad"])
        return statistics.median(other / own for other, own in pairs)


def _time(run: Callable[[], object], inner: int, finish: Callable[[], object] | None = None) -> float:
    start = CLOCK()
    for _ in range(inner):
        run()
    if finish:
        finish()
    return (CLOCK() - start) / inner


def _choose_inner(run, slice_s: float, finish=None) -> int:
    _time(run, 1, finish)
    inner = 1
    while True:
        spent = _time(run, inner, finish) * inner
        if spent > slice_s / 4 or inner >= 1 << 20:
            return max(1, int(inner * slice_s / max(spent, 1e-9)))
        inner *= 4


# The threads of the library that ran before go on spinning for a while, which would cost the next one a core.
PAUSE_S = 0.06


def measure(case: Case, rounds: int = 9, slice_s: float = 0.03, pause_s: float = PAUSE_S) -> Case:
    """Times all libraries of a case in turn. Every round begins with another library than the one before."""
    names = list(case.runs)
    inner = {n: case.inner or _choose_inner(case.runs[n], slice_s, case.finish) for n in names}
    case.seconds = {n: [] for n in names}
    for r in range(min(case.rounds or rounds, rounds)):
        for n in names[r % len(names):] + names[:r % len(names)]:
            time.sleep(pause_s)
            _time(case.runs[n], 1, case.finish)
            case.seconds[n].append(_time(case.runs[n], inner[n], case.finish))
    return case


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
