"""Scopes that turn recording on and off. Each is a context manager and a decorator, also of generators."""

import functools
import inspect
import sys

from .._C._autograd import (
    _unsafe_set_version_counter,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .._warn import warn

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
           "set_multithreading_enabled"]


def _decorate(mode, function):
    """The function run inside `mode`; of a class, a subclass is not made: its __init__ runs inside."""
    if inspect.isclass(function):
        warn("Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods: "
             "decorate its __init__ to keep what was", FutureWarning)
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


class _unsafe_preserve_version_counter:
    """Writes to these tensors inside are not counted: for code that knows that what backward needs is as it was."""

    def __init__(self, tensors) -> None:
        self.tensors = tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)
        self.versions = tuple(t._version for t in self.tensors)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception) -> None:
        _unsafe_set_version_counter(self.tensors, self.versions)


class set_multithreading_enabled:
    """A switch that is kept for scripts that ask for it, as a call and a context: backward runs on the calling thread."""

    enabled = True

    def __init__(self, mode: bool) -> None:
        self.mode, self.before = mode, set_multithreading_enabled.enabled
        set_multithreading_enabled.enabled = mode

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception) -> None:
        set_multithreading_enabled.enabled = self.before


def is_multithreading_enabled() -> bool:
    """What set_multithreading_enabled was given; true at the start."""
    return set_multithreading_enabled.enabled
