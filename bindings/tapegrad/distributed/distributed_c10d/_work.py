"""Calls of collectives: done, under way or failed. Any thread; Ctrl-C ends a wait and not the call."""

import math
from datetime import timedelta

from ...futures import Future, collect_all
from ._deferred import DeferredFuture, deferred
from ._types import DistBackendError

__all__ = ["Work"]


def _milliseconds(timeout) -> int:
    """-1, the group's own limit, for None, a negative and a zero time (PyTorch's kNoTimeout)."""
    if timeout is None:
        return -1
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    return -1 if timeout <= timedelta(0) else math.ceil(timeout.total_seconds() * 1000)


class Work:
    """What a collective gives with async_op=True. This one is done, with a result; classes of backends derive from it."""

    def __init__(self, result=None):
        self._result = result

    def wait(self, timeout=None) -> bool:
        """True once it is done. Raises what the call ended with."""
        return True

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""
        return True

    def is_success(self) -> bool:
        """Whether it is done and has not failed."""
        return self.is_completed() and self.exception() is None

    def exception(self):
        """What it ended with, None if with success."""
        return None

    def result(self):
        """The tensors, once it is done."""
        return self._result

    def synchronize(self) -> None:
        """wait(), for tensors on the host."""
        self.wait()

    def block_current_stream(self) -> None:
        """wait(), too."""
        self.wait()

    def source_rank(self) -> int:
        """The rank in its group from which a receive came."""
        raise RuntimeError("Work.source_rank: only receives have one")

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> Future:
        """A future of the list of tensors."""
        future = Future()
        future.set_result(self._result)
        return future

    def _wait_for_result(self):
        self.wait()
        return self._result

    def __repr__(self) -> str:
        return f"<tapegrad.distributed.Work, {'done' if self.is_completed() else 'under way'}>"


class EngineWork(Work):
    """A call of the engine."""

    def __init__(self, call, result):
        self._call, self._result = call, result

    def wait(self, timeout=None) -> bool:
        """True once it is done. Raises what the call ended with; DistBackendError after `timeout` (a timedelta)."""
        limit = -1 if timeout is None else _milliseconds(timeout)
        if not self._call.wait(limit):
            raise DistBackendError(f"Work.wait: Operation timed out! It is not done after {limit} ms")
        return True

    def is_completed(self) -> bool:
        return self._call.is_completed()

    def exception(self):
        return self._call.exception()

    def result(self):
        if not self.is_completed():
            raise RuntimeError("Work.result: the call is not done: call wait()")
        self.wait()
        return self._result

    def source_rank(self) -> int:
        return self._call.source()

    def get_future(self) -> Future:
        if deferred():
            return DeferredFuture(self._wait_for_result)
        future = Future()

        def done():
            error = self._call.exception()
            if error is None:
                future.set_result(self._result)
            else:
                future.set_exception(error)

        self._call.then(done)
        return future


class WorkOfMany(Work):
    """Several calls that are waited for as one."""

    def __init__(self, works: list, result=None):
        self._works, self._result = works, result

    def wait(self, timeout=None) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def exception(self):
        return next((e for e in (work.exception() for work in self._works) if e is not None), None)

    def get_future(self) -> Future:
        if deferred():
            return DeferredFuture(self._wait_for_result)
        return collect_all([work.get_future() for work in self._works]).then(lambda all_done: (all_done.wait(), self._result)[1])
