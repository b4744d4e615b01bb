"""Intel's MKL, which is not used: matrix products are OpenBLAS's and oneDNN's."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False."""
    return False
