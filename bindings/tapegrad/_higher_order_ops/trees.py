"""What control flow operators ask of trees of tensors."""

from __future__ import annotations

from .. import Tensor, stack
from ..utils._pytree import tree_flatten, tree_unflatten


def describe(value) -> str:
    """A tensor by dtype and shape, anything else by its text."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _difference(left, right) -> str:
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        both_ints = isinstance(left, int) and isinstance(right, int)
        return "" if both_ints else f"type: {type(left).__name__} vs {type(right).__name__}"
    return ", ".join(f"'{name}: {a} vs {b}'" for name, a, b in (("shape", left.shape, right.shape), ("dtype", left.dtype, right.dtype),
                                                                ("device", left.device, right.device)) if a != b)


def check_alike(lefts: list, rights: list, left_name: str, right_name: str) -> None:
    """RuntimeError unless both have as many values, and tensors of one shape, dtype and device or integers in the same places."""
    if len(lefts) != len(rights):
        raise RuntimeError(f"Expected {left_name} and {right_name} to have same number of outputs but got lhs:"
                           f"[{', '.join(map(describe, lefts))}] and rhs:[{', '.join(map(describe, rights))}]")
    if all(a is b or isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and a.dtype is b.dtype and a.device == b.device
           for a, b in zip(lefts, rights)):
        return
    differences = [f"pair[{i}] differ in {found}, where lhs is {describe(a)} and rhs is {describe(b)}"
                   for i, (a, b) in enumerate(zip(lefts, rights)) if (found := _difference(a, b))]
    if differences:
        raise RuntimeError(f"Expected {left_name} and {right_name} to have same metadata but found:\n" + "\n".join(differences))


def check_scanned(combine_fn, dim, reverse, error: type) -> None:
    """An error for arguments of a scan that are of another kind."""
    if not callable(combine_fn):
        raise error(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise error(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")


def canonical_dim(leaf, dim: int) -> int:
    """dim counted from 0; IndexError where a tensor has no such dimension."""
    ndim = max(leaf.ndim, 1)
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return dim % ndim


def check_rows(leaves: list, dim: int, error: type) -> None:
    """An error unless all tensors have one length above 0 along a dimension."""
    if any(leaf.ndim <= dim or leaf.shape[dim] == 0 for leaf in leaves):
        raise error("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    if any(leaf.shape[dim] != leaves[0].shape[dim] for leaf in leaves):
        raise error(f"All xs leaves must have one length along dimension {dim}: got shapes {[tuple(leaf.shape) for leaf in leaves]}")


def stacked(results: list, dim: int = 0):
    """A tree of the stacked leaves of trees of one structure, along a new dimension `dim`, or 0 where there are not as many."""
    flat = [tree_flatten(result) for result in results]
    for leaves, structure in flat[1:]:
        if structure != flat[0][1]:
            raise RuntimeError(f"expected results of one structure: got {flat[0][1]} and {structure}")
        check_alike(leaves, flat[0][0], "a later result", "the first one")
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree_unflatten([stack(column, dim if dim <= column[0].ndim else 0) for column in columns], flat[0][1])
