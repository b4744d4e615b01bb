"""TAPEGRAD_RECORD=1: the modules that a program calls are compiled, and the program stays as it is."""

from __future__ import annotations

import threading

from .. import _C
from .._root.recording import state as recording
from ._compile import compile


class _State(threading.local):
    inside = False  # a call of a module, whose children are part of it


_state = _State()
_plain = _C._ModuleBase.__call__


def _call(self, *args, **kwargs):
    if _state.inside or recording.recording or recording.exporting or "_is_replica" in self.__dict__:
        return _plain(self, *args, **kwargs)
    _state.inside = True
    try:
        if "forward" not in self.__dict__ and hasattr(type(self), "forward"):
            compile(self)
        return _plain(self, *args, **kwargs)
    finally:
        _state.inside = False


def modules(enabled: bool) -> bool:
    """Whether each module that is called from now on is compiled as by `compile(module)`, but for those that are called by another one. The
    variable TAPEGRAD_RECORD=1 of the environment says so for a program as it is. Those that were compiled stay so. Returns what it was."""
    from ..nn.module import Module

    before = Module.__dict__.get("__call__") is _call
    if enabled and not before:
        Module.__call__ = _call
    elif before and not enabled:
        del Module.__call__
    return before
