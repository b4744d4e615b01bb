"""Whether mixed precision on GPUs is out of the question."""

from .. import is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """True without a GPU."""
    return not is_available()
