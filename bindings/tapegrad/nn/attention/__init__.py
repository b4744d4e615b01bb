"""The choice among implementations of scaled_dot_product_attention: on devices cuDNN's, where it has one, and our own."""

import contextlib
import enum

from ...backends import cuda as _cuda

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False  # whether PyTorch says why its faster implementations were not taken; no effect here


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of scaled_dot_product_attention, by its numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_SWITCHES = {SDPBackend.MATH: "math", SDPBackend.FLASH_ATTENTION: "flash", SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
             SDPBackend.CUDNN_ATTENTION: "cudnn"}


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority: bool = False):
    """Sets the switches of backends.cuda for the length of a with block: those of the named implementations on, the others off.

    Without CUDNN_ATTENTION cuDNN is not asked. MATH, FLASH_ATTENTION and EFFICIENT_ATTENTION stand for one kernel here, which works
    in tiles and also does what cuDNN refuses, where PyTorch raises an error if none of the named ones can. The order of the
    names (`set_priority`) has no effect: cuDNN is asked first. AssertionError for anything that is not an SDPBackend.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    with _cuda.sdp_kernel(**{f"enable_{name}": backend in chosen for backend, name in _SWITCHES.items()}):
        yield {}


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return [backend for backend, name in _SWITCHES.items() if _cuda._SDP[name][0]()]
