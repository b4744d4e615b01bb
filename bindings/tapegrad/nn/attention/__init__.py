"""The choice among implementations of scaled_dot_product_attention, of which there is one here."""

from __future__ import annotations

import contextlib
import enum

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


_allowed: list[SDPBackend] = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                              SDPBackend.CUDNN_ATTENTION]


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority: bool = False):
    """Accepted for programs that choose an implementation. There is one, which works in tiles; the choice has no effect."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    chosen = list(dict.fromkeys([backends] if isinstance(backends, SDPBackend) else backends))
    if not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    before = _allowed[:]
    _allowed[:] = chosen
    try:
        yield {}
    finally:
        _allowed[:] = before


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return _allowed[:]
