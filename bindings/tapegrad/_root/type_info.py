"""finfo and iinfo: the limits of dtypes."""

from .. import _C

__all__ = ["finfo", "iinfo"]

# bits, digits of the significand (with the hidden one), largest exponent, decimal digits that survive
_FLOATS = {_C.float32: (32, 24, 128, 6), _C.float64: (64, 53, 1024, 15), _C.float16: (16, 11, 16, 3),
           _C.bfloat16: (16, 8, 128, 2)}
# eps, smallest, largest, smallest normal number. That of e5m2fnuz has PyTorch's eps, which is half of the format's.
_FLOAT8 = {_C.float8_e4m3fn: (2.0**-3, -448.0, 448.0, 2.0**-6), _C.float8_e4m3fnuz: (2.0**-3, -240.0, 240.0, 2.0**-7),
           _C.float8_e5m2: (2.0**-2, -57344.0, 57344.0, 2.0**-14), _C.float8_e5m2fnuz: (2.0**-3, -57344.0, 57344.0, 2.0**-15),
           _C.float8_e8m0fnu: (1.0, 2.0**-127, 2.0**127, 2.0**-127)}
_INTEGERS = {_C.uint8: (0, 255), _C.int8: (-128, 127), _C.int16: (-(2**15), 2**15 - 1), _C.int32: (-(2**31), 2**31 - 1),
             _C.int64: (-(2**63), 2**63 - 1), _C.uint16: (0, 2**16 - 1), _C.uint32: (0, 2**32 - 1), _C.uint64: (0, 2**64 - 1)}


def _name(dtype) -> str:
    return repr(dtype).partition(".")[2]


class _Limits:
    """Two are equal where class and dtype are."""

    __slots__ = ()

    def __eq__(self, other):
        return isinstance(other, type(self)) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)


class finfo(_Limits):
    """Limits of a floating dtype (of the parts of a complex one)."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, type=None):
        dtype = _C._functions[""]["get_default_dtype"]() if type is None else type
        real = dtype.to_real() if isinstance(dtype, _C.dtype) else dtype
        if real in _FLOAT8:
            self.bits, self.resolution, self.dtype = 8, 1.0, _name(real)
            self.eps, self.min, self.max, self.tiny = _FLOAT8[real]
            self.smallest_normal = self.tiny
            return
        if real not in _FLOATS:
            raise TypeError(f"finfo: expected a floating dtype: got {dtype}\nuse tapegrad.iinfo for integers")
        self.bits, digits, exponent, decimals = _FLOATS[real]
        self.eps = 2.0 ** (1 - digits)
        self.max = (2.0 - self.eps) * 2.0 ** (exponent - 1)
        self.min = -self.max
        self.smallest_normal = self.tiny = 2.0 ** (2 - exponent)
        self.resolution = float(f"1e-{decimals}")
        self.dtype = _name(real)

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo(_Limits):
    """Limits of an integer dtype."""

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type):
        if type not in _INTEGERS:
            raise TypeError(f"iinfo: expected an integer dtype: got {type}\nuse tapegrad.finfo for floating ones")
        self.min, self.max = _INTEGERS[type]
        self.bits = 8 * type.itemsize
        self.dtype = _name(type)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
