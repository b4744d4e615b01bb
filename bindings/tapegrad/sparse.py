"""Functions of sparse tensors."""

from . import _C
from ._root.legacy import sparse_types
from ._root.sparse import (
    check_sparse_tensor_invariants,
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)

globals().update(sparse_types())
_root = _C._functions[""]

__all__ = ["addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "spdiags", "sum"]


_REDUCTIONS = ("sum", "mean", "amax", "amin")


def mm(mat1, mat2, reduce=None):
    """The product of two matrices of which one or both are sparse. reduce ("sum", "mean", "amax", "amin") says how the terms of an element
    become one, over the entries that mat1 has; where it has none, there is 0."""
    if reduce is None or reduce == "sum":
        return _root["mm"](mat1, mat2)
    if reduce not in _REDUCTIONS:
        raise ValueError(f"sparse.mm: reduce must be one of {', '.join(_REDUCTIONS)}: got {reduce}")
    if not mat1._is_any_sparse or mat2._is_any_sparse:
        raise NotImplementedError(f"sparse.mm: reduce needs a sparse matrix and a dense one: got {mat1.layout} and {mat2.layout}")
    if mat1.dim() != 2 or mat2.dim() != 2 or mat1.size(1) != mat2.size(0):
        raise RuntimeError(f"sparse.mm: shapes {list(mat1.shape)} and {list(mat2.shape)} cannot be multiplied")
    if mat1.layout in (_C.sparse_bsr, _C.sparse_bsc):
        raise RuntimeError(f"sparse.mm: reduce needs a matrix of elements: got {mat1.layout}")
    rows, columns = mat1._indices()
    terms = mat1._values().unsqueeze(1) * mat2.index_select(0, columns)
    return terms.new_zeros((mat1.size(0), mat2.size(1))).scatter_reduce(0, rows.unsqueeze(1).expand_as(terms), terms, reduce, include_self=False)


def addmm(mat, mat1, mat2, *, beta=1, alpha=1):
    """beta mat + alpha mat1 mat2 with a sparse mat1."""
    return mat * beta + _root["mm"](mat1, mat2) * alpha


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """beta input + alpha mat1 mat2 at the places of input alone, a matrix of layout sparse_csr; of no other element the product is computed."""
    if input.layout != _C.sparse_csr:
        raise RuntimeError(f"sampled_addmm: Expected input to have sparse csr layout, but got {input.layout}")
    if mat1.dim() != 2 or mat2.dim() != 2 or input.dim() != 2 or mat1.size(1) != mat2.size(0) or tuple(input.shape) != (mat1.size(0), mat2.size(1)):
        raise RuntimeError(f"sampled_addmm: shapes {list(mat1.shape)} and {list(mat2.shape)} cannot be multiplied for {list(input.shape)}")
    rows, columns = _C._sparse_indices(input)
    product = (mat1.index_select(0, rows) * mat2.index_select(1, columns).t()).sum(1) * alpha
    values = _C._sparse_values(input)
    result = _C._sparse_with_values(input, product if beta == 0 else values * beta + product)
    return result if out is None else _C._sparse_write(out, result)


def softmax(input, dim, *, dtype=None):
    """Softmax along dim over the entries of a sparse tensor of coordinates: where there is none counts as minus infinity."""
    return _softmax("softmax", input, dim, dtype)


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of softmax, over the entries."""
    return _softmax("log_softmax", input, dim, dtype)


def _softmax(name, input, dim, dtype):
    if not input.is_sparse:
        raise NotImplementedError(f"sparse.{name}: expected a tensor of coordinates: got {input.layout}\nuse to_sparse_coo()")
    input = input.coalesce()
    places, values, count = input._indices(), input._values(), input.sparse_dim()
    values = values if dtype is None else values.to(dtype)
    dim = _root["arange"](input.dim())[dim].item()  # counted from the end, too, or IndexError
    if dim >= count:
        return _C._sparse_with_values(input, _root[name](values, dim - count + 1))
    # The entries that differ in this dimension alone are those of one line.
    others = [d for d in range(count) if d != dim]
    line = places[others].unique(dim=1, return_inverse=True)[1] if others else places[0] * 0
    lines = int(line.max()) + 1 if line.numel() else 0
    at = line.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)
    most = values.detach().new_zeros((lines, *values.shape[1:])).scatter_reduce(0, at, values.detach(), "amax", include_self=False)
    shifted = values - most.index_select(0, line)
    total = values.new_zeros(most.shape).index_add(0, line, shifted.exp()).index_select(0, line)
    return _C._sparse_with_values(input, shifted - total.log() if name == "log_softmax" else shifted.exp() / total)


def spdiags(diagonals, offsets, shape, layout=None):
    """A matrix with the rows of `diagonals` on the diagonals that `offsets` names: element j of a row in column j, as far as it is within."""
    if layout not in (None, _C.sparse_coo, _C.sparse_csc, _C.sparse_csr):
        raise RuntimeError(f"spdiags: Only output layouts (sparse_coo, sparse_csc, sparse_csr) are supported, got {layout}")
    for wrong, text in ((len(shape) != 2, "Output shape must be 2d"), (diagonals.dim() not in (1, 2), "Diagonals must be vector or matrix"),
                        (offsets.dim() > 1, "Offsets must be scalar or vector"), (offsets.dtype != _C.int64, f"Offset Tensor must have dtype Long but got {offsets.dtype}")):  # fmt: skip
        if wrong:
            raise RuntimeError(f"spdiags: {text}")
    diagonals, offsets = diagonals.reshape(-1, diagonals.size(-1)), offsets.reshape(-1)
    if len(diagonals) != len(offsets):
        raise RuntimeError(f"spdiags: Number of diagonals ({len(diagonals)}) does not match the number of offsets ({len(offsets)})")
    if offsets.unique().numel() != offsets.numel():
        raise RuntimeError("spdiags: Offset tensor contains duplicate values")
    column = _root["arange"](diagonals.size(1), device=diagonals.device).expand_as(diagonals)
    row = column - offsets.unsqueeze(1)
    within = (row >= 0) & (row < shape[0]) & (column < shape[1])
    made = sparse_coo_tensor(_root["stack"]([row[within], column[within]]), diagonals[within], shape)
    return made if layout in (None, _C.sparse_coo) else made.to_sparse(layout=layout)


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
