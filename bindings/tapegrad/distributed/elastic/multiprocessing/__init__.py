"""Names of PyTorch's launcher that programs import."""

from . import errors

__all__ = ["errors"]
