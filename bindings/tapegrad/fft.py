"""Discrete Fourier transforms."""

from ._C import _functions

_table = _functions.get("fft", {})
globals().update(_table)
__all__ = sorted(_table)
