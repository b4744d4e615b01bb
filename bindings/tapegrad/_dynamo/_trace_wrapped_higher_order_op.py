"""The one name of PyTorch's file of this name that libraries use."""

from __future__ import annotations

from contextlib import nullcontext

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(nullcontext):
    """A context in which `x[i]` takes tensors of one element as indices under vmap; they always are taken here."""
