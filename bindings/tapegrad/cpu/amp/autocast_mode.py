"""The autocast of this device type."""

from . import autocast

__all__ = ["autocast"]
