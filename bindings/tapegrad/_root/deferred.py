"""Rarely used names of the root module. The module is imported when one of them is first used."""

import enum
import math

from .. import _C
from ..compat.absent import missing_class
from .overloads import overridable


class _ForeignDType:
    """A dtype of PyTorch that tensors here cannot have. It can be compared and be a key of a table."""

    is_floating_point = is_complex = False

    def __init__(self, name: str, itemsize: int):
        self._name, self.itemsize = name, itemsize

    @property
    def is_signed(self) -> bool:
        """As in PyTorch, unknown of quantised numbers."""
        if self._name.startswith("q"):
            raise RuntimeError(f"is_signed: not supported for quantized dtypes: {self!r}")
        return False

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


for _name in ("quint8", "quint4x2", "quint2x4", "bits8"):
    globals()[_name] = _ForeignDType(_name, 1)
for _name, _size in {"qint8": 1, "qint32": 4}.items():
    globals()[_name] = _ForeignDType(_name, _size)


class _Word:
    """A layout or a way of quantising that tensors here cannot have."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


jagged = _Word("jagged")
per_tensor_affine, per_tensor_symmetric = _Word("per_tensor_affine"), _Word("per_tensor_symmetric")
per_channel_affine, per_channel_symmetric = _Word("per_channel_affine"), _Word("per_channel_symmetric")


class Tag(enum.Enum):
    """What PyTorch says of operators."""

    core, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace_view, maybe_aliasing_or_mutating, \
        needs_exact_strides, needs_fixed_stride_order, nondeterministic_bitwise, nondeterministic_seeded, pointwise, \
        pt2_compliant_tag, reduction, view_copy = range(15)


_WHY = "there is no accelerator whose work could be queued: ask tapegrad.accelerator.is_available() first"
Stream = missing_class("Stream", _WHY, RuntimeError, doc="A queue of work on an accelerator.")
PyTorchFileReader = missing_class("PyTorchFileReader", "files are read by load and serialization.open_file")
PyTorchFileWriter = missing_class("PyTorchFileWriter", "files are written by save")
Event = missing_class("Event", _WHY, RuntimeError, doc="A mark in a stream.")


def get_device_module(device=None):
    """The module of a device's kind: tapegrad.cpu or tapegrad.cuda."""
    import importlib

    if device is None:
        name = "cpu"
    else:
        name = (device if isinstance(device, _C.device) else _C.device(device)).type
    if name not in ("cpu", "cuda"):
        raise RuntimeError(f"get_device_module: there is no module of device {name}")
    return importlib.import_module(f"...{name}", __name__)


@overridable
def spmm(input, mat2):
    """The matrix product; the matrices may be sparse."""
    return _C._functions[""]["mm"](input, mat2)


@overridable
def _convert_indices_from_coo_to_csr(input, size, *, out_int32=False):
    """Where the entries of each of `size` rows begin, of the sorted rows of all entries."""
    ops = _C._functions[""]
    return ops["searchsorted"](input, ops["arange"](size + 1, dtype=input.dtype, device=input.device), out_int32=out_int32)


@overridable
def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False):
    """The coordinates (2, entries) of a matrix compressed by rows; with transpose those of its transpose."""
    ops = _C._functions[""]
    rows = ops["repeat_interleave"](crow_indices.diff(), output_size=col_indices.numel()).to(col_indices.dtype)
    both = ops["stack"]((col_indices, rows) if transpose else (rows, col_indices))
    return both.to(_C.int32 if out_int32 else _C.int64)


@overridable
def dsmm(input, mat2):
    """The product of a sparse matrix and a dense one."""
    return _C._functions[""]["mm"](input, mat2)


@overridable
def hspmm(mat1, mat2):
    """The product of a sparse matrix of coordinates and a dense one, as a sparse tensor of the rows that have entries."""
    from .sparse import sparse_coo_tensor

    if not mat1.is_sparse or mat2._is_any_sparse:
        raise RuntimeError(f"hspmm: expected a sparse matrix of coordinates and a dense one: got {mat1.layout} and {mat2.layout}")
    mm = _C._functions[""]["mm"]
    rows, at = mat1._indices()[0].unique(return_inverse=True)
    kept = sparse_coo_tensor(_C._functions[""]["stack"]([at, mat1._indices()[1]]), mat1._values(), (rows.numel(), mat1.size(1)))
    return sparse_coo_tensor(rows.unsqueeze(0), mm(kept, mat2), (mat1.size(0), mat2.size(1)), is_coalesced=True)


@overridable
def hsmm(input, mat2):
    """hspmm under its old name."""
    return hspmm(input, mat2)


