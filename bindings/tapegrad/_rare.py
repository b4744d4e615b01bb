"""Names of the root module that few scripts use. They are imported when asked for."""

from __future__ import annotations

import enum

from . import _C
from ._absent import missing_class


class _ForeignDType:
    """A dtype of PyTorch that tensors here cannot have. It can be compared and be a key of a table."""

    def __init__(self, name: str, itemsize: int, is_floating_point: bool = False, is_complex: bool = False, is_signed: bool = True):
        self._name, self.itemsize, self.is_signed = name, itemsize, is_signed
        self.is_floating_point, self.is_complex = is_floating_point, is_complex

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


for _name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"):
    globals()[_name] = _ForeignDType(_name, 1, is_floating_point=True)
for _name, _size in {"uint16": 2, "uint32": 4, "uint64": 8, "quint8": 1, "quint4x2": 1, "bits8": 1}.items():
    globals()[_name] = _ForeignDType(_name, _size, is_signed=False)
for _name, _size in {"qint8": 1, "qint32": 4}.items():
    globals()[_name] = _ForeignDType(_name, _size)
complex32 = _ForeignDType("complex32", 4, is_complex=True)


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
    return importlib.import_module(f"{__package__}.{name}")


def spmm(input, mat2):
    """The matrix product; the first matrix may be sparse."""
    from . import sparse

    return sparse.mm(input, mat2) if input.is_sparse else _C._functions[""]["mm"](input, mat2)


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) or false_fn(*operands), as an if statement chooses."""
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond: expected a tuple of operands: got {type(operands).__name__}")
    return true_fn(*operands) if bool(pred) else false_fn(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """Calls body_fn on its own results while cond_fn of them is true."""
    values = tuple(carried_inputs)
    while bool(cond_fn(*values)):
        new = body_fn(*values)
        values = tuple(new) if isinstance(new, (tuple, list)) else (new,)
    return values


def _assert(condition, message: str) -> None:
    """AssertionError with the message unless the condition holds."""
    assert condition, message
