"""`scan`: a state that is carried along the slices of a dimension."""

from __future__ import annotations

from .. import Tensor
from ..utils._pytree import tree_flatten, tree_unflatten
from .trees import canonical_dim, check_alike, check_rows, check_scanned, stacked

__all__ = ["scan"]


def _check(combine_fn, inits: list, leaves: list, dim, reverse) -> None:
    check_scanned(combine_fn, dim, reverse, RuntimeError)
    if not inits:
        raise RuntimeError("scan() operator requires init leaves.")
    for what, values in (("init", inits), ("xs", leaves)):
        for x in values:
            if not isinstance(x, Tensor):
                raise RuntimeError(f"All {what} leaves must be a Tensor but got {x}")


def scan(combine_fn, init, xs, *, dim: int = 0, reverse: bool = False):
    """Carries a state along dimension `dim` of the tensors in xs: (carry, y) = combine_fn(carry, x), from `init`.

    Returns the last carry and the y's, stacked along `dim` in the order of xs. `reverse` starts at the end. Carries have the shapes and
    dtypes of init. Without xs the result is (init, []). Raises RuntimeError for arguments and results that do not fit.
    """
    inits = tree_flatten(init)[0]
    leaves, structure = tree_flatten(xs)
    if not leaves:
        return init, []
    _check(combine_fn, inits, leaves, dim, reverse)
    dim = canonical_dim(leaves[0], dim)
    check_rows(leaves, dim, RuntimeError)
    rows = list(zip(*(leaf.unbind(dim) for leaf in leaves), strict=True))
    carry, out = init, []
    for row in reversed(rows) if reverse else rows:
        pair = combine_fn(carry, tree_unflatten(list(row), structure))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise RuntimeError(f"Expect combine_fn to return a tuple (next_carry, y) but got {type(pair).__name__}"
                               f"{f' of {len(pair)}' if isinstance(pair, (tuple, list)) else ''}")
        carry, y = pair
        check_alike(inits, tree_flatten(carry)[0], "init", "carry")
        out.append(y)
    return carry, stacked(out[::-1] if reverse else out, dim)
