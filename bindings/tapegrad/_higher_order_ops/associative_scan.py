"""Inclusive scans with any associative function."""

from __future__ import annotations

from .. import Tensor, cat
from ..func import vmap
from ..utils._pytree import tree_flatten, tree_unflatten
from .trees import canonical_dim, check_rows, check_scanned

__all__ = ["associative_scan"]


def _interleave(even, odd):
    """Rows of two tensors in turn; the first has as many as the second, or one more."""
    pairs = odd.shape[0]
    mixed = cat([even[:pairs].unsqueeze(1), odd.unsqueeze(1)], 1).flatten(0, 1)
    return mixed if even.shape[0] == pairs else cat([mixed, even[pairs:]])


def _scan(combine, rows: list) -> list:
    """Scans dimension 0 in a logarithmic number of calls: neighbours are combined in pairs, the pairs scanned, the gaps filled.

    Blelloch, "Prefix sums and their applications" (1990).
    """
    length = rows[0].shape[0]
    if length == 1:
        return rows
    odd = _scan(combine, combine([r[:-1:2] for r in rows], [r[1::2] for r in rows]))
    if length == 2:
        even = [r[:1] for r in rows]
    else:
        before = odd if length % 2 else [r[:-1] for r in odd]
        even = [cat([r[:1], filled]) for r, filled in zip(rows, combine(before, [r[2::2] for r in rows]), strict=True)]
    return [_interleave(e, o) for e, o in zip(even, odd, strict=True)]


def _check(combine_fn, leaves: list, dim, reverse, combine_mode) -> None:
    check_scanned(combine_fn, dim, reverse, ValueError)
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise ValueError("xs leaves must be a Tensor")
    if combine_mode == "pointwise" and any(leaf.device.type not in ("cuda", "xpu") for leaf in leaves):
        raise ValueError("For combine_mode='pointwise', all input tensors need to be on CUDA or XPU")
    if any(leaf.is_sparse for leaf in leaves):
        raise ValueError("xs leaves must dense Tensors, consider using `to_dense()`")


def associative_scan(combine_fn, xs, dim: int, reverse: bool = False, combine_mode: str = "pointwise"):
    """The running results of an associative function along `dim`: x0, f(x0, x1), f(f(x0, x1), x2) and so on.

    combine_fn takes and gives slices without the dimension, in the structure of xs (a tensor, or tuples, lists and dictionaries of
    tensors of one length along dim). It is called for many slices at once by vmap, so that it must not look at values. `reverse` starts
    at the end. `combine_mode` is "generic"; "pointwise" is a promise that only kernels of a GPU use, and refused on the CPU as in
    PyTorch. Returns what has the shapes of xs. Raises ValueError and IndexError for arguments that do not fit, RuntimeError for such results.
    """
    leaves, structure = tree_flatten(xs)
    _check(combine_fn, leaves, dim, reverse, combine_mode)
    dim = canonical_dim(leaves[0], dim)
    check_rows(leaves, dim, ValueError)

    def on_leaves(*both):
        left, right = both[: len(leaves)], both[len(leaves):]
        results, found = tree_flatten(combine_fn(tree_unflatten(list(left), structure), tree_unflatten(list(right), structure)))
        if found != structure:
            raise RuntimeError(f"The structure of combine_fn's result must be that of xs: expected {structure}, got {found}")
        for result, x in zip(results, left, strict=True):
            if not isinstance(result, Tensor) or result.shape != x.shape:
                raise RuntimeError(f"combine_fn must give tensors of the shapes of xs: expected {tuple(x.shape)}, got "
                                   f"{tuple(result.shape) if isinstance(result, Tensor) else result!r}")
        return tuple(results)

    combine = vmap(on_leaves)
    rows = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        rows = [r.flip(0) for r in rows]
    rows = _scan(lambda left, right: list(combine(*left, *right)), rows)
    if reverse:
        rows = [r.flip(0) for r in rows]
    return tree_unflatten([r.movedim(0, dim) for r in rows], structure)
