"""Sparse tensors, in coordinate and in compressed form: how they are made, and the methods of Tensor that read them."""

from functools import wraps

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


# Layouts that are compressed: the number that the core knows each by, whether by columns, and in blocks.
_COMPRESSED = {layout: number for number, layout in enumerate((_C.sparse_csr, _C.sparse_csc, _C.sparse_bsr, _C.sparse_bsc), 2)}
_BY_COLUMNS, _IN_BLOCKS = (_C.sparse_csc, _C.sparse_bsc), (_C.sparse_bsr, _C.sparse_bsc)


class check_sparse_tensor_invariants:
    """Whether compressed tensors are also checked for entries that are not sorted, or name a place twice: a context, a decorator, and
    enable(), disable() and is_enabled(). Starts and bounds are always checked."""

    _enabled = False

    @staticmethod
    def is_enabled() -> bool:
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        check_sparse_tensor_invariants._enabled = False

    def __init__(self, enable=True):
        self.state, self.saved_state = enable, None

    def __enter__(self):
        if self.saved_state is not None:
            raise RuntimeError("This context manager instance is already activated. Use a different context manager instance for context nesting.")
        self.saved_state = self.is_enabled()
        check_sparse_tensor_invariants._enabled = self.state

    def __exit__(self, *error) -> None:
        check_sparse_tensor_invariants._enabled, self.saved_state = self.saved_state, None

    def __call__(self, function):
        @wraps(function)
        def checked(*args, **kwargs):
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def sparse_compressed_tensor(compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
                             requires_grad=False, check_invariants=None):
    """A matrix of layout sparse_csr or sparse_bsr: the entries of row i, in the latter blocks, are those from compressed_indices[i] to before
    compressed_indices[i + 1], at plain_indices and with values (nnz, block, dense sizes ...); sparse_csc and sparse_bsc: of column i. Each may
    be an array, as SciPy's matrices have them. With dimensions in front they are a batch of matrices of as many entries each. Without
    size it is as large as the indices need. Operators: as sparse_coo_tensor. Starts and bounds are always checked, with check_invariants
    (by default as check_sparse_tensor_invariants says) order, too. Raises RuntimeError for parts that do not go together."""
    if layout not in _COMPRESSED:
        raise RuntimeError(f"sparse_compressed_tensor: expected sparse compressed tensor layout but got {layout}: one of sparse_csr, sparse_csc, sparse_bsr, sparse_bsc")
    if not isinstance(values, Tensor):
        values = _root["as_tensor"](values, dtype=dtype, device=device).clone()
    elif dtype is not None or device is not None:
        values = values.to(device=device, dtype=dtype)
    starts, others = (_root["as_tensor"](part, device=values.device) for part in (compressed_indices, plain_indices))
    starts, others = (part.to(_C.int64) if part.numel() == 0 and part.is_floating_point() else part for part in (starts, others))
    if size is None:
        batch, blocks = starts.dim() - 1, layout in _IN_BLOCKS
        height, width = values.shape[batch + 1:batch + 3] if blocks and values.dim() >= batch + 3 else (1, 1)
        extent = [max(starts.size(-1) - 1, 0) if batch >= 0 else 0, int(others.max()) + 1 if others.numel() else 0]
        rows, columns = extent[::-1] if layout in _BY_COLUMNS else extent
        size = (*starts.shape[:-1], rows * height, columns * width, *values.shape[batch + (3 if blocks else 1):])
    whole = check_sparse_tensor_invariants.is_enabled() if check_invariants is None else bool(check_invariants)
    if not requires_grad:
        return _C._sparse_compressed(_COMPRESSED[layout], starts, others, values, tuple(size), whole)
    return _C._sparse_compressed(_COMPRESSED[layout], starts, others, values.detach(), tuple(size), whole).requires_grad_()


def _of(expected, layout, starts, others, values, size, dtype, device, requires_grad, check_invariants):
    if layout not in (None, expected):
        raise RuntimeError(f"expected layout {expected} but got {layout}")
    return sparse_compressed_tensor(starts, others, values, size, dtype=dtype, layout=expected, device=device, requires_grad=requires_grad,
                                    check_invariants=check_invariants)


