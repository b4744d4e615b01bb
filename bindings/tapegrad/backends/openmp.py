"""OpenMP, which only oneDNN uses."""

__all__ = ["is_available"]


def is_available() -> bool:
    """True: oneDNN runs on it."""
    return True
