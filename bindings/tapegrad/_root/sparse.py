"""Sparse tensors in coordinate form: how they are made, and the methods of Tensor that read them."""

from __future__ import annotations

from .. import _C

Tensor = _C.Tensor
_root = _C._functions[""]


def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False,
                      check_invariants=None, is_coalesced=None):
    """A tensor that is zero but for `values` (nnz, ...) at `indices` (sparse_dim, nnz); values at the same place add up. Without
    size it is as large as the indices need. sparse_coo_tensor(size) is empty. Its operators: addition (also of a dense and a sparse
    one, and into a dense one), products with numbers and dense matrices, transposition, to, coalesce, to_dense; others refuse it.

    It is on `device`, else where values are, else where they would be made; indices that are no tensor go there. On a CUDA device a size
    that is left out waits for the indices, and one that is out of bounds is raised as IndexError by the next wait. Raises RuntimeError
    for indices and values on two devices, or of sizes that do not go together."""
    if values is None:  # the form with a size alone
        size = tuple(indices)
        indices, values = _root["empty"]((len(size), 0), dtype=_C.int64, device=device), _root["empty"]((0,), dtype=dtype, device=device)
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
    if requires_grad:
        raise NotImplementedError("sparse_coo_tensor: a sparse tensor is no leaf of the tape\nlet values require a gradient")
    return _C._sparse_make(indices, values, size, bool(is_coalesced))


def _need_coalesced(self, name: str) -> None:
    if not _C._sparse_is_coalesced(self):
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")


def indices(self):
    """The places of a coalesced sparse tensor: (sparse_dim, nnz)."""
    _need_coalesced(self, "indices")
    return _C._sparse_indices(self)


def values(self):
    """The values of a coalesced sparse tensor: (nnz, dense sizes ...)."""
    _need_coalesced(self, "values")
    return _C._sparse_values(self)


def to_dense(self, dtype=None, *, masked_grad=None):
    """The dense tensor that a sparse one stands for."""
    dense = _C._sparse_to_dense(self) if self.is_sparse else self
    return dense if dtype is None else dense.to(dtype)


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """A sparse tensor of the elements that are not zero, over the first sparse_dim dimensions (all)."""
    if layout is not None and layout != _C.sparse_coo:
        raise NotImplementedError(f"to_sparse: only sparse_coo is there: got {layout}")
    if self.is_sparse:
        return self
    return _C._sparse_from_dense(self, self.dim() if sparse_dim is None else sparse_dim)


def sparse_mask(self, mask):
    """The elements of a dense tensor at the places of a sparse one of its shape, as a sparse tensor. Raises RuntimeError for other
    shapes, and for tensors on two devices."""
    if self.shape != mask.shape:
        raise RuntimeError(f"sparse_mask: expected a mask of the tensor's shape {tuple(self.shape)}: got {tuple(mask.shape)}")
    mask = mask.coalesce()
    return _C._sparse_with_values(mask, self[tuple(mask._indices().unbind(0))])


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
    Tensor.sparse_dim = method("sparse_dim", lambda t: _C._sparse_indices(t).size(0) if t.is_sparse else 0, "How many dimensions the indices of a sparse tensor address.")
    Tensor.dense_dim = method("dense_dim", lambda t: _C._sparse_values(t).dim() - 1 if t.is_sparse else t.dim(), "How many dimensions each value of a sparse tensor has.")
    for function in (indices, values, to_dense, to_sparse, sparse_mask):
        setattr(Tensor, function.__name__, _asking(function))


_add_methods()
