"""Collectives that gradients pass through."""

from . import functional
from .functional import *  # noqa: F403
from .functional import __all__ as _names

__all__ = [*_names, "functional"]
