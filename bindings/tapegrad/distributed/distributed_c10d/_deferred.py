"""Futures whose steps run on the thread that waits for them.

A step of a gradient hook (`work.get_future().then(step)`) may call collectives itself. On the group's own thread it would wait for
itself, and on any other one the ranks' calls would come in different orders. While DistributedDataParallel calls a hook, `deferring` makes
works give futures of this kind; it waits for them in the order of the buckets, which is the same on all ranks.
"""

import contextlib
import threading

from ...futures import Future

__all__ = ["DeferredFuture", "deferred", "deferring"]

_state = threading.local()


@contextlib.contextmanager
def deferring():
    """Within this, on this thread, deferred() is true."""
    before = deferred()
    _state.on = True
    try:
        yield
    finally:
        _state.on = before


def deferred() -> bool:
    """Whether a work's future should be a DeferredFuture."""
    return getattr(_state, "on", False)


class DeferredFuture(Future):
    """The value of make(), which the first wait() calls."""

    def __init__(self, make):
        super().__init__()
        self._make, self._making = make, threading.RLock()

    def _settle(self) -> None:
        with self._making:
            make, self._make = self._make, None
            if make is None:
                return
            with deferring():
                try:
                    value = make()
                except BaseException as error:
                    self.set_exception(error)
                    if not isinstance(error, Exception):
                        raise
                else:
                    self.set_result(value)

    def wait(self):
        """The value; its steps run now if they have not."""
        self._settle()
        return super().wait()

    value = wait

    def add_done_callback(self, callback) -> None:
        """Calls callback(self) once the steps have run, which they do now."""
        self._settle()
        super().add_done_callback(callback)

    def then(self, callback) -> Future:
        """A future of callback(self), deferred, too."""
        def make():
            self._settle()
            return callback(self)

        return DeferredFuture(make)
