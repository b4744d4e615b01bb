"""Runs a worker per target, side by side, at low priority."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
NAMES = ("container", "safetensors", "archive", "streams", "stream", "tar")
GRACE_S = 120  # to start, on a busy machine


@dataclass
class Outcome:
    findings: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)


def run(names=NAMES, seed: int = 0, seconds: float = 5.0) -> Outcome:
    """Findings, and one line per target that came to its end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    workers = {name: subprocess.Popen(["nice", "-n", "10", sys.executable, "-X", "faulthandler", str(WORKER), name, str(seed), str(seconds)],
                                      env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for name in names}
    result = Outcome()
    for name, worker in workers.items():
        try:
            out, errors = worker.communicate(timeout=seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            out, errors = worker.communicate()
            result.findings.append(f"{name}: a worker hangs: {_last(out)}")
            continue
        result.findings += [line for line in out.splitlines() if line.startswith("FINDING")]
        result.done += [line[5:] for line in out.splitlines() if line.startswith("DONE")]
        if worker.returncode:
            result.findings.append(f"{name}: a worker ended with {worker.returncode}: {_last(out)}\n{errors[-2000:]}")
    return result


def _last(out: str) -> str:
    """The input that a dead worker was reading, as a file."""
    line = next((line for line in out.splitlines() if line.startswith("LAST ")), None)
    if line is None or not os.path.exists(line[5:]):
        return "before its first input"
    raw = Path(line[5:]).read_bytes()
    kept = Path(line[5:] + ".input")
    kept.write_bytes(raw[8:8 + int.from_bytes(raw[:8], "little")])
    return str(kept)
