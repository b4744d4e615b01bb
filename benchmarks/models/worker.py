"""A process in which one library runs one model: `python -m benchmarks.models.worker JSON`. It says what its start cost, then does
what it is asked, a line of JSON for each line: {"do": "losses"}, {"do": "time", "steps": 3}, {"do": "profile", "steps": 3}."""

import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Task:
    """`library`: tapegrad, torch, jax, or the first two with "-compile"; `python`: the interpreter that has it."""

    model: str
    library: str
    training: bool = True
    tiny: bool = False
    dtype: str = "float32"
    threads: int = 2
    python: str = sys.executable


class Worker:
    """The other end: starts the process and asks it."""

    def __init__(self, task: Task):
        environment = {**os.environ, "OMP_NUM_THREADS": str(task.threads), "TAPEGRAD_NUM_THREADS": str(task.threads)}
        self.task = task
        self.process = subprocess.Popen([task.python, "-m", "benchmarks.models.worker", json.dumps(asdict(task))], cwd=ROOT, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.start = self._answer()
        except BaseException:  # __exit__ is not called then
            self.process.kill()
            raise

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.task.model} in {self.task.library}: the process ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, do: str, **options):
        self.process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def seconds(self, steps: int) -> float:
        """Of one step, of so many."""
        return self.ask("time", steps=steps)["seconds"] / steps

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def memory(which: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most."""
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(which))


def _compiled(name: str, lib):
    """(what wraps the module, what wraps the step): torch compiles models, tapegrad records whole steps."""
    if not name.endswith("-compile"):
        return (lambda module: module), (lambda step: step)
    return (lib.compile, lambda step: step) if name.startswith("torch") else (lambda module: module, lib.compile)


def _start(task: Task):
    """(a function that makes a step and waits for it, the Run, the library, seconds of the import and of the model)"""
    import numpy  # noqa: F401  every library imports it

    start = time.perf_counter()
    lib = importlib.import_module(task.library.split("-")[0])
    imported = time.perf_counter()
    from . import Sizes, named

    if task.library == "jax":
        from .in_jax import Run
    else:
        from .training import Run
        lib.set_num_threads(task.threads)
    model, before = named(task.model), memory("VmRSS")
    loaded = time.perf_counter()
    wrap_module, wrap_step = _compiled(task.library, lib)
    run = Run(lib, model, Sizes(task.tiny), model.tiny if task.tiny else model.cpu, task.dtype, task.training, wrap=wrap_module)
    step = wrap_step(run.step if task.training else run.infer)
    return step, run, lib, {"import": imported - start, "build": time.perf_counter() - loaded, "before": before}


def main(task: Task) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    if task.library == "jax":  # its threads are as many as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:task.threads])
    step, run, lib, start = _start(task)
    for which in ("first", "second"):  # the second has the optimizer's momentum from the start
        begin = time.perf_counter()
        step()
        start[which] = time.perf_counter() - begin
    start["peak"] = memory("VmHWM")
    start["memory"] = start["peak"] - start.pop("before")
    print(json.dumps(start), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "losses":
            from .training import losses

            answer = {"losses": run.losses() if hasattr(run, "losses") else losses(run)}
        elif asked["do"] == "time":
            begin = time.perf_counter()
            for _ in range(asked["steps"]):
                step()
            answer = {"seconds": time.perf_counter() - begin}
        else:
            from .profiles import profile

            answer = profile(lib, step, asked["steps"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
