"""Linear algebra."""

from ._C import LinAlgError as LinAlgError
from ._C import _functions

_table = _functions.get("linalg", {})
globals().update(_table)
__all__ = sorted([*_table, "LinAlgError"])


def __getattr__(name: str):
    from ._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
