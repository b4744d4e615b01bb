"""Pinned memory, for what has it."""

import collections.abc

from .... import Tensor
from ..collate import _like

__all__ = ["pin_memory"]


def pin_memory(data, device=None):
    """The data with its tensors pinned; without a GPU they stay as they are."""
    if isinstance(data, Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return _like(data, {k: pin_memory(v, device) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(v, device) for v in data))
    if isinstance(data, tuple):
        return [pin_memory(v, device) for v in data]
    if isinstance(data, collections.abc.Sequence):
        return _like(data, [pin_memory(v, device) for v in data])
    return data
