"""Names of PyTorch's launcher that programs import."""

from . import multiprocessing

__all__ = ["multiprocessing"]
