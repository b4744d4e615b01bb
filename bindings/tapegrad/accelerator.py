"""The accelerator of this machine: a CUDA GPU, or none."""

from . import cuda
from . import device as _Device

__all__ = ["current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count", "device_index", "empty_cache",
           "is_available", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
           "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize"]


def is_available() -> bool:
    """Whether there is an accelerator."""
    return cuda.is_available()


def device_count() -> int:
    """The number of accelerators."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False):
    """The accelerator's device; None without one."""
    return _Device("cuda") if cuda.is_available() else None


class device_index:
    """A context in which another accelerator is the current one; None means: no change."""

    def __init__(self, device):
        self.idx = device
        self._context = cuda.device(-1 if device is None else device)

    def __enter__(self):
        self._context.__enter__()

    def __exit__(self, *error):
        return self._context.__exit__(*error)


current_device_index = current_device_idx = cuda.current_device
set_device_index = set_device_idx = cuda.set_device
current_stream, set_stream, synchronize = cuda.current_stream, cuda.set_stream, cuda.synchronize
empty_cache, memory_stats, reset_peak_memory_stats = cuda.empty_cache, cuda.memory_stats, cuda.reset_peak_memory_stats
memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
memory_reserved, max_memory_reserved = cuda.memory_reserved, cuda.max_memory_reserved
