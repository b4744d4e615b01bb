"""Shapes and places of parts, by PyTorch's path."""

from ._spec import compute_local_shape_and_global_offset

__all__ = ["compute_local_shape_and_global_offset"]
