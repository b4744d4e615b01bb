"""Settings of CUDA's libraries."""

import contextlib as _contextlib
from typing import NamedTuple as _NamedTuple

from .. import _C
from .._lazy import more_names as _more_names
from .._root.settings import _float32

__all__ = ["SDPAParams", "can_use_cudnn_attention", "can_use_efficient_attention", "can_use_flash_attention", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "cudnn_sdp_enabled", "flash_sdp_enabled",
           "is_built", "is_flash_attention_available", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "preferred_linalg_library", "sdp_kernel"]


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


# Implementations of scaled_dot_product_attention. On devices cuDNN is asked for it where its switch is on; the other three names
# stand for our own kernel, which does what is left, so that their switches are kept and choose nothing.
_linalg_library = "default"
_kernels = {"math": True, "flash": True, "mem_efficient": True}
_CUDNN_ATTENTION = 6  # of aten/cudnn_switches.h


def flash_sdp_enabled() -> bool:
    """What enable_flash_sdp was given."""
    return _kernels["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Kept; what cuDNN does not do is done by one kernel, which is tiled."""
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
    """Whether cuDNN may compute attention on devices."""
    return bool(_C._cuda_cudnn_switch(_CUDNN_ATTENTION))


def enable_cudnn_sdp(enabled: bool) -> None:
    """Lets cuDNN compute attention on devices (float16 and bfloat16), as it may unless it is forbidden, or does without it."""
    _C._cuda_cudnn_switch(_CUDNN_ATTENTION, int(bool(enabled)))


_SDP = {"math": (math_sdp_enabled, enable_math_sdp), "flash": (flash_sdp_enabled, enable_flash_sdp),
        "mem_efficient": (mem_efficient_sdp_enabled, enable_mem_efficient_sdp), "cudnn": (cudnn_sdp_enabled, enable_cudnn_sdp)}


class SDPAParams(_NamedTuple):
    """What scaled_dot_product_attention would be given, to ask which implementations could take it."""

    query: _C.Tensor
    key: _C.Tensor
    value: _C.Tensor
    attn_mask: _C.Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool = False


def is_flash_attention_available() -> bool:
    """Whether there is a GPU: our own kernel is tiled."""
    return is_built()


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether the operands are on a GPU and enable_flash_sdp does not forbid it."""
    return params.query.is_cuda and flash_sdp_enabled()


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """The same by enable_mem_efficient_sdp."""
    return params.query.is_cuda and mem_efficient_sdp_enabled()


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether cuDNN may be asked: operands on a GPU of float16 or bfloat16, and enable_cudnn_sdp does not forbid it."""
    return params.query.is_cuda and params.query.dtype in (_C.float16, _C.bfloat16) and cudnn_sdp_enabled()


def preferred_linalg_library(backend=None):
    """PyTorch's choice between cuSOLVER and MAGMA, which is not used: kept."""
    global _linalg_library
    if backend is not None:
        if backend not in ("default", "cusolver", "magma"):
            raise RuntimeError(f"backends.cuda.preferred_linalg_library: expected default, cusolver or magma: got {backend!r}")
        _linalg_library = backend
    return _linalg_library


@_contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """Sets the four switches for the length of a with block; None leaves one as it is."""
    wanted = {"flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient, "cudnn": enable_cudnn}
    before = {name: enabled() for name, (enabled, _) in _SDP.items() if wanted[name] is not None}
    try:
        for name in before:
            _SDP[name][1](wanted[name])
        yield
    finally:
        for name, value in before.items():
            _SDP[name][1](value)


__getattr__, __dir__ = _more_names(__name__)
