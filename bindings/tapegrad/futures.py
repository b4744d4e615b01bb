"""Results that come later. Operations are complete when their call returns, so a future only ever waits for another thread."""

from __future__ import annotations

import threading
import types

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that set_result or set_exception gives; wait() returns it or raises."""

    def __init__(self, *, devices=None):
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._value = self._error = None
        self._callbacks: list = []

    __class_getitem__ = classmethod(types.GenericAlias)  # Future[int] in annotations

    def done(self) -> bool:
        """Whether there is a value or an exception."""
        return self._done.is_set()

    def wait(self):
        """The value, once it is there; raises what set_exception was given."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def value(self):
        """The value; RuntimeError before it is there."""
        if not self.done():
            raise RuntimeError("Future.value: there is no value yet: call wait()")
        return self.wait()

    def _finish(self, value, error) -> None:
        with self._lock:
            if self._done.is_set():
                raise RuntimeError("Future: the result was set already")
            self._value, self._error = value, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        if callbacks:
            self._run_callbacks(callbacks)

    def _run_callbacks(self, callbacks: list) -> None:
        for callback in callbacks:
            callback(self)

    def set_result(self, result) -> None:
        """Gives the value; callbacks run now. RuntimeError if there is one."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Gives an exception, which wait() raises."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"Future.set_exception: expected an exception: got {type(result).__name__}")
        self._finish(None, result)

    def add_done_callback(self, callback) -> None:
        """Calls callback(self) once done, at once if it is."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback) -> Future:
        """A future of callback(self)."""
        result = Future()

        def run(future):
            try:
                value = callback(future)
            except BaseException as error:
                result.set_exception(error)
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result


def collect_all(futures) -> Future:
    """A future of the list of futures, done when all are."""
    futures, result = list(futures), Future()
    left, lock = [len(futures)], threading.Lock()
    if not futures:
        result.set_result([])

    def one_done(_):
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            errors = [future._error for future in futures if future._error is not None]
            result.set_exception(errors[0]) if errors else result.set_result(futures)

    for future in futures:
        future.add_done_callback(one_done)
    return result


def wait_all(futures) -> list:
    """The values of all futures."""
    return [future.wait() for future in collect_all(futures).wait()]
