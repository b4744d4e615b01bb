"""What passes on PyTorch and not here, grouped by cause."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict

from .run import Outcomes, Suite, chosen


@dataclasses.dataclass
class Difference:
    """Of one suite: what counts, what is lost, and the tests by the last line of their error."""

    suite: Suite
    counted: int  # pass on PyTorch and are not apart
    apart: int  # pass on PyTorch, left out by a rule of suites.toml
    lost: int
    causes: dict[str, list[str]]
    gained: int  # pass here alone
    ended: str

    @property
    def share(self) -> float:
        return 100.0 * (self.counted - self.lost) / self.counted if self.counted else 0.0


def difference(suite: Suite, torch: Outcomes, here: Outcomes) -> Difference:
    """Compares the outcomes of one suite; O(tests)."""
    passed = set(here.passed)
    counted = [t for t in torch.passed if not any(part in t for part in suite.apart)]
    causes = defaultdict(list)
    for test in counted:
        if test not in passed:
            causes[_cause(test, here)].append(test)
    lost = sum(map(len, causes.values()))
    ordered = dict(sorted(causes.items(), key=lambda item: -len(item[1])))
    ended = "; ".join(f"{side}: {o.ended}" for side, o in (("torch", torch), ("tapegrad", here)) if o.ended)
    return Difference(suite, len(counted), len(torch.passed) - len(counted), lost, ordered, len(passed - set(torch.passed)), ended)


def seeds(suite: Suite, result: Difference, options) -> str:
    """For people: which of the lost tests fail on PyTorch, too, with other seeds, and with how many of them."""
    lost = {test for tests in result.causes.values() for test in tests}
    fails = Counter(test for seed in range(1, options.seeds + 1) for test in chosen(suite, "torch", options, lost, seed).others)
    return "\n".join([f"  {len(fails)} of these fail on torch with other seeds:", *(f"    {n} of {options.seeds}: {test}" for test, n in sorted(fails.items()))])


def _cause(test: str, here: Outcomes) -> str:
    kind, message = here.others.get(test, ("absent", ""))
    if kind == "absent":  # its file may not have been collected
        for other, (what, text) in here.others.items():
            if what == "error" and (test.startswith(other.replace("::", ".").strip(".")) or other and test.split("::")[0].startswith(other.split("::")[-1])):
                return f"not collected: {_last(text)}"
        return "not collected"
    return f"{kind}: {_last(message)}" if kind != "failure" else _last(message)


def _last(message: str) -> str:
    """The line of the error itself, without numbers, addresses and paths of one test: the message's first, or else the traceback's last."""
    lines = [line.strip() for line in message.strip().splitlines()] or ["no message"]
    errors = [line for line in lines if re.match(r"([\w.]+(Error|Exception|Warning|Failed|Interrupt)\b|Failed)", line)]
    line = errors[0] if errors and errors[0] == lines[0] else errors[-1] if errors else lines[0]
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "N", line)[:200]


def text(result: Difference, most: int) -> str:
    """For people: one line, then the causes."""
    lines = [f"{result.suite.name}: {result.counted - result.lost} of {result.counted} that pass on torch pass here ({result.share:.2f} %; "
             f"{result.apart} apart, {result.gained} pass here alone)"]  # fmt: skip
    if result.ended:
        lines.append(f"  ended badly: {result.ended}")
    for cause, tests in list(result.causes.items())[:most]:
        lines += [f"  {len(tests):5} {cause}", *(f"          {t}" for t in tests[:3])]
    if len(result.causes) > most:
        lines.append(f"        and {len(result.causes) - most} more causes")
    return "\n".join(lines)