def _constructor(expected):
    def by_rows(crow_indices, col_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
                    check_invariants=None):
        return _of(expected, layout, crow_indices, col_indices, values, size, dtype, device, requires_grad, check_invariants)

    def by_columns(ccol_indices, row_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
                    check_invariants=None):
        return _of(expected, layout, ccol_indices, row_indices, values, size, dtype, device, requires_grad, check_invariants)

    made = by_columns if expected in _BY_COLUMNS else by_rows
    made.__name__ = made.__qualname__ = f"{str(expected).rpartition('.')[2]}_tensor"
    made.__doc__ = f"A matrix {'of blocks, ' if expected in _IN_BLOCKS else ''}compressed {made.__code__.co_name.replace('_', ' ')}: sparse_compressed_tensor of this layout."
    return made


sparse_csr_tensor, sparse_csc_tensor, sparse_bsr_tensor, sparse_bsc_tensor = map(_constructor, _COMPRESSED)


def _without_entries(size, layout, dtype, device):
    """A sparse tensor of zeros."""
    if layout in _IN_BLOCKS:
        raise RuntimeError(f"empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got {layout}")
    return to_sparse(_root["zeros"]((0, 0), dtype=dtype, device=device), layout=layout).new_zeros(size)


def made(function, *args, layout, **given):
    """What a function that makes tensors gives for a layout that is sparse."""
    name = function.__name__
    like = args[0] if args and isinstance(args[0], Tensor) else given.pop("input", None)
    requires_grad, dtype, device = given.pop("requires_grad", False), given.get("dtype"), given.get("device")
    if name not in ("empty", "zeros", "new_empty", "new_zeros", "empty_like", "zeros_like", "ones_like") or given.get("out") is not None:
        raise NotImplementedError(f"{name}: tensors of layout {layout} are not made by it")
    if like is not None and like._is_any_sparse and layout == like.layout and name.endswith("_like"):
        result = function(like, dtype=dtype, device=device)
    elif name in ("empty_like", "ones_like"):
        raise RuntimeError(f"{name}: empty_like with different sparse layout is not supported (self is {like.layout} but you requested {layout})")
    elif name == "zeros_like":
        result = _without_entries(tuple(like.shape), layout, dtype or like.dtype, device or like.device)
    else:
        size = args[like is not None:] or given["size"]
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        result = _without_entries(tuple(size), layout, dtype or (like.dtype if like is not None else None), device or (like.device if like is not None else None))
    return result.requires_grad_() if requires_grad else result


def _validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values, size, layout, check_pinning=None) -> None:
    """Raises what sparse_compressed_tensor with check_invariants does."""
    sparse_compressed_tensor(compressed_indices, plain_indices, values, size, layout=layout, check_invariants=True)


def _need_coalesced(self, name: str) -> None:
    if not _C._sparse_is_coalesced(self):
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")


def indices(self):
    """The places of a coalesced sparse tensor: (sparse_dim, nnz)."""
    _need_coalesced(self, "indices")
    return _C._sparse_indices(self)


def _index_of(name: str, by_columns: bool, starts: bool):
    """A method that gives one of the two vectors of indices of the compressed layouts."""
    def part(self):
        if self.layout not in _COMPRESSED or (self.layout in _BY_COLUMNS) != by_columns:
            raise RuntimeError(f"{name} expected sparse {'column' if by_columns else 'row'} compressed tensor layout but got {self.layout}")
        return compressed_parts(self)[1 if starts else 2]

    part.__name__ = name
    part.__doc__ = f"{'Where the entries of each row or column begin' if starts else 'The other index of each entry'}, for {'columns' if by_columns else 'rows'}."
    return part


_index_methods = (_index_of("crow_indices", False, True), _index_of("col_indices", False, False),
                  _index_of("ccol_indices", True, True), _index_of("row_indices", True, False))


def index_names(layout) -> tuple:
    """What the two vectors of indices of a compressed layout are called."""
    return ("ccol_indices", "row_indices") if layout in _BY_COLUMNS else ("crow_indices", "col_indices")


def compressed_parts(self) -> tuple:
    """(the layout's number, starts, indices of the other dimension, values) of a tensor of a compressed layout."""
    starts, values = _C._sparse_starts(self), _C._sparse_values(self)
    others = _C._sparse_indices(self)[-2 if self.layout in _BY_COLUMNS else -1]
    return _COMPRESSED[self.layout], starts, others.reshape(values.shape[:starts.dim()]).to(starts.dtype), values


def values(self):
    """The values of a coalesced or compressed sparse tensor: (nnz, dense sizes ...)."""
    if self.is_sparse:
        _need_coalesced(self, "values")
    found = _C._sparse_values(self)
    return found if self._base is None else found.view(found.shape)  # of what is transposed, a view like itself


