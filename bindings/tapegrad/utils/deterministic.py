"""Whether use_deterministic_algorithms also fills memory without values (`empty`, `resize_`): with NaN, the largest integer
or True, so that what reads it by mistake gives the same each time, and shows it."""

import sys
import types

from .._root import settings


class _Switches(types.ModuleType):
    """This module: its switch is a property."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """On at the start; without deterministic algorithms it does nothing."""
        return settings._deterministic["fill"]

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, on: bool) -> None:
        if type(on) is not bool:
            raise RuntimeError(f"utils.deterministic.fill_uninitialized_memory: expected a bool, but got {type(on).__name__}")
        settings._set_deterministic(fill=on)


sys.modules[__name__].__class__ = _Switches
