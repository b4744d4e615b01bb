"""The processes of a launcher: where their output goes, and how they fail."""

from __future__ import annotations

import enum
import os
import signal

from . import errors
from .errors import ChildFailedError, ProcessFailure

__all__ = ["ChildFailedError", "DefaultLogsSpecs", "LogsSpecs", "ProcessFailure", "SignalException", "Std", "errors", "to_map"]


class SignalException(Exception):
    """A launcher was told to end."""

    def __init__(self, msg: str, sigval: signal.Signals):
        super().__init__(msg)
        self.sigval = sigval


class Std(enum.IntFlag):
    """Standard streams."""

    NONE, OUT, ERR, ALL = 0, 1, 2, 3

    @classmethod
    def from_str(cls, vm: str):
        """ "3": both of all ranks; "0:1,1:2": the output of local rank 0 and the errors of local rank 1."""
        def one(text: str) -> Std:
            if text not in ("0", "1", "2", "3"):
                raise ValueError(f"a stream must be 0 (none), 1 (output), 2 (errors) or 3 (both): got {vm!r}")
            return cls(int(text))

        if ":" not in vm:
            return one(vm)
        pairs = [part.split(":") for part in vm.split(",")]
        if any(len(pair) != 2 or not pair[0].isdigit() for pair in pairs):
            raise ValueError(f"streams must be given as RANK:STREAM,RANK:STREAM: got {vm!r}")
        return {int(rank): one(stream) for rank, stream in pairs}


def to_map(val_or_map, local_world_size: int) -> dict:
    """One value for each local rank."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


class LogsSpecs:
    """Which streams of which ranks go to files, to the console, or to both."""

    def __init__(self, log_dir: str | None = None, redirects=Std.NONE, tee=Std.NONE, local_ranks_filter: set[int] | None = None):
        if log_dir and os.path.isfile(log_dir):
            raise NotADirectoryError(f"log_dir: {log_dir} is a file")
        self._log_dir, self._redirects, self._tee, self._filter = log_dir, redirects, tee, local_ranks_filter

    @property
    def root_log_dir(self) -> str | None:
        """The folder of the files."""
        return self._log_dir


class DefaultLogsSpecs(LogsSpecs):
    """<log_dir>/<run id>_.../attempt_<n>/<local rank>/stdout.log, stderr.log and error.json."""
