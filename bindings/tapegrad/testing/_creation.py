"""make_tensor: random tensors of a shape, dtype and range."""

import math

from .. import _C
from .._root.type_info import finfo
from .._warn import warn

_ops = _C._functions[""]
_BOUNDS = {_C.uint8: (0, 255), _C.int8: (-128, 127), _C.int16: (-2**15, 2**15 - 1), _C.int32: (-2**31, 2**31 - 1),
           _C.int64: (-2**63, 2**63 - 1), _C.uint16: (0, 2**16 - 1), _C.uint32: (0, 2**32 - 1), _C.uint64: (0, 2**64 - 1)}


def make_tensor(*shape, dtype, device, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False,
                memory_format=None):
    """A tensor of uniformly drawn values in [low, high); by default [-9, 9), [0, 10) for uint8 and {0, 1} for bool.

    `noncontiguous` leaves gaps between the elements, `exclude_zero` replaces zeros by the smallest other value,
    `memory_format` is that of the result. ValueError where low >= high or where both options of memory are given.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(f"make_tensor: noncontiguous and memory_format exclude each other: got {noncontiguous=} and {memory_format=}")
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"make_tensor: requires_grad needs a floating or complex dtype: got {dtype}")
    low, high = _range(dtype, low, high)
    wanted = [*shape[:-1], 2 * shape[-1]] if noncontiguous and shape and math.prod(shape) > 1 else list(shape)
    if dtype == _C.bool:
        result = _ops["randint"](0, 2, wanted, device=device, dtype=dtype)
    elif dtype in _BOUNDS:
        result = _ops["randint"](int(low), int(high), wanted, device=device, dtype=dtype)
    elif dtype.is_complex:
        result = _ops["empty"](wanted, device=device, dtype=_C.complex128 if dtype == _C.complex128 else _C.complex64)
        _ops["view_as_real"](result).uniform_(low, high)
        result = result.to(dtype)
    else:
        wide = dtype if dtype in (_C.float32, _C.float64) else _C.float32
        result = _ops["empty"](wanted, device=device, dtype=wide).uniform_(low, high).to(dtype)
        result.clamp_(low, math.nextafter(high, low)) if wide == dtype and low < high else None
    if exclude_zero:
        result[result == 0] = 1 if dtype in _BOUNDS or dtype == _C.bool else 1e-4
    if wanted != list(shape):
        result = result[..., ::2]
    if memory_format is not None:
        result = result.contiguous(memory_format=memory_format)
    return result.requires_grad_(requires_grad) if requires_grad else result


def _range(dtype, low, high):
    """The range of draws within what the dtype holds."""
    if dtype == _C.bool:
        return 0, 2
    first, last = (0, 10) if not dtype.is_signed else (-9, 10) if dtype in _BOUNDS else (-9.0, 9.0)
    low, high = first if low is None else low, last if high is None else high
    if low != low or high != high:
        raise ValueError(f"make_tensor: low and high must be numbers: got {low} and {high}")
    if low == high and dtype not in _BOUNDS:
        warn("Passing `low==high` to `make_tensor` for floating or complex types is deprecated. Use `full(...)` instead.", FutureWarning)
    elif not low < high:
        raise ValueError(f"make_tensor: low must be less than high: got {low} and {high}")
    if dtype in _BOUNDS:
        smallest, largest = _BOUNDS[dtype]
        return max(math.ceil(low), smallest), min(math.ceil(high), largest)
    largest = finfo(dtype).max
    return max(low, -largest), min(high, largest)
