"""Models in tapegrad and in PyTorch, each library in a process of its own: `python -m benchmarks.models --help`, `make bench-models`.

The processes of a model live side by side and take turns, A B A B; the one that is not asked waits for its input. Before
anything is timed the losses of both, from the same weights, are compared. What a start costs is measured in fresh processes."""

import argparse
import contextlib
import datetime
import fnmatch
import importlib.metadata
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from ..harness import Case, duration
from ..report import processor
from . import MODELS, Model, report
from .worker import Task, Worker

PARTS = ("training", "inference", "starts", "host", "compile", "jax", "neighbour", "profile")
COMPILED = ("digits MLP", "AlexNet", "small GPT")
IN_JAX = ("digits MLP", "AlexNet", "small GPT", "LSTM language model")
SLICE_S = 0.25  # of one measurement, where a step takes less
TOLERANCE = {"float32": 2e-3, "bfloat16": 5e-2, "float64": 1e-7}


def alike(a: list[float], b: list[float], dtype: str) -> bool:
    """Whether the first loss and gradient's length, and the losses after them, are those of one model; what is rounded otherwise
    grows from step to step."""
    limits = [TOLERANCE[dtype]] * 2 + [10 * TOLERANCE[dtype]] * (len(a) - 2)
    return all(math.isfinite(x) and math.isclose(x, y, rel_tol=limit) for x, y, limit in zip(a, b, limits, strict=True))


def check_alike(workers: list[Worker]) -> list:
    found = [w.ask("losses")["losses"] for w in workers]
    for w, losses in zip(workers[1:], found[1:]):
        if not alike(found[0], losses, w.task.dtype):
            raise SystemExit(f"{w.task.model}: not the same model: losses {found[0]} of {workers[0].task.library}, {losses} of {w.task.library}")
    return found


