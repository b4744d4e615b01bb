"""Streams and events of a GPU."""

from __future__ import annotations

from .._absent import missing_class as _missing_class
from . import _WHY, _missing

__all__ = ["Event", "ExternalStream", "Stream", "StreamContext", "set_stream", "stream"]

Stream = _missing_class("cuda.Stream", _WHY, RuntimeError, doc="A queue of work on a GPU.")
ExternalStream = _missing_class("cuda.ExternalStream", _WHY, RuntimeError, doc="A queue of work that another library made.")
Event = _missing_class("cuda.Event", _WHY, RuntimeError, doc="A mark in a stream, to wait for and to measure time.")


class StreamContext:
    """A context in which work goes to a stream; None means: no change."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            set_stream(self.stream)

    def __exit__(self, *error):
        return None


def stream(stream) -> StreamContext:
    """A context in which work goes to a stream; None means: no change."""
    return StreamContext(stream)


set_stream = _missing("set_stream")
