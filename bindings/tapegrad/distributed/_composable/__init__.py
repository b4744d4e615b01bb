"""Functions that change a module in place instead of wrapping it."""

from .. import fsdp  # noqa: F401
from ..fsdp import fully_shard
from .replicate import replicate

__all__ = ["fully_shard", "replicate"]
