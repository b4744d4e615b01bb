"""What the CPU supports."""

from .. import _C

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """The instruction set that kernels are chosen for: DEFAULT, AVX2 or AVX512."""
    name = _C._functions[""]["_cpu_capability"]().upper()
    return "DEFAULT" if name == "GENERIC" else name
