"""What scripts ask of PyTorch's compiler. Operators here are compiled already: functions come back as they are."""

from __future__ import annotations

__all__ = ["allow_in_graph", "assume_constant_result", "cudagraph_mark_step_begin", "disable", "is_compiling", "is_dynamo_compiling",
           "is_exporting", "list_backends", "reset", "set_stance"]


def is_compiling() -> bool:
    """Always false."""
    return False


def is_dynamo_compiling() -> bool:
    """Always false."""
    return False


def is_exporting() -> bool:
    """Always false."""
    return False


def disable(fn=None, recursive=True, *, reason=None):
    """The function itself; without one, a decorator that returns its function."""
    return (lambda f: f) if fn is None else fn


def allow_in_graph(fn):
    """The function itself."""
    return fn


def assume_constant_result(fn):
    """The function itself."""
    return fn


def reset() -> None:
    """Nothing is kept that could be thrown away."""


def cudagraph_mark_step_begin() -> None:
    """Accepted; no graph is replayed."""


def list_backends(exclude_tags=()) -> list:
    """None."""
    return []


class set_stance:
    """Accepted as a call, a context and a decorator."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe=False, force_backend=None):
        self.stance = stance

    def __call__(self, fn):
        return fn

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None
