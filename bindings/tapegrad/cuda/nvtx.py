"""NVTX markers for NVIDIA's profilers; without a GPU they do nothing."""

import contextlib as _contextlib

from .. import _C

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_depth = 0
_MARK, _PUSH, _POP, _START, _END = 0, 1, 2, 3, 4


def range_push(msg: str) -> int:
    """Opens a nested range; the result is its depth, from 0."""
    global _depth
    _C._cuda_mark(_PUSH, msg)
    _depth += 1
    return _depth - 1


def range_pop() -> int:
    """Closes the innermost range; the result is its depth."""
    global _depth
    _C._cuda_mark(_POP, "")
    _depth = max(_depth - 1, 0)
    return _depth


def range_start(msg: str) -> int:
    """Opens a range that need not be nested."""
    return _C._cuda_mark(_START, msg)


def range_end(range_id: int) -> None:
    """Closes a range of range_start."""
    _C._cuda_mark(_END, "", range_id)


def mark(msg: str) -> None:
    """Marks a moment."""
    _C._cuda_mark(_MARK, msg)


@_contextlib.contextmanager
def range(msg: str, *args, **kwargs):
    """A range around a with block; a decorator, too."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
