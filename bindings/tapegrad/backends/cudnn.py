"""Switches of cuDNN, which computes convolutions, attention and recurrent networks on devices when it is there; on the CPU they change nothing.

`enabled`: ask it at all. `benchmark`: measure its algorithms once per shape (`benchmark_limit` of them, 0: all) instead of asking
its heuristics; what is fastest may differ between runs, and algorithms that sum in another order each time are allowed, unless
`deterministic` or use_deterministic_algorithms forbids them. `allow_tf32`: float32 operands may be rounded to TF32 (10 bits
of mantissa); off until a program asks for it, unlike in PyTorch.
"""

import contextlib as _contextlib
import sys as _sys
import types as _types

from .. import _C

__all__ = ["conv", "flags", "is_acceptable", "is_available", "rnn", "set_flags", "version"]

_NUMBERS = {"enabled": 0, "benchmark": 1, "benchmark_limit": 2, "deterministic": 3, "allow_tf32": 5}  # of aten/cudnn_switches.h
_precision = "none"
_found: int | None = None


def version() -> int | None:
    """The version of cuDNN, such as 91300 for 9.13.0; None where devices do without it."""
    global _found
    from .. import cuda

    if _found is None and cuda.is_available():
        libraries = cuda.library_versions()  # cuDNN ends the process where it misses cuBLASLt, and is not used then
        _found = libraries.get("cudnn", {}).get("version") if "version" in libraries.get("cublas_lt", {}) else None
    return _found


def is_available() -> bool:
    """Whether there is a device and a cuDNN for it."""
    return version() is not None


def is_acceptable(tensor) -> bool:
    """Whether cuDNN would be asked for a convolution of the tensor."""
    return bool(_C._cuda_cudnn_switch(_NUMBERS["enabled"]) and tensor.is_cuda and str(tensor.dtype).rpartition(".")[2] in ("float16", "bfloat16", "float32", "float64") and is_available())


def _set_precision(precision: str) -> None:
    global _precision
    if precision not in ("none", "ieee", "tf32"):
        raise RuntimeError(f"backends.cudnn.fp32_precision: expected none, ieee or tf32: got {precision!r}")
    _precision = precision
    _C._cuda_cudnn_switch(_NUMBERS["allow_tf32"], int(precision == "tf32"))


def _property(name: str, kind: type) -> property:
    def get(module):
        return kind(_C._cuda_cudnn_switch(_NUMBERS[name]))

    def set(module, value):
        if type(value) is not kind or (kind is int and not 0 <= value < 1 << 31):
            raise RuntimeError(f"backends.cudnn.{name}: expected {'a bool' if kind is bool else 'a number from 0'}: got {value!r}")
        if name == "allow_tf32":
            _set_precision("tf32" if value else "ieee")
        else:
            _C._cuda_cudnn_switch(_NUMBERS[name], int(value))

    return property(get, set)


class _Precision:
    """The precision of float32 in one kind of operators; `fp32_precision` is "none" or "ieee" (float32) or "tf32"."""

    fp32_precision = property(lambda self: _precision, lambda self, value: _set_precision(value))


conv = _Precision()
rnn = _Precision()


class _Module(_types.ModuleType):
    enabled = _property("enabled", bool)
    benchmark = _property("benchmark", bool)
    benchmark_limit = _property("benchmark_limit", int)
    deterministic = _property("deterministic", bool)
    allow_tf32 = _property("allow_tf32", bool)
    fp32_precision = _Precision.fp32_precision


_sys.modules[__name__].__class__ = _Module


def set_flags(_enabled=None, _benchmark=None, _benchmark_limit=None, _deterministic=None, _allow_tf32=None, _fp32_precision="none"):
    """Sets switches, None leaving one as it is, and returns what they were."""
    module = _sys.modules[__name__]
    wanted = {"enabled": _enabled, "benchmark": _benchmark, "benchmark_limit": _benchmark_limit, "deterministic": _deterministic,
              "allow_tf32": _allow_tf32, "fp32_precision": None if _fp32_precision == "none" else _fp32_precision}
    before = tuple(getattr(module, name) for name in wanted)
    for name, value in wanted.items():
        if value is not None:
            setattr(module, name, value)
    return before


@_contextlib.contextmanager
def flags(enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=False, fp32_precision="none"):
    """Sets the switches for the length of a with block."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    try:
        yield
    finally:
        set_flags(*before[:5])
        _set_precision(before[5])
