"""Tensors of other libraries over the same memory."""

from .. import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
