"""Events of profiles under the module name that scripts import them from."""

from ..profiler._events import EventList, FunctionEvent, FunctionEventAvg, Interval

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]
