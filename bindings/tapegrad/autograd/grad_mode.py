"""Scopes that turn recording on and off. Each is a context manager and a decorator, also of generators."""

from __future__ import annotations

import functools
import inspect
import sys

from .._C._autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
           "set_multithreading_enabled"]


def _decorate(mode, function):
    """The function run inside `mode`; of a class, a subclass is not made: its __init__ runs inside."""
    if inspect.isclass(function):
        function.__init__ = _decorate(mode, function.__init__)
        return function
    if inspect.isgeneratorfunction(function):
        return _decorate_generator(mode, function)
    if inspect.iscoroutinefunction(function):
        @functools.wraps(function)
        async def asynchronous(*args, **kwargs):
            with mode.clone():
                return await function(*args, **kwargs)

        return asynchronous

    @functools.wraps(function)
    def inside(*args, **kwargs):
        with mode.clone():
            return function(*args, **kwargs)

    return inside


def _decorate_generator(mode, function):
    """Each step of the generator runs inside; what its caller does between steps runs outside."""

    @functools.wraps(function)
    def steps(*args, **kwargs):
        generator = function(*args, **kwargs)
        try:
            with mode.clone():
                value = next(generator)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    with mode.clone():
                        generator.close()
                    raise
                except BaseException:
                    with mode.clone():
                        value = generator.throw(*sys.exc_info()[1:2])
                else:
                    with mode.clone():
                        value = generator.send(sent)
        except StopIteration as end:
            return end.value

    return steps


class set_multithreading_enabled:
    """Accepted for scripts that set it: backward runs on the calling thread."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception) -> None:
        return None
