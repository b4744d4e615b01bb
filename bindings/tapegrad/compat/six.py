"""`torch._six`, which PyTorch dropped in 2.0: what scripts from before still import from it."""

import builtins
import collections.abc as container_abcs  # noqa: F401
from math import inf, nan  # noqa: F401

PY2, PY3, PY37 = False, True, True
string_classes = (str, bytes)
int_classes = int
FileNotFoundError = builtins.FileNotFoundError
get_function_from_type = getattr
with_metaclass = type


def istuple(obj) -> bool:
    """Whether an object is a tuple."""
    return isinstance(obj, tuple)