def to_dense(self, dtype=None, *, masked_grad=None):
    """The dense tensor that a sparse one stands for."""
    dense = _C._sparse_to_dense(self) if self._is_any_sparse else self
    return dense if dtype is None else dense.to(dtype)


def _compressed(self, layout, blocksize, dense_dim):
    """self in a compressed layout."""
    if (blocksize is None) == (layout in _IN_BLOCKS):
        raise RuntimeError(f"to_sparse: conversion from {self.layout} to {layout} {'without' if blocksize is None else 'with'} blocksize argument given is not supported")
    if self._is_any_sparse:
        if dense_dim is not None:
            raise RuntimeError(f"to_sparse: conversion from {self.layout} to {layout} with dense_dim argument given is not supported")
    elif dense_dim is not None and not 0 <= dense_dim <= max(self.dim() - 2, 0):
        raise RuntimeError(f"to_sparse: dense_dim argument must be in [0,{max(self.dim() - 2, 0)}] range, but {dense_dim} is given")
    return _C._sparse_compress(self, _COMPRESSED[layout], (0, 0) if blocksize is None else blocksize, dense_dim or 0)


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """A sparse tensor of the elements that are not zero, over the first sparse_dim dimensions (all but the last dense_dim). In a compressed
    layout these are the last two before the dense ones, and those before are of a batch; blocksize is the height and width of blocks,
    of which those with such an element are kept."""
    if isinstance(sparse_dim, _C.layout):
        sparse_dim, layout = None, sparse_dim
    if layout in _COMPRESSED:
        return _compressed(self, layout, blocksize, dense_dim)
    if layout is not None and layout != _C.sparse_coo:
        raise NotImplementedError(f"to_sparse: expected a sparse layout: got {layout}")
    if blocksize is not None:
        raise RuntimeError(f"to_sparse: conversion from {self.layout} to {_C.sparse_coo} with blocksize argument given is not supported")
    if self._is_any_sparse:
        return self if self.is_sparse else _C._sparse_to_coo(self)
    return _C._sparse_from_dense(self, self.dim() - (dense_dim or 0) if sparse_dim is None else sparse_dim)


def to_sparse_csr(self, dense_dim=None):
    """The matrix compressed by rows; entries of one place are added."""
    return _compressed(self, _C.sparse_csr, None, dense_dim)


def to_sparse_csc(self, dense_dim=None):
    """The matrix compressed by columns; entries of one place are added."""
    return _compressed(self, _C.sparse_csc, None, dense_dim)


def to_sparse_bsr(self, blocksize, dense_dim=None):
    """The matrix in blocks of blocksize (height, width), compressed by rows; entries of one place are added."""
    return _compressed(self, _C.sparse_bsr, blocksize, dense_dim)


def to_sparse_bsc(self, blocksize, dense_dim=None):
    """The matrix in blocks of blocksize (height, width), compressed by columns; entries of one place are added."""
    return _compressed(self, _C.sparse_bsc, blocksize, dense_dim)


def sparse_mask(self, mask):
    """The elements of a dense tensor at the places of a sparse one of its shape, as a sparse tensor. Raises RuntimeError for other
    shapes, and for tensors on two devices."""
    if self.shape != mask.shape:
        raise RuntimeError(f"sparse_mask: expected a mask of the tensor's shape {tuple(self.shape)}: got {tuple(mask.shape)}")
    return _C._sparse_mask(self, mask.coalesce() if mask.is_sparse else mask)


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
    Tensor._nnz = method("_nnz", lambda t: _C._sparse_values(t).size(0 if t.is_sparse else _C._sparse_starts(t).dim() - 1), "How many entries a sparse tensor has.")
    Tensor.sparse_dim = method("sparse_dim", lambda t: (_C._sparse_indices(t).size(0) if t.is_sparse else 2) if t._is_any_sparse else 0, "How many dimensions the indices of a sparse tensor address.")
    Tensor.dense_dim = method("dense_dim", lambda t: t.dim() - _C._sparse_indices(t).size(0) if t._is_any_sparse else t.dim(), "How many dimensions each value of a sparse tensor has.")
    for function in (indices, values, to_dense, to_sparse, to_sparse_csr, to_sparse_csc, to_sparse_bsr, to_sparse_bsc, sparse_mask, _coalesced_, *_index_methods):
        setattr(Tensor, function.__name__, _asking(function))


_add_methods()
