"""oneDNN, under its old name: it computes convolutions."""

from .. import _C
from ._switches import switched

enabled = True
deterministic = True
allow_tf32 = False

__all__ = ["flags", "is_available"]


def is_available() -> bool:
    """Whether oneDNN is a part of this build: on x86-64 it is."""
    return _C._functions[""]["_has_onednn"]()


def flags(enabled=False, deterministic=False, allow_tf32=True):
    """Sets the switches for the length of a with block."""
    return switched(globals(), enabled=enabled, deterministic=deterministic, allow_tf32=allow_tf32)
