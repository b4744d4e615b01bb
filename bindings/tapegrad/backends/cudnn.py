"""Switches of cuDNN, which is not used on the CPU."""

from ._switches import switched

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"

__all__ = ["flags", "is_acceptable", "is_available", "version"]


def version():
    """None: this build has no cuDNN."""
    return None


def is_available() -> bool:
    """Whether this build has cuDNN."""
    return False


def is_acceptable(tensor) -> bool:
    """Whether cuDNN would take the tensor."""
    return False


def flags(enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True, fp32_precision="none"):
    """Sets the switches for the length of a with block."""
    return switched(globals(), enabled=enabled, benchmark=benchmark, benchmark_limit=benchmark_limit, deterministic=deterministic,
                    allow_tf32=allow_tf32, fp32_precision=fp32_precision)
