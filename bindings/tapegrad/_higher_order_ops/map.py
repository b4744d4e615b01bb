"""`map`: a function of each slice of a dimension."""

from __future__ import annotations

from .. import Tensor
from ..utils._pytree import tree_flatten, tree_unflatten
from .trees import stacked

__all__ = ["map"]


def map(f, xs, *args):
    """f(x, *args) for each x along dimension 0 of the tensors in xs, stacked along dimension 0. Raises RuntimeError for arguments and
    results that do not fit."""
    leaves, structure = tree_flatten(xs)
    if not callable(f):
        raise RuntimeError(f"map: expected a function: got {f}")
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    shapes = [leaf.shape for leaf in leaves]
    if any(not shape or shape[0] != (shapes[0] or (0,))[0] for shape in shapes):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}.")
    if shapes[0][0] == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    rows = zip(*(leaf.unbind(0) for leaf in leaves), strict=True)
    return stacked([f(tree_unflatten(list(row), structure), *args) for row in rows])
