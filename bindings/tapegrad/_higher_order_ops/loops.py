"""Loops over the slices of a dimension: `map` and `scan`."""

from __future__ import annotations

from .. import stack
from ..utils._pytree import tree_flatten, tree_unflatten

__all__ = ["map", "scan"]


def leaves_of(what: str, xs, dim: int) -> tuple[list, object, int]:
    """The tensors of a tree, its structure, and dim counted from 0. Raises ValueError unless all have one length along dim, above 0."""
    leaves, structure = tree_flatten(xs)
    if not leaves:
        raise ValueError(f"{what}: expected at least one tensor: got none")
    for leaf in leaves:
        if not hasattr(leaf, "dim"):
            raise TypeError(f"{what}: expected tensors: got {type(leaf).__name__}")
    ndim = leaves[0].dim()
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    dim %= ndim
    lengths = {leaf.shape[dim] if leaf.dim() > dim else None for leaf in leaves}
    if len(lengths) != 1 or lengths & {0, None}:
        raise ValueError(f"{what}: all tensors must have one length above 0 along dimension {dim}: got shapes {[tuple(leaf.shape) for leaf in leaves]}")
    return leaves, structure, dim


def _stacked(results: list, dim: int = 0):
    """A tree of the stacked leaves of trees of one structure, along a new dimension."""
    columns = [tree_flatten(result)[0] for result in results]
    return tree_unflatten([stack(column, dim) for column in zip(*columns, strict=True)], tree_flatten(results[0])[1])


def map(f, xs, *args):
    """f(x, *args) for each x along dimension 0 of the tensors in xs, stacked along dimension 0."""
    leaves, structure, _ = leaves_of("map", xs, 0)
    return _stacked([f(tree_unflatten(list(row), structure), *args) for row in zip(*(leaf.unbind(0) for leaf in leaves), strict=True)])


def scan(combine_fn, init, xs, *, dim: int = 0, reverse: bool = False):
    """Carries a state along dimension `dim` of the tensors in xs: (carry, y) = combine_fn(carry, x), from `init`.

    Returns the last carry and the y's, stacked along `dim` in the order of xs. `reverse` starts at the end.
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    leaves, structure, dim = leaves_of("scan", xs, dim)
    rows = list(zip(*(leaf.unbind(dim) for leaf in leaves), strict=True))
    carry, out = init, []
    for row in reversed(rows) if reverse else rows:
        carry, y = combine_fn(carry, tree_unflatten(list(row), structure))
        out.append(y)
    return carry, _stacked(out[::-1] if reverse else out, dim)
