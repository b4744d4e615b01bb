"""Runs a function as several ranks, each a process of its own, with a deadline: what each gave or raised, printed and ended with.

    outcomes = run_ranks(3, function, arg, timeout=30)    # function(rank, size, arg), of a test module or of this one
    assert results(outcomes) == [...]                     # raises with all tracebacks where a rank raised

A rank starts as a fresh interpreter ("spawn") or as a copy of this process ("fork"). `world=True`: the group of all ranks is made before
and left after. Whoever is not done at the deadline shows where it hangs and is killed; nothing is left behind.
"""

import contextlib
import dataclasses
import faulthandler
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # has modules with names of others


@dataclasses.dataclass
class Outcome:
    """How a rank ended."""

    rank: int
    result: object = None
    error: str = ""  # type and message of what it raised
    traceback: str = ""
    code: int | None = None  # exit code, negative for a signal
    output: str = ""
    seconds: float = 0

    def __str__(self) -> str:
        return f"--- rank {self.rank}: exit code {self.code} after {self.seconds:.1f} s\n{self.traceback}{self.output[-4000:]}"


def results(outcomes: list) -> list:
    """What each rank gave; AssertionError with everything that is known where one raised or did not end well."""
    assert all(o.code == 0 and not o.error for o in outcomes), "\n".join(map(str, outcomes))
    return [o.result for o in outcomes]


class _Rank:
    """A process that is a rank."""

    def __init__(self, rank: int, folder: Path, start: str, job: dict, environment: dict):
        self.rank, self.began, self.ended = rank, time.monotonic(), None
        self.result_path, self.output_path = folder / f"result{rank}", folder / f"output{rank}"
        job = {**job, "rank": rank, "result_path": str(self.result_path)}
        if start == "fork":
            self.process = None
            sys.stdout.flush()
            self.pid = os.fork()
            if self.pid == 0:
                _become_rank(job, self.output_path, environment)
        else:
            job_path = folder / f"job{rank}"
            job_path.write_bytes(pickle.dumps(job))
            with open(self.output_path, "wb") as output:
                self.process = subprocess.Popen([sys.executable, "-X", "faulthandler", __file__, str(job_path)], stdin=subprocess.DEVNULL,
                                                stdout=output, stderr=output, env={**os.environ, **environment})
            self.pid = self.process.pid
        self.code = None

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.code is None:
            if self.process is not None:
                self.code = self.process.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
            if self.code is not None:
                self.ended = time.monotonic()
        return self.code is not None

    def send_signal(self, number: int) -> None:
        """A signal to the rank, if it is still there."""
        if not self.poll():
            os.kill(self.pid, number)

    def outcome(self) -> Outcome:
        output = self.output_path.read_text(errors="replace") if self.output_path.exists() else ""
        made = Outcome(self.rank, code=self.code, output=output, seconds=self.ended - self.began)
        if self.result_path.exists():
            made.result, made.error, made.traceback = pickle.loads(self.result_path.read_bytes())
        return made


def run_ranks(n: int, function, *args, timeout: float = 60, start: str = "spawn", world: bool = True, backend: str = "gloo",
              environment: dict | None = None, meanwhile=None, limit: float | None = None) -> list[Outcome]:
    """Runs function(rank, n, *args) as ranks 0 to n - 1. See the head of this file.

    meanwhile(processes) is called here once all have started; processes[r].pid and send_signal(number) are rank r's.
    limit: the group's own time limit in seconds.
    """
    code = function.__code__
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(environment or {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = {"file": code.co_filename, "function": function.__qualname__, "args": args, "size": n, "store": str(folder / "store"),
               "world": world, "backend": backend, "limit": limit or timeout}
        ranks: list[_Rank] = []
        try:
            for rank in range(n):
                ranks.append(_Rank(rank, folder, start, job, environment))
            if meanwhile is not None:
                meanwhile(ranks)
            _wait(ranks, time.monotonic() + timeout)
        finally:
            for rank in ranks:
                while not rank.poll():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rank.pid, signal.SIGKILL)
                    time.sleep(0.005)
        return [rank.outcome() for rank in ranks]


def run_ranks_with_torch(n: int, function, *args, timeout: float = 60, **options) -> list[Outcome]:
    """run_ranks from one process that has imported torch, of which the ranks are copies: importing it takes seconds."""
    where = function.__code__.co_filename, function.__qualname__
    (outcomes,) = results(run_ranks(1, _fork_with_torch, n, where, args, timeout, options, timeout=timeout + 60, world=False))
    return [Outcome(**fields) for fields in outcomes]


def no_differences(n: int, function, *args, **options) -> None:
    """Asserts that function(rank, n, *args) gives no difference from torch on any rank, each with torch imported."""
    for different in results(run_ranks_with_torch(n, function, *args, **options)):
        assert not different


def _fork_with_torch(rank: int, size: int, n: int, where: tuple, args: tuple, timeout: float, options: dict) -> list[dict]:
    import torch.distributed
    import torch.distributed._functional_collectives
    import torch.distributed.nn.functional  # noqa: F401

    return [vars(outcome) for outcome in run_ranks(n, _find(*where), *args, timeout=timeout, start="fork", **options)]


def _wait(ranks: list, deadline: float) -> None:
    while not all([rank.poll() for rank in ranks]):
        if time.monotonic() > deadline:
            for rank in ranks:
                rank.send_signal(signal.SIGUSR1)  # shows where it is
            time.sleep(1)
            return
        time.sleep(0.005)


# In the rank.
def _become_rank(job: dict, output_path: Path, environment: dict) -> None:
    os.environ.update(environment)
    output = os.open(output_path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        code = _run(job)
    except BaseException:
        traceback.print_exc()
    finally:
        _end_at_once(code)


def _end_at_once(code: int) -> None:
    """Ends this process without the interpreter's end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _find(file: str, qualname: str):
    """A function of a file, which may be a test module that no `import` finds."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            break
    else:
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    for part in qualname.split("."):
        module = getattr(module, part)
    return module


def _run(job: dict) -> int:
    import datetime

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import tapegrad.distributed as dist

    result, error, trace, code = None, "", "", 0
    try:
        function = _find(job["file"], job["function"])
        if job["world"]:
            dist.init_process_group(job["backend"], init_method=f"file://{job['store']}", rank=job["rank"], world_size=job["size"],
                                    timeout=datetime.timedelta(seconds=job["limit"]))
        result = function(job["rank"], job["size"], *job["args"])
        if job["world"] and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as raised:
        error, trace, code = f"{type(raised).__name__}: {raised}", traceback.format_exc(), 1
        sys.excepthook(*sys.exc_info())  # as at the end of a program: shows it, and tells the other ranks
    path = Path(job["result_path"])
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps((result, error, trace)))
    partial.rename(path)
    return code


if __name__ == "__main__":
    code = _run(pickle.loads(Path(sys.argv[1]).read_bytes()))
    if "torch" in sys.modules:  # its threads sometimes abort the interpreter's end, also where tapegrad is not imported
        _end_at_once(code)
    sys.exit(code)
