"""What went wrong in the processes of a launcher: each writes its exception to a file, the launcher shows the first one.

The files are PyTorch's ($TORCHELASTIC_ERROR_FILE, JSON), so that ranks of both libraries may have launchers of both.
"""

import contextlib
import dataclasses
import faulthandler
import functools
import json
import os
import signal
import socket
import sys
import time
import traceback
from datetime import datetime

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

_NOT_AVAILABLE = "<N/A>"
_MOST_BYTES = 1 << 20  # of an error file


class ErrorHandler:
    """Writes exceptions to the file that the launcher has named."""

    def _get_error_file_path(self) -> str | None:
        return os.environ.get("TORCHELASTIC_ERROR_FILE") or None

    def initialize(self) -> None:
        """Called before the program: crashes show where they happened."""
        with contextlib.suppress(Exception):  # standard error may be no file
            faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        """Writes an exception with its traceback."""
        self._write(f"{type(e).__name__}: {e}", "".join(traceback.format_exception(type(e), e, e.__traceback__)))

    def _write(self, message: str, trace: str) -> None:
        path = self._get_error_file_path()
        if path is None:
            return
        data = {"message": {"message": message, "extraInfo": {"py_callstack": trace, "timestamp": str(int(time.time()))}}}
        with contextlib.suppress(OSError):  # the exception itself is what matters
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8", errors="backslashreplace") as file:
                json.dump(data, file)
            os.replace(file.name, path)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Passes a child's error on to this process's own launcher."""
        path = self._get_error_file_path()
        data = _read(rootcause_error_file)
        if path is None or data is None:
            return
        if error_code and isinstance(data.get("message"), dict):
            data["message"]["errorCode"] = error_code
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)


def get_error_handler() -> ErrorHandler:
    """The handler of this process."""
    return ErrorHandler()


def _read(path: str) -> dict | None:
    """An error file; None where there is none, or it is none."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


@dataclasses.dataclass
class ProcessFailure:
    """How one rank failed."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict = dataclasses.field(init=False)
    message: object = dataclasses.field(init=False)
    timestamp: int = dataclasses.field(init=False)

    def __post_init__(self):
        data = _read(self.error_file)
        self.timestamp, self._order = int(time.time()), 0
        if data is not None and "message" in data:
            self.error_file_data, self.message = data, data["message"]
            with contextlib.suppress(Exception):
                self.timestamp = int(self.message["extraInfo"]["timestamp"])
            with contextlib.suppress(OSError):  # the first failure and those that it caused may be of one second
                self._order = os.stat(self.error_file).st_mtime_ns
            return
        self.error_file_data, self.error_file = {"message": "<NONE>"}, _NOT_AVAILABLE
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.message = "it wrote no error file: what it printed says more"

    def signal_name(self) -> str:
        """The signal that ended the process."""
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.exitcode).name if self.exitcode < 0 else _NOT_AVAILABLE
        return _NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """When it failed, as text."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def text(self) -> str:
        """The traceback, or what else is known."""
        if not isinstance(self.message, dict):
            return str(self.message)
        extra = self.message.get("extraInfo")
        text = extra.get("py_callstack") if isinstance(extra, dict) else None
        return str(text or self.message.get("message", _NOT_AVAILABLE)).rstrip().replace("\n", "\n  ")


class ChildFailedError(Exception):
    """Ranks that a launcher started have failed."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]):
        if not failures:
            raise AssertionError("ChildFailedError: there are no failures")
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Rank and failure of the one that failed first."""
        rank = min(self.failures, key=lambda r: (self.failures[r].timestamp, self.failures[r]._order))
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """All failures, the first one last."""
        first, _ = self.get_first_failure()
        texts = {rank: self._format(i, rank, failure) for i, (rank, failure) in enumerate(self.failures.items())}
        title = f"{self.name} FAILED"
        width = min(60, max(len(line) for text in (title, *texts.values()) for line in text.split("\n")))
        others = "\n".join(text for rank, text in texts.items() if rank != first) or "  <NO_OTHER_FAILURES>"
        border, section = boarder_delim * width, section_delim * width
        return "\n".join(("", border, title, section, "Failures:", others, section, "Root Cause (first observed failure):", texts[first], border))

    @staticmethod
    def _format(i: int, rank: int, failure: ProcessFailure) -> str:
        name = failure.signal_name()
        return (f"[{i}]:\n  time      : {failure.timestamp_isoformat()}\n  host      : {socket.gethostname()}\n"
                f"  rank      : {rank} (local_rank: {failure.local_rank})\n"
                f"  exitcode  : {failure.exitcode} (pid: {failure.pid}){'' if name == _NOT_AVAILABLE else f' ({name})'}\n"
                f"  error_file: {failure.error_file}\n  traceback : {failure.text()}")


def record(fn, error_handler: ErrorHandler | None = None):
    """Decorates the main function of a rank: what it raises is shown by the launcher."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as e:
            if e.code == 0:
                return None
            raise
        except ChildFailedError as e:
            _, failure = e.get_first_failure()
            if failure.error_file != _NOT_AVAILABLE:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as e:
            handler.record_exception(e)
            raise

    return wrapper


def record_uncaught() -> None:
    """Exceptions that end this process are written for its launcher, also where the program has no `record`."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or getattr(sys.excepthook, "of_launcher", False):
        return
    before = sys.excepthook

    def hook(kind, value, trace):
        if issubclass(kind, Exception) and not os.path.exists(path):
            get_error_handler().record_exception(value.with_traceback(trace))
        before(kind, value, trace)

    hook.of_launcher = True
    sys.excepthook = hook
