"""Runs the fuzzer's workers over operators, a few operators to a process, and collects what they find."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from child import MEMORY, run_child

WORKER = Path(__file__).with_name("worker.py")


@dataclass
class Outcome:
    calls: int = 0
    findings: list = field(default_factory=list)

    def __iadd__(self, other):
        self.calls += other.calls
        self.findings += other.findings
        return self


def operators() -> list[str]:
    """The public rows, and the calls without a row."""
    import others
    import rows

    public = [r for r in rows.load_records() if not r.name.startswith("_")]
    missing = [r.name for r in public if not r.samples]
    if missing:
        raise LookupError(f"rows without samples, which cannot be called: {', '.join(missing)}")
    return sorted({r.name for r in public} | set(others.records()))


def run_worker(seed: int, calls: int, names: list[str], seconds: float) -> Outcome:
    """One process. When it dies, what it was doing is a finding, and its other operators go on in a new one."""
    outcome, rest = Outcome(), list(names)
    while rest:
        status, output, errors, last = run_child(WORKER, [seed, calls, *rest], seconds, MEMORY)
        outcome.findings += re.findall(r"finding: .*(?:\n  .*)?", output)
        if status == 0:
            outcome.calls += calls * len(rest)
            return outcome
        reason = next((line for line in errors.splitlines() if "ERROR: " in line or "runtime error" in line or "Error" in line or "Fatal" in line), "")
        outcome.findings.append(f"finding: the process ended ({status}) {reason}\n  {last}\n  seed {seed}")
        name = next((n for n in rest if re.search(rf"(^|[ .]){re.escape(n)}_? [\[{{]", last)), rest[0])
        outcome.calls += calls * rest.index(name)
        rest = rest[rest.index(name) + 1 :]
    return outcome


def run(seed: int, calls: int, names: list[str], jobs: int, seconds: float, progress=None) -> Outcome:
    """Every operator gets `calls` calls. `seconds` is the limit of one process of eight operators."""
    total = Outcome()
    groups = [names[i::(len(names) + 7) // 8] for i in range((len(names) + 7) // 8)]
    with ThreadPoolExecutor(jobs) as threads:
        for outcome in threads.map(lambda group: run_worker(seed, calls, group, seconds), groups):
            total += outcome
            if progress:
                progress(total)
    return total