def paired(workers: list[Worker], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step, of each library in each round; every round begins with another."""
    steps = []
    for w in workers:
        count = 1
        slice_s = 0.1 * SLICE_S if w.task.tiny else SLICE_S
        while (spent := w.seconds(count) * count) < slice_s / 4:
            count *= 4
        steps.append(max(1, round(count * slice_s / spent)))
    seconds = {w.task.library: [] for w in workers}
    for r in range(rounds):
        for i in range(len(workers)):
            at = (i + r) % len(workers)
            seconds[workers[at].task.library].append(workers[at].seconds(steps[at]))
    return seconds


def timed(tasks: list[Task], rounds: int, check: bool) -> dict:
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(t)) for t in tasks]
        row = {"starts": {w.task.library: [w.start] for w in workers}}
        if check:
            row["losses"] = check_alike(workers)
        return row | {"seconds": paired(workers, rounds)}


def starts(tasks: list[Task], count: int) -> dict:
    """What the first steps of fresh processes cost."""
    found = {t.library: [] for t in tasks}
    for _ in range(count):
        for t in tasks:
            with Worker(t) as w:
                found[t.library].append(w.start)
    return {"starts": found}


@contextlib.contextmanager
def neighbour():
    """A process that keeps the last processor busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        yield process
    finally:
        process.kill()
        process.wait()


def beside_neighbour(task: Task, rounds: int) -> dict:
    """Seconds of a step on the idle machine and beside a busy process, in turns."""
    idle, busy = [], []
    with neighbour() as process:
        process.send_signal(signal.SIGSTOP)
        with Worker(task) as w:
            steps = max(1, round(2 * SLICE_S / w.seconds(1)))  # longer than the scheduler's turns
            for _ in range(rounds):
                process.send_signal(signal.SIGSTOP)
                idle.append(w.seconds(steps))
                process.send_signal(signal.SIGCONT)
                busy.append(w.seconds(steps))
    return {"neighbour": {"idle": idle, "busy": busy}}


def profiled(task: Task) -> dict:
    with Worker(task) as w:
        return {"profile": w.ask("profile", steps=max(2, min(20, round(1 / w.seconds(1)))))}


def measure(part: str, model: Model, options, threads: int) -> dict | None:
    """The row of a part for a model; None where the part does not have it."""
    own = Task(model.name, "tapegrad", part != "inference", options.tiny or part == "host", options.dtype, 1 if part == "host" else threads)
    pair = [own, replace(own, library="torch")]
    if part == "starts":
        return starts(pair, options.starts)
    if part == "neighbour":
        return beside_neighbour(own, min(options.rounds, 5)) if threads > 1 else None
    if part == "profile":
        return profiled(own)
    if part == "compile":
        tasks = [own, *[replace(own, library=f"{name}-compile") for name in ("tapegrad", "torch")]]
        return timed(tasks, options.rounds, False) if model.name in COMPILED else None
    if part == "jax":
        tasks = [own, replace(own, library="jax", python=str(options.jax_python))]
        return timed(tasks, options.rounds, True) if model.name in IN_JAX and options.jax_python and options.dtype == "float32" else None
    return timed(pair, options.rounds, part == "training")


def said(row: dict) -> str:
    """A line about a row, while the run goes on."""
    if "seconds" in row:
        case = Case("", "", {}, seconds=row["seconds"])
        return duration(case.median("tapegrad")) + "".join(f"  {name} {case.ratio(name):.2f}x" for name in row["seconds"] if name != "tapegrad")
    if "neighbour" in row:
        return f"{statistics.median(b / i for b, i in zip(row['neighbour']['busy'], row['neighbour']['idle'])):.2f} of the idle time"
    if "profile" in row:
        return f"{100 * row['profile']['outside'] / row['profile']['seconds']:.1f} % outside of operators"
    return "  ".join(f"{name} {duration(statistics.median(report.first_step(s) for s in found))}" for name, found in row["starts"].items())


def machine() -> str:
    """What results are named after: the processor's vendor and family, and its vector instructions."""
    facts = dict(re.findall(r"^(vendor_id|cpu family|model|flags)\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M))
    flags = facts.get("flags", "").split()
    isa = "avx512" if "avx512f" in flags else "avx2" if "avx2" in flags else "baseline"
    return f"{'amd' if 'AMD' in facts.get('vendor_id', '') else 'intel'}-{facts.get('cpu family', '0')}-{facts.get('model', '0')}-{isa}"


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help='the models whose names match, such as "*GPT*"')
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="what is measured; default everything")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=2, help="fresh processes per library whose first step is timed")
    parser.add_argument("--threads", type=int, nargs="*", default=[len(os.sched_getaffinity(0))], help="one table for each; default all processors")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16: under autocast")
    parser.add_argument("--tiny", action="store_true", help="next to nothing to compute: a test of this program")
    parser.add_argument("--jax-python", type=Path, default=next(iter(Path.cwd().glob(".venv-jax/bin/python")), None), help="an interpreter that has JAX; default .venv-jax's, where it is")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/models"))
    parser.add_argument("--name", default=machine(), help="goes into the names of the files; default the kind of processor")
    parser.add_argument("--again", type=Path, metavar="JSON", help="measures nothing: writes table and plots of a run's numbers")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.again:
        report.write(json.loads(options.again.read_text()), options.again.with_suffix(""))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / "-".join([datetime.date.today().isoformat(), options.name, *(["bfloat16"] if options.dtype == "bfloat16" else [])])
    found = {"processor": processor(), "machine": machine(), "dtype": options.dtype, "rounds": options.rounds, "command": " ".join(["python -m benchmarks.models", *sys.argv[1:]]),
             "torch": importlib.metadata.version("torch"), "rows": []}
    for threads in options.threads:
        for model in MODELS:
            if not model.cpu or not (model.lowered or options.dtype == "float32") or not fnmatch.fnmatchcase(model.name, options.only):
                continue
            for part in PARTS:
                row = measure(part, model, options, threads) if part in options.parts else None
                if row is not None:
                    found["rows"].append({"model": model.name, "part": part, "threads": threads, "items": model.cpu, "unit": model.unit} | row)
                    print(f"{model.name:22} {part:10} {said(row)}", flush=True)
                    report.write(found, stem)  # a run that is cut off leaves what it has
    print(f"written: {stem}.md, .json")


if __name__ == "__main__":
    main()
