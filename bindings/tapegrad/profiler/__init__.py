"""Profiles of programs: times of operators forward and backward, per module and per line, memory, traces."""

from .. import _C as _C
from .._lazy import more_names as _more_names
from ._events import EventList, FunctionEvent, FunctionEventAvg
from .profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "attach", "kineto_available", "profile",
           "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]


__getattr__, __dir__ = _more_names(__name__)


def kineto_available() -> bool:
    """True: profile() records."""
    return True


def attach() -> None:
    """Lets the calling thread take part in the profile that runs, if there is one. Threads started meanwhile do so by themselves."""
    _C._profiler_attach()
