"""Functions of sparse tensors."""

from __future__ import annotations

from . import _C
from ._root.legacy import sparse_types
from ._root.sparse import sparse_coo_tensor

globals().update(sparse_types())
_root = _C._functions[""]

__all__ = ["addmm", "mm", "sparse_coo_tensor", "sum"]


def mm(mat1, mat2):
    """The product of a sparse and a dense matrix."""
    return _root["mm"](mat1, mat2)


def addmm(mat, mat1, mat2, *, beta=1, alpha=1):
    """beta mat + alpha mat1 mat2 with a sparse mat1."""
    return mat * beta + _root["mm"](mat1, mat2) * alpha


def sum(input, dim=None, dtype=None):
    """The sum of all elements of a sparse tensor, or a sparse tensor of the sums over some of its sparse dimensions."""
    if dim is None:
        return input._values().sum(dtype=dtype)
    dims = {d % input.dim() for d in ([dim] if isinstance(dim, int) else dim)}
    count = input.sparse_dim()
    if any(d >= count for d in dims):
        raise NotImplementedError(f"sparse.sum: only sparse dimensions can be summed: got {sorted(dims)} of {count}")
    kept = [d for d in range(count) if d not in dims]
    values = input._values() if dtype is None else input._values().to(dtype)
    if not kept:
        return values.sum(0)
    return sparse_coo_tensor(input._indices()[kept], values, [s for d, s in enumerate(input.shape) if d not in dims])
