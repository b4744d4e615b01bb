"""Special functions."""

from ._C import _functions

_table = _functions.get("special", {})
globals().update(_table)
__all__ = sorted(_table)
