"""The launcher's parts that programs import, by PyTorch's names."""

from . import multiprocessing

__all__ = ["multiprocessing"]
