"""Results of asynchronous work. Operations are complete when their call returns, so a future only ever waits for another thread."""

from __future__ import annotations

import logging
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
                raise RuntimeError("Future can only be marked completed once: there is a result")
            self._value, self._error = value, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        if callbacks:
            self._run_callbacks(callbacks)

    def _run_callbacks(self, callbacks: list) -> None:
        for at, callback in enumerate(callbacks):
            try:
                callback(self)
            except Exception:  # as in PyTorch: who gives the result is not who gave the callback, and others wait for theirs
                logging.getLogger(__name__).exception("Future: a callback raised an exception, which is ignored")
            except BaseException:
                self._run_callbacks(callbacks[at + 1:])
                raise

    def set_result(self, result) -> None:
        """Gives the value; callbacks run now. RuntimeError if there is one."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Gives an exception, which wait() raises."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"Future.set_exception: expected an exception: got {type(result).__name__}")
        self._finish(None, result)

    def add_done_callback(self, callback) -> None:
        """Calls callback(self) once done, at once if it is. Its exceptions are logged and ignored."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        Future._run_callbacks(self, [callback])  # here, whatever thread a subclass has for those that waited

    def then(self, callback) -> Future:
        """A future of callback(self). An exception of the callback is a RuntimeError of that future, caused by it."""
        result = Future()

        def run(future):
            try:
                value = callback(future)
            except Exception as error:
                failed = RuntimeError(f"Got the following error when running the callback: {type(error).__name__}: {error}")
                failed.__cause__ = error
                result.set_exception(failed)
            except BaseException as error:
                result.set_exception(error)
                raise
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result


def collect_all(futures) -> Future:
    """A future of the list of futures, done when all are."""
    futures, result = list(futures), Future()
    if any(future is None for future in futures):
        raise RuntimeError("Future can't be None")
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
