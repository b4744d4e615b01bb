"""Errors for what cannot be sent to a spawned process, with its name."""

import contextlib
import pickle
from multiprocessing.reduction import ForkingPickler

ERRORS = (pickle.PicklingError, TypeError, AttributeError)


def unsendable(value, name: str, depth: int = 4) -> str | None:
    """The innermost part of a value that pickle refuses, such as "dataset.lines (a generator)"; None where all of it can be sent."""
    try:
        ForkingPickler.dumps(value)
        return None
    except ERRORS:
        pass
    inside = [(f"{name}[{key!r}]", part) for key, part in value.items()] if isinstance(value, dict) else \
        [(f"{name}[{i}]", part) for i, part in enumerate(value)] if isinstance(value, (list, tuple)) else \
        [(f"{name}.{key}", part) for key, part in getattr(value, "__dict__", {}).items()]
    found = (unsendable(part, place, depth - 1) for place, part in inside if depth)
    return next(filter(None, found), f"{name} ({_kind(value)})")


def _kind(value) -> str:
    return f"the function {value.__name__}" if callable(value) and hasattr(value, "__name__") else f"a {type(value).__name__}"


@contextlib.contextmanager
def named(where: str, **parts):
    """Inside, an error of pickle says which of the parts it is about."""
    try:
        yield
    except ERRORS as error:
        for name, part in parts.items():
            if place := unsendable(part, name):
                raise type(error)(f"{where}: {place} cannot be sent to another process: {error}\nprocesses that are forked get it without: "
                                  "start_method \"fork\"; or make it inside the process") from error
        raise
