"""Switches of CUDA's libraries."""

from __future__ import annotations

import contextlib as _contextlib

from ._switches import switched as _switched

__all__ = ["enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "cudnn_sdp_enabled", "flash_sdp_enabled",
           "is_built", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "sdp_kernel"]

_kernels = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


class _Matmul:
    """Switches of matrix products."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


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
