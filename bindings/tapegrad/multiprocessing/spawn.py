"""`spawn` and `start_processes`: n processes that run one function, and the first failure ends them all."""

import multiprocessing.connection
import signal
import time
import traceback

from .._warn import warn
from .context import get_context
from .sending import named

__all__ = ["ENV_VAR_PARALLEL_START", "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException",
           "SpawnContext", "spawn", "start_processes"]

ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"


class ProcessException(Exception):
    """Base of the two ways in which a process can fail."""

    __slots__ = ["error_index", "error_pid"]

    def __init__(self, msg: str, error_index: int, pid: int):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function of a process raised an exception; the message holds its traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process ended with a signal or an exit code."""

    __slots__ = ["exit_code"]

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn, i, args, errors):
    from ._parent import end_with_parent

    end_with_parent(signal.SIGINT)
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # Ctrl-C reaches all of them; the parent reports it
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes of one `start_processes`."""

    def __init__(self, processes, errors):
        self.processes = processes
        self._errors = errors
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The process numbers."""
        return [int(process.pid) for process in self.processes]

    def _join_rest(self, timeout: float | None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        for process in self.processes:
            process.join(None if end is None else max(0, end - time.monotonic()))

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for all processes, or for the first failure, which it raises when it has ended the others.

        timeout, in seconds: False when some still run. grace_period: how long the others may take to end by
        themselves, then they are terminated; those that stay are killed after 30 s.
        """
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(self.sentinels.keys(), timeout=timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        if grace_period is not None:
            self._join_rest(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_rest(30)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self._raise(failed)

    def _raise(self, index: int):
        process = self.processes[index]
        text = None
        try:
            if self._errors[index].poll():
                text = self._errors[index].recv()
        except (EOFError, OSError):
            pass
        if text is not None:
            raise ProcessRaisedException(f"\n\n-- Process {index} terminated with the following error:\n{text}", index, process.pid)
        if process.exitcode < 0:
            try:
                name = signal.Signals(-process.exitcode).name
            except ValueError:
                name = f"<Unknown signal {-process.exitcode}>"
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, process.exitcode, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {process.exitcode}", index, process.pid,
                                     process.exitcode)


class SpawnContext(ProcessContext):
    """The processes of one `spawn`."""


def start_processes(fn, args=(), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"):
    """Starts nprocs processes that call fn(i, *args), i from 0; see `spawn`."""
    return _start(ProcessContext, fn, args, nprocs, join, daemon, start_method)


def _start(cls, fn, args, nprocs, join, daemon, start_method):
    context = get_context(start_method)
    processes, errors = [], []
    try:
        for i in range(nprocs):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(fn, i, args, sender), daemon=daemon)
            with named("spawn", fn=fn, args=args):
                process.start()
            sender.close()
            processes.append(process)
            errors.append(receiver)
    except BaseException:
        for process in processes:
            process.kill()
            process.join()
        raise
    result = cls(processes, errors)
    if not join:
        return result
    while not result.join():
        pass
    return None


def spawn(fn, args=(), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"):
    """Starts nprocs processes that call fn(i, *args), i from 0.

    The first one that fails ends the others, and its exception is raised with its traceback (ProcessRaisedException), or
    its exit code or signal (ProcessExitedException). join=False: returns a context with `join()` at once. The processes
    end when their parent does.
    """
    if start_method != "spawn":

        warn(f"spawn: this method only supports start_method=spawn, got {start_method}; use start_processes",
             FutureWarning)
    return _start(SpawnContext, fn, args, nprocs, join, daemon, "spawn")
