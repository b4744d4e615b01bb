"""Sparse tensors, in coordinate and in compressed form: how they are made, and the methods of Tensor that read them."""

from .. import _C

Tensor = _C.Tensor
_root = _C._functions[""]


def sparse_coo_tensor(indices=None, values=None, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False,
                      check_invariants=None, is_coalesced=None):
    """A tensor that is zero but for `values` (nnz, ...) at `indices` (sparse_dim, nnz); values at the same place add up. Without
    size it is as large as the indices need. sparse_coo_tensor(size) is empty. Its operators: addition (also of a dense and a sparse
    one, and into a dense one), products with numbers and dense matrices, transposition, to, coalesce, to_dense; others refuse it.

    It is on `device`, else where values are, else where they would be made; indices that are no tensor go there. On a CUDA device a size
    that is left out waits for the indices, and one that is out of bounds is raised as IndexError by the next wait. Raises RuntimeError
    for indices and values on two devices, or of sizes that do not go together."""
    if values is None:  # the form with a size alone
        if (indices is None) == (size is None):
            raise TypeError("sparse_coo_tensor: expected indices and values, or a size alone: got "
                            + ("neither" if size is None else "indices and a size without values"))
        size = indices if size is None else size
        if not isinstance(size, (tuple, list)):
            raise TypeError(f"sparse_coo_tensor: size must be a tuple of ints: got {type(size).__name__}")
        size = tuple(size)
        indices, values = _root["empty"]((len(size), 0), dtype=_C.int64, device=device), _root["empty"]((0,), dtype=dtype, device=device)
    if indices is None:
        raise TypeError("sparse_coo_tensor: values need indices")
    if not isinstance(values, Tensor):
        values = _root["tensor"](values, dtype=dtype, device=device)
    elif dtype is not None or device is not None:
        values = values.to(device=device, dtype=dtype)
    if not isinstance(indices, Tensor):
        indices = _root["tensor"](indices, device=values.device)
        if indices.numel() == 0:
            indices = indices.to(_C.int64)
    else:
        indices = indices.to(device=device, dtype=indices.dtype if indices.dtype == _C.int32 else _C.int64)
    if values.dim() == 0:
        values = values.expand(indices.size(-1)).clone()
    if indices.dim() == 1:
        indices = indices.unsqueeze(0)
    if size is None:
        extent = [int(n) + 1 for n in indices.amax(1).tolist()] if indices.numel() else [0] * indices.size(0)
        size = (*extent, *values.shape[1:])
    if not requires_grad:
        return _C._sparse_make(indices, values, size, bool(is_coalesced))
    return _C._sparse_make(indices, values.detach(), size, bool(is_coalesced)).requires_grad_()


def _compressed(dim: int, starts, others, values, size, dtype, device, requires_grad):
    """A matrix compressed along dim from parts that may be any arrays; without size it is as large as they need."""
    if not isinstance(values, Tensor):
        values = _root["as_tensor"](values, dtype=dtype, device=device).clone()
    elif dtype is not None or device is not None:
        values = values.to(device=device, dtype=dtype)
    starts, others = (_root["as_tensor"](part, device=values.device) for part in (starts, others))
    if size is None:
        extent = [starts.numel() - 1, int(others.max()) + 1 if others.numel() else 0]
        size = (*(extent if dim == 0 else extent[::-1]), *values.shape[1:])
    if not requires_grad:
        return _C._sparse_compressed(dim, starts, others, values, tuple(size))
    return _C._sparse_compressed(dim, starts, others, values.detach(), tuple(size)).requires_grad_()


def sparse_csr_tensor(crow_indices, col_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
                      requires_grad=False, check_invariants=None):
    """A matrix compressed by rows: the entries of row i are those from crow_indices[i] to before crow_indices[i + 1], at col_indices and
    with values; each may be an array, as SciPy's csr_matrix has them. Without size it is as large as the indices need. Operators: as
    sparse_coo_tensor. The indices are always checked. Raises RuntimeError for parts that do not go together."""
    return _compressed(0, crow_indices, col_indices, values, size, dtype, device, requires_grad)


def sparse_csc_tensor(ccol_indices, row_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
                      requires_grad=False, check_invariants=None):
    """sparse_csr_tensor, compressed by columns: the entries of column j begin at ccol_indices[j]."""
    return _compressed(1, ccol_indices, row_indices, values, size, dtype, device, requires_grad)


def sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
                             requires_grad=False, check_invariants=None):
    """sparse_csr_tensor or sparse_csc_tensor, as layout says."""
    if layout not in (_C.sparse_csr, _C.sparse_csc):
        raise RuntimeError(f"sparse_compressed_tensor: expected layout sparse_csr or sparse_csc: got {layout}")
    return _compressed(0 if layout == _C.sparse_csr else 1, compressed_indices, plain_indices, values, size, dtype, device, requires_grad)


def _need_coalesced(self, name: str) -> None:
    if not _C._sparse_is_coalesced(self):
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")


def indices(self):
    """The places of a coalesced sparse tensor: (sparse_dim, nnz)."""
    _need_coalesced(self, "indices")
    return _C._sparse_indices(self)


