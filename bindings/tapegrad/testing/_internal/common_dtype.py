"""Groups of dtypes, by the names that PyTorch's tests have for them: `floating_types()`, `all_types_and(torch.half)` ..."""

import sys

_tg = sys.modules[__package__.partition(".")[0]]


class _dispatch_dtypes(tuple):
    """A group; groups add up to a group."""

    __slots__ = ()

    def __add__(self, other):
        return _dispatch_dtypes((*self, *other))


def is_dtype(value) -> bool:
    """Whether it is a dtype, also one that is a name alone."""
    return isinstance(value, (_tg.dtype, type(_tg.quint8)))


def _checked(dtypes):
    for dtype in dtypes:
        if not is_dtype(dtype):
            raise AssertionError(f"common_dtype: a dtype was expected: got {dtype!r}")
    return dtypes


_REAL = (_tg.float32, _tg.float64)
_INTEGRAL = (_tg.uint8, _tg.int8, _tg.int16, _tg.int32, _tg.int64)
_COMPLEX = (_tg.complex64, _tg.complex128)
_FLOAT8 = (_tg.float8_e4m3fn, _tg.float8_e4m3fnuz, _tg.float8_e5m2, _tg.float8_e5m2fnuz)
_GROUPS = {"empty_types": (), "floating_types": _REAL, "floating_types_and_half": (*_REAL, _tg.float16), "floating_and_complex_types": _REAL + _COMPLEX,
           "double_types": (_tg.float64, _tg.complex128), "integral_types": _INTEGRAL, "all_types": _REAL + _INTEGRAL, "complex_types": _COMPLEX,
           "all_types_and_complex": _REAL + _INTEGRAL + _COMPLEX, "all_types_and_half": (*_REAL, *_INTEGRAL, _tg.float16), "float8_types": _FLOAT8,
           "all_mps_types": (_tg.float32, _tg.float16, _tg.bfloat16, *_INTEGRAL)}  # fmt: skip


def _group(name: str, members: tuple):
    """`name()`, the group itself, and `name_and(*dtypes)`, with others added."""
    group = _dispatch_dtypes(members)

    def plain():
        return group

    def extended(*dtypes):
        return group + _checked(dtypes)

    for function, called, doc in ((plain, name, "The group"), (extended, f"{name}_and", "The group and the dtypes given")):
        function.__name__ = function.__qualname__ = called
        function.__doc__ = f"{doc}: {', '.join(map(str, group)) or 'empty'}."
        globals()[called] = function


for _name, _members in _GROUPS.items():
    _group(_name, _members)


def all_types_complex_float8_and(*dtypes):
    """Real, integral, complex and 8-bit floating dtypes, and those given."""
    return _dispatch_dtypes(_REAL + _INTEGRAL + _COMPLEX + _FLOAT8) + _checked(dtypes)


def custom_types(*dtypes):
    """A group of those given."""
    return _dispatch_dtypes(_checked(dtypes))


def get_all_int_dtypes() -> list:
    return list(_INTEGRAL)


def get_all_fp_dtypes(include_half: bool = True, include_bfloat16: bool = True) -> list:
    return [*_REAL, *([_tg.float16] if include_half else []), *([_tg.bfloat16] if include_bfloat16 else [])]


def get_all_complex_dtypes(include_complex32: bool = False) -> list:
    return [*([_tg.complex32] if include_complex32 else []), *_COMPLEX]


def get_all_qint_dtypes() -> list:
    return [_tg.qint8, _tg.quint8, _tg.qint32, _tg.quint4x2, _tg.quint2x4]


def get_all_dtypes(include_half=True, include_bfloat16=True, include_bool=True, include_complex=True, include_complex32=False, include_qint=False) -> list:
    """All dtypes of numbers, in PyTorch's order."""
    return [*_INTEGRAL, *get_all_fp_dtypes(include_half, include_bfloat16), *([_tg.bool] if include_bool else []),
            *(get_all_complex_dtypes(include_complex32) if include_complex else []), *(get_all_qint_dtypes() if include_qint else [])]


def get_all_math_dtypes(device) -> list:
    """Dtypes with arithmetic on a device; float16 on GPUs alone, as PyTorch's tests have it."""
    return get_all_int_dtypes() + get_all_fp_dtypes(device.startswith("cuda"), False) + get_all_complex_dtypes()


def highest_precision_float(device):
    return _tg.float64


def highest_precision_complex(device):
    return _tg.complex128


float_to_corresponding_complex_type_map = {_tg.float16: _tg.complex32, _tg.float32: _tg.complex64, _tg.float64: _tg.complex128}
