"""Errors of the processes of a launcher."""

from __future__ import annotations

__all__ = ["ChildFailedError", "record"]


class ChildFailedError(Exception):
    """A process that a launcher started has failed."""


def record(fn, error_handler=None):
    """The function itself: without a launcher its exceptions are shown by Python."""
    return fn