def _index_of(name: str, layout, starts: bool):
    """A method that gives one of the two vectors of indices of a compressed layout."""
    def part(self):
        if self.layout != layout:
            raise RuntimeError(f"{name} expected sparse {'row' if layout == _C.sparse_csr else 'column'} compressed tensor layout but got {self.layout}")
        first = _C._sparse_starts(self)
        return first if starts else _C._sparse_indices(self)[1 if layout == _C.sparse_csr else 0].to(first.dtype)

    part.__name__ = name
    part.__doc__ = f"{'Where the entries of each row or column begin' if starts else 'The other index of each entry'}, for {layout}."
    return part


_index_methods = (_index_of("crow_indices", _C.sparse_csr, True), _index_of("col_indices", _C.sparse_csr, False),
                  _index_of("ccol_indices", _C.sparse_csc, True), _index_of("row_indices", _C.sparse_csc, False))


def compressed_parts(self) -> tuple:
    """(dimension, starts, indices of the other dimension, values) of a tensor of layout sparse_csr or sparse_csc."""
    dim = 0 if self.layout == _C.sparse_csr else 1
    starts, others = _index_methods[2 * dim:2 * dim + 2]
    return dim, starts(self), others(self), _C._sparse_values(self)


def values(self):
    """The values of a coalesced or compressed sparse tensor: (nnz, dense sizes ...)."""
    if self.is_sparse:
        _need_coalesced(self, "values")
    return _C._sparse_values(self)


def to_dense(self, dtype=None, *, masked_grad=None):
    """The dense tensor that a sparse one stands for."""
    dense = _C._sparse_to_dense(self) if self._is_any_sparse else self
    return dense if dtype is None else dense.to(dtype)


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """A sparse tensor of the elements that are not zero, over the first sparse_dim dimensions (all but the last dense_dim)."""
    if isinstance(sparse_dim, _C.layout):
        sparse_dim, layout = None, sparse_dim
    if layout in (_C.sparse_csr, _C.sparse_csc):
        return (to_sparse_csr if layout == _C.sparse_csr else to_sparse_csc)(self, dense_dim)
    if layout is not None and layout != _C.sparse_coo:
        raise NotImplementedError(f"to_sparse: expected sparse_coo, sparse_csr or sparse_csc: got {layout}")
    if self._is_any_sparse:
        return self if self.is_sparse else _C._sparse_to_coo(self)
    return _C._sparse_from_dense(self, self.dim() - (dense_dim or 0) if sparse_dim is None else sparse_dim)


def _compressed_of(self, dense_dim, compress):
    return compress(self if self._is_any_sparse else _C._sparse_from_dense(self, self.dim() - (dense_dim or 0)))


def to_sparse_csr(self, dense_dim=None):
    """The matrix compressed by rows; entries of one place are added."""
    return _compressed_of(self, dense_dim, _C._sparse_to_csr)


def to_sparse_csc(self, dense_dim=None):
    """The matrix compressed by columns; entries of one place are added."""
    return _compressed_of(self, dense_dim, _C._sparse_to_csc)


def sparse_mask(self, mask):
    """The elements of a dense tensor at the places of a sparse one of its shape, as a sparse tensor. Raises RuntimeError for other
    shapes, and for tensors on two devices."""
    if self.shape != mask.shape:
        raise RuntimeError(f"sparse_mask: expected a mask of the tensor's shape {tuple(self.shape)}: got {tuple(mask.shape)}")
    mask = mask.coalesce()
    return _C._sparse_with_values(mask, self[tuple(mask._indices().unbind(0))])


def _coalesced_(self, coalesced):
    """Says whether the entries are sorted, each place once, which the caller knows; nothing is looked at."""
    return _C._sparse_set_coalesced(self, coalesced)


def _add_methods() -> None:
    from .._tensor import _asking

    simple = {"coalesce": (_C._sparse_coalesce, "Sorts the entries of a sparse tensor and adds those of one place."),
              "is_coalesced": (_C._sparse_is_coalesced, "Whether the entries are sorted, each place at most once."),
              "_indices": (_C._sparse_indices, "The places of a sparse tensor as they are."),
              "_values": (_C._sparse_values, "The values of a sparse tensor as they are.")}

    def method(name, function, doc):
        def call(self):
            return function(self)

        call.__name__, call.__doc__ = name, doc
        asking = _asking(call)
        asking.__qualname__ = f"Tensor.{name}"
        return asking

    for name, (function, doc) in simple.items():
        setattr(Tensor, name, method(name, function, doc))
    Tensor._nnz = method("_nnz", lambda t: _C._sparse_values(t).size(0), "How many entries a sparse tensor has.")
    Tensor.sparse_dim = method("sparse_dim", lambda t: _C._sparse_indices(t).size(0) if t._is_any_sparse else 0, "How many dimensions the indices of a sparse tensor address.")
    Tensor.dense_dim = method("dense_dim", lambda t: _C._sparse_values(t).dim() - 1 if t._is_any_sparse else t.dim(), "How many dimensions each value of a sparse tensor has.")
    for function in (indices, values, to_dense, to_sparse, to_sparse_csr, to_sparse_csc, sparse_mask, _coalesced_, *_index_methods):
        setattr(Tensor, function.__name__, _asking(function))


_add_methods()
