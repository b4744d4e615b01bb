"""Switches of CUDA's libraries."""

from __future__ import annotations

import contextlib as _contextlib

from .. import _C
from .._settings import _float32
from ._switches import switched as _switched

__all__ = ["enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "cudnn_sdp_enabled", "flash_sdp_enabled",
           "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "sdp_kernel"]

_kernels = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


class _Matmul:
    """Switches of matrix products. With allow_tf32, GPUs may round the operands of float32 products to TF32."""

    __slots__ = ("allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation", "allow_fp16_reduced_precision_reduction")

    def __init__(self):
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False

    @property
    def allow_tf32(self) -> bool:
        return _C._cuda_allow_tf32()

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        if not isinstance(allow, bool):
            raise RuntimeError(f"backends.cuda.matmul.allow_tf32: expected a bool: got {type(allow).__name__}")
        self.fp32_precision = "tf32" if allow else "ieee"

    @property
    def fp32_precision(self) -> str:
        return _float32["cuda"]

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("none", "ieee", "tf32"):
            raise RuntimeError(f"backends.cuda.matmul.fp32_precision: expected none, ieee or tf32: got {precision!r}")
        allow = precision == "tf32"
        if allow != _C._cuda_allow_tf32():  # "medium" stays what it is
            _float32["matmul"] = "high" if allow else "highest"
        _float32["cuda"] = precision
        _C._cuda_allow_tf32(allow)


matmul = _Matmul()


def is_built() -> bool:
    """Whether this build has CUDA parts."""
    from ..cuda import is_available

    return is_available()


def flash_sdp_enabled() -> bool:
    """What enable_flash_sdp was given."""
    return _kernels["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Kept; the CPU has one kernel for attention, which is tiled."""
    _kernels["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """What enable_mem_efficient_sdp was given."""
    return _kernels["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Kept, as enable_flash_sdp."""
    _kernels["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """What enable_math_sdp was given."""
    return _kernels["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Kept, as enable_flash_sdp."""
    _kernels["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """What enable_cudnn_sdp was given."""
    return _kernels["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Kept, as enable_flash_sdp."""
    _kernels["cudnn"] = bool(enabled)


@_contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """Sets the four switches for the length of a with block."""
    with _switched(_kernels, flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn):
        yield
