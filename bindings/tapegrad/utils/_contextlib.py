"""Contexts that are decorators, too, as PyTorch has them for libraries: subclasses define `__enter__` and `__exit__`."""

import functools
import inspect

from .._warn import warn

__all__ = []


def _within_each_step(make, function):
    """A generator function whose steps run within a context of their own; what is between them does not."""
    @functools.wraps(function)
    def stepped(*args, **kwargs):
        generator = function(*args, **kwargs)
        step, given = generator.send, (None,)
        try:
            while True:
                with make():
                    value = step(*given)
                try:
                    given = ((yield value),)
                    step = generator.send
                except GeneratorExit:
                    with make():
                        generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001  thrown into the generator, whatever it is
                    step, given = generator.throw, (error,)
        except StopIteration as end:
            return end.value

    return stepped


def context_decorator(context, function):
    """`function` within a context: `context` is one, or makes a new one for each call."""
    if callable(context) and hasattr(context, "__enter__"):
        raise AssertionError(f"context_decorator: {context} is both callable and a context: give one of them")
    make = context if callable(context) else lambda: context
    if inspect.isclass(function):
        raise RuntimeError(f"context_decorator: cannot decorate a class: {function.__qualname__}; decorate its methods")
    if inspect.isgeneratorfunction(function):
        return _within_each_step(make, function)

    @functools.wraps(function)
    def within(*args, **kwargs):
        with make():
            return function(*args, **kwargs)

    return within


class _DecoratorContextManager:
    """Base of contexts that decorate functions and generator functions: each call, and each step of a generator, has a copy."""

    def __call__(self, orig_func):
        if inspect.isclass(orig_func):
            warn("Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
                 "methods: here __init__ is decorated", FutureWarning)
            orig_func.__init__ = self(orig_func.__init__)
            return orig_func
        return context_decorator(self.clone, orig_func)

    def __enter__(self):
        raise NotImplementedError

    def __exit__(self, exc_type, exc_value, traceback):
        raise NotImplementedError

    def clone(self):
        """A new context: subclasses whose `__init__` takes arguments give them on."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, also without parentheses: `@context` above a function."""

    def __new__(cls, orig_func=None):
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
