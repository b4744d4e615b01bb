"""Settings of the underlying libraries, under the paths that scripts use for them.

On the CPU results have the same bits from run to run, and float32 products are computed in float32: the switches are kept
and read back, and change nothing.
"""

from .._lazy import more_names as _more_names
from . import cpu, cuda, cudnn, mkldnn

__all__ = ["cpu", "cuda", "cudnn", "disable_global_flags", "flags_frozen", "mkl", "mkldnn", "mps", "openmp"]
__getattr__, __dir__ = _more_names(__name__)
__allow_nonbracketed_mutation_flag = True


def disable_global_flags() -> None:
    """Accepted: `flags_frozen()` says so from then on. Settings may still be made outside of `flags()`, where PyTorch raises."""
    global __allow_nonbracketed_mutation_flag
    __allow_nonbracketed_mutation_flag = False


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return not __allow_nonbracketed_mutation_flag
