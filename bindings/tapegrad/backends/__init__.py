"""Switches of the libraries below PyTorch, kept where scripts look for them.

On the CPU results have the same bits from run to run, and float32 products are computed in float32: the switches are kept
and read back, and change nothing.
"""

from __future__ import annotations

from .._lazy import load as _load
from . import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]


def __getattr__(name: str):
    if name in ("opt_einsum", "quantized"):
        module = _load(f"{__name__}.{name}")
        globals()[name] = module
        return module
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
