"""One rank of a launcher: a command or a function in a process of its own, with its output where it was asked for."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from ..elastic.multiprocessing.errors import ProcessFailure, record

__all__ = ["CommandRank", "FunctionRank"]


class _Copier:
    """Copies the lines of a stream to a file, and to the console with a prefix."""

    def __init__(self, path: Path, console, prefix: str):
        self._read, self.write = os.pipe()
        self._file, self._console, self._prefix = open(path, "wb"), console, prefix.encode()  # noqa: SIM115  the thread closes it
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Once the rank has the other end."""
        os.close(self.write)
        self._thread.start()

    def _run(self) -> None:
        with os.fdopen(self._read, "rb") as lines, self._file:
            for line in lines:
                with contextlib.suppress(OSError, ValueError):  # a full disk, a closed console
                    self._file.write(line)
                    self._file.flush()
                with contextlib.suppress(OSError, ValueError):
                    self._console.buffer.write(self._prefix + line if line.endswith(b"\n") else self._prefix + line + b"\n")
                    self._console.flush()

    def finish(self) -> None:
        """Waits for the last lines; a grandchild may keep the stream open."""
        self._thread.join(1)


class _Rank:
    """What commands and functions share. `redirects` and `tees` are Std flags."""

    def __init__(self, local_rank: int, environment: dict, folder: Path, redirects: int, tees: int, prefix: str):
        self.local_rank, self.environment, self.folder = local_rank, environment, folder
        folder.mkdir(parents=True)
        self.error_file = str(folder / "error.json")
        environment["TORCHELASTIC_ERROR_FILE"] = self.error_file
        self.copiers, self.streams, self._opened = [], {}, []
        for bit, name, console in ((1, "stdout", sys.stdout), (2, "stderr", sys.stderr)):
            path = folder / f"{name}.log"
            if tees & bit:
                copier = _Copier(path, console, prefix)
                self.copiers.append(copier)
                self.streams[name] = copier.write
            elif redirects & bit:
                self.streams[name] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                self._opened.append(self.streams[name])

    def _started(self) -> None:
        for copier in self.copiers:
            copier.start()
        for fd in self._opened:
            os.close(fd)

    def send_signal(self, number: int) -> None:
        """A signal to the rank and to what it has started."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def finish(self) -> None:
        """After its end."""
        for copier in self.copiers:
            copier.finish()

    def failure(self) -> ProcessFailure:
        return ProcessFailure(self.local_rank, self.pid, self.poll(), self.error_file)


class CommandRank(_Rank):
    """A program."""

    def __init__(self, command: list, *rest):
        super().__init__(*rest)
        self._process = subprocess.Popen(command, env={**os.environ, **self.environment}, start_new_session=True,
                                         **{name: fd for name, fd in self.streams.items()})
        self.pid = self._process.pid
        self._started()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def result(self):
        """Programs give nothing."""


def _run_function(fn, args, environment: dict, streams: dict, launcher: int, results) -> None:
    from ...multiprocessing._parent import end_with_parent

    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # a forked rank has the launcher's handlers
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_with_parent(signal.SIGKILL, launcher)
    os.environ.update(environment)
    for name, path in streams.items():
        fd = os.open(path, os.O_WRONLY)
        os.dup2(fd, 1 if name == "stdout" else 2)
        os.close(fd)
    try:
        results.send(record(fn)(*args))
    except Exception:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        raise SystemExit(1) from None
    finally:
        results.close()


class FunctionRank(_Rank):
    """A Python function, by fork, spawn or forkserver."""

    def __init__(self, start_method: str, fn, args: tuple, *rest):
        super().__init__(*rest)
        from ...multiprocessing import get_context

        context = get_context(start_method)
        self._results, theirs = context.Pipe(duplex=False)
        self._result, self._got = None, False
        paths = {name: f"/proc/{os.getpid()}/fd/{fd}" for name, fd in self.streams.items()}
        self._process = context.Process(target=_run_function, args=(fn, args, self.environment, paths, os.getpid(), theirs))
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)  # a fresh interpreter reads some of it before the function runs
        try:
            self._process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        theirs.close()
        self.pid = self._process.pid
        self._wait_for_streams()
        self._started()

    def _wait_for_streams(self) -> None:
        """The rank opens its streams by this process's descriptors: they stay until it has, or has ended."""
        import time

        wanted = {os.fstat(fd).st_ino for fd in self.streams.values()}
        while wanted and self._process.is_alive():
            with contextlib.suppress(OSError):
                if wanted <= {os.stat(f"/proc/{self.pid}/fd/{n}").st_ino for n in (1, 2)}:
                    return
            time.sleep(0.005)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if not self._got and self._results.poll():
            self._got = True  # a large result is taken while the rank sends it
            with contextlib.suppress(EOFError, OSError):
                self._result = self._results.recv()
        return self._process.exitcode

    def result(self):
        """What the function gave."""
        self.poll()
        return self._result
