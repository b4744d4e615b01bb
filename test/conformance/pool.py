"""Worker processes that run the checks of one subject after the other; a crash or an endless call costs that one check.

The parent imports both libraries and forks, so that a new worker costs milliseconds. A worker writes what it is about to run
into memory shared with the parent; when it dies or exceeds the time limit, that check is recorded, and a new worker runs the
subject again without it.
"""

import faulthandler
import mmap
import multiprocessing
import os
import signal
import struct
import time
import warnings
from dataclasses import dataclass, field
from multiprocessing import connection

from .compare import Failure, Skip, brief
from .translate import Missing

CHECK_SECONDS, CRASHES = 60, 20


@dataclass
class Result:
    """What the checks of one subject gave. `failures`: [id, message]."""

    name: str
    kind: str
    passed: int = 0
    total: int = 0
    missing: str = ""
    failures: list = field(default_factory=list)
    crashes: list = field(default_factory=list)
    deviations: list = field(default_factory=list)
    seconds: float = 0.0


class Board:
    """Which check runs, and since when; written by the worker, read by the parent."""

    SIZE = 512

    def __init__(self):
        self.memory = mmap.mmap(-1, self.SIZE)

    def write(self, check: str):
        text = check.encode()[: self.SIZE - 12]
        self.memory[: 12 + len(text)] = struct.pack("dI", time.monotonic(), len(text)) + text

    def read(self):
        since, length = struct.unpack("dI", self.memory[:12])
        return since, self.memory[12 : 12 + length].decode(errors="replace")


def run_subject(make, kind, name, limit, skip, board) -> Result:
    result = Result(name, kind)
    start = time.monotonic()
    board.write("set-up")
    try:
        subject = make(kind, name)
    except Missing as error:
        result.missing = str(error)
        return result
    checks = iter(subject.checks(limit))
    while True:
        board.write("samples")
        try:
            check, function = next(checks)
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001 - PyTorch's generator of samples refuses
            result.failures.append(["samples", brief(error)])
            result.total += 1
            break
        if check in skip:
            continue
        board.write(check)
        try:
            function()
        except Skip:
            continue
        except Missing as error:
            result.failures.append([check, f"missing: {brief(error)}"])
        except Failure as error:
            result.failures.append([check, brief(error, 240)])
        except Exception as error:  # noqa: BLE001 - a failure of ours like any other
            result.failures.append([check, f"raises {type(error).__name__}: {brief(error, 200)}"])
        else:
            result.passed += 1
        result.total += 1
    result.seconds = time.monotonic() - start
    return result


def _worker(link, board, make):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()
    warnings.simplefilter("ignore")
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    while True:
        task = link.recv()
        if task is None:
            return
        link.send(run_subject(make, *task, board))


class Worker:
    def __init__(self, context, make):
        self.board = Board()
        self.link, other = context.Pipe()
        self.process = context.Process(target=_worker, args=(other, self.board, make), daemon=True)
        self.process.start()
        other.close()
        self.task = None

    def give(self, task):
        self.task = task
        self.board.write("set-up")
        self.link.send(task)

    def end(self):
        self.process.kill()
        self.process.join()
        self.link.close()


def run(tasks: list, make, jobs: int, limit=None, report=lambda result: None) -> list[Result]:
    """Runs `make(kind, name).checks(limit)` of every (kind, name); results in the order of the tasks."""
    context = multiprocessing.get_context("fork")
    waiting = [(kind, name, limit, frozenset()) for kind, name in tasks][::-1]
    crashes, results, workers = {}, {}, []
    try:
        while waiting or any(w.task for w in workers):
            while waiting and len(workers) < jobs:
                workers.append(Worker(context, make))
            for worker in workers:
                if worker.task is None and waiting:
                    worker.give(waiting.pop())
            ready = connection.wait([w.link for w in workers if w.task], timeout=1)
            for worker in [w for w in workers if w.task]:
                since, check = worker.board.read()
                kind, name, _, skip = worker.task
                if worker.link in ready:
                    try:
                        result = worker.link.recv()
                    except (EOFError, OSError):
                        worker.process.join()
                        reason = f"crash: {_signal(worker.process.exitcode)}"
                    else:
                        worker.task = None
                        for crash in crashes.get((kind, name), []):
                            result.crashes.append(crash)
                            result.total += 1
                        results[kind, name] = result
                        report(result)
                        continue
                elif time.monotonic() - since > CHECK_SECONDS:
                    reason = f"no end within {CHECK_SECONDS} s"
                else:
                    continue
                worker.end()
                workers.remove(worker)
                known = crashes.setdefault((kind, name), [])
                known.append([check, reason])
                if len(known) < CRASHES and check not in ("set-up", "samples"):
                    waiting.append((kind, name, limit, skip | {check}))
                else:
                    results[kind, name] = Result(name, kind, 0, len(known), crashes=known)
                    report(results[kind, name])
    finally:
        for worker in workers:
            worker.end()
    return [results[task] for task in tasks]


def _signal(code) -> str:
    try:
        return signal.Signals(-code).name
    except (ValueError, TypeError):
        return f"exit status {code}"