@overridable
def smm(input, mat2):
    """The product of a sparse matrix of coordinates and a dense one, as a sparse matrix: hspmm, element by element."""
    from .sparse import sparse_coo_tensor

    rows = hspmm(input, mat2)
    count, width = rows._nnz(), mat2.size(1)
    ops = _C._functions[""]
    places = ops["stack"]([rows._indices()[0].repeat_interleave(width), ops["arange"](width, device=mat2.device).repeat(count)])
    return sparse_coo_tensor(places, rows._values().reshape(-1), rows.shape, is_coalesced=True)


@overridable
def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta input + alpha mat1 mat2 of sparse matrices of coordinates and a dense mat2, as a sparse matrix."""
    return input * beta + smm(mat1, mat2) * alpha


@overridable
def saddmm(input, mat1, mat2, *, beta=1, alpha=1):
    """sspaddmm under its old name."""
    return sspaddmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _assert(condition, message: str) -> None:
    """AssertionError with the message unless the condition holds."""
    assert condition, message


def _check(cond, message=None) -> None:
    """RuntimeError with message() unless the condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_with(error_type, cond, message=None) -> None:
    """An error of the type with message() unless the condition holds. Raises TypeError for a condition that is no bool."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error_type("Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
                         "enhancement request to PyTorch.)" if message is None else str(message() if callable(message) else message))


def _check_tensor_all(cond, message=None) -> None:
    """RuntimeError with message() unless all elements of a tensor of bools are true."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(RuntimeError, cond.all().item(), message)


def _amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale) -> None:
    """What amp.GradScaler does to a list of gradients: each becomes its product with inv_scale, and found_inf 1 where one is not finite."""
    _C._unscale(list(self), found_inf, inv_scale)


def _amp_update_scale_(self, growth_tracker, found_inf, scale_growth_factor: float, scale_backoff_factor: float, growth_interval: int):
    """What amp.GradScaler does to its factor after a step; returns it."""
    from ..amp.grad_scaler import move_scale

    move_scale(self, growth_tracker, found_inf != 0, scale_growth_factor, scale_backoff_factor, growth_interval)
    return self


def _check_index(cond, message=None) -> None:
    """IndexError with message() unless the condition holds."""
    _check_with(IndexError, cond, message)


def _check_value(cond, message=None) -> None:
    """ValueError with message() unless the condition holds."""
    _check_with(ValueError, cond, message)


def _check_type(cond, message=None) -> None:
    """TypeError with message() unless the condition holds."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond, message=None) -> None:
    """NotImplementedError with message() unless the condition holds."""
    _check_with(NotImplementedError, cond, message)


def _assert_async(input, assert_msg: str = "") -> None:
    """RuntimeError unless the one element of a tensor is true; on the CPU at once."""
    if input.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with " + ("no values" if input.numel() == 0 else "more than one value") + " is ambiguous")
    _check(bool(input), lambda: assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check_is_size(i, message=None, *, max=None) -> None:
    """RuntimeError with message() if a size is negative."""
    _check(i >= 0, message)


def _shape_as_tensor(input):
    """The shape as a tensor of int64."""
    return _C._functions[""]["tensor"](list(input.shape), dtype=_C.int64)


@overridable
def sym_int(a) -> int:
    """The number cut to an int."""
    return math.floor(a) if a >= 0 else math.ceil(a)


@overridable
def sym_float(a) -> float:
    """The number as a float."""
    return float(a)


@overridable
def sym_not(a) -> bool:
    """not a."""
    return not a


@overridable
def sym_max(a, b):
    """The larger number; a float if one is."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


@overridable
def sym_min(a, b):
    """The smaller number; a float if one is."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_sum(args):
    """The sum of numbers."""
    if _C._has_torch_function(args):
        return _C._handle_torch_function(sym_sum, args, args)
    return sum(args)


@overridable
def sym_ite(b, t, f):
    """t if b else f."""
    return t if b else f


_removed = {"symeig": "linalg.eigh(A, UPLO) gives the same values and vectors",
            "eig": "linalg.eig gives complex values and vectors",
            "matrix_rank": "linalg.matrix_rank(A, hermitian=...)",
            "lstsq": "linalg.lstsq(A, B).solution; the order of the operands is the other way round",
            "solve": "linalg.solve(A, B); the order of the operands is the other way round"}


def _refuse(name: str):
    def function(*args, **kwargs):
        raise RuntimeError(f"{name}: This function was deprecated since version 1.9 and is now removed: use {_removed[name]}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Removed: {_removed[name]}."
    return function


symeig, eig, lstsq, matrix_rank, solve = map(_refuse, ("symeig", "eig", "lstsq", "matrix_rank", "solve"))
