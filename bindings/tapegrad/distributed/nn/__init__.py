"""Collectives that gradients pass through."""

from ..._absent import missing_class as _missing_class
from . import functional
from .functional import *  # noqa: F403
from .functional import __all__ as _names

RemoteModule = _missing_class("distributed.nn.RemoteModule", "tapegrad runs one process so far")

__all__ = [*_names, "functional"]
