"""Utilities: data loading, hooks."""

from . import data, hooks
from ._swap import swap_tensors

__all__ = ["data", "hooks", "swap_tensors"]
