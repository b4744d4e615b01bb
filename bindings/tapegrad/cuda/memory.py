"""The memory of GPUs. Without a GPU the counters are zero, as before the first tensor."""

from __future__ import annotations

import collections as _collections
import contextlib as _contextlib

from .._absent import missing_class as _missing_class
from . import _WHY, _missing

__all__ = ["CUDAPluggableAllocator", "MemPool", "caching_allocator_alloc", "caching_allocator_delete", "change_current_allocator", "empty_cache",
           "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats", "ipc_collect", "list_gpu_processes",
           "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached",
           "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
           "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
           "set_per_process_memory_fraction", "use_mem_pool"]


def _zero(name: str, doc: str):
    def count(device=None) -> int:
        return 0

    count.__name__ = count.__qualname__ = name
    count.__doc__ = f"{doc}, in bytes; without a GPU 0."
    return count


memory_allocated = _zero("memory_allocated", "Memory in tensors")
max_memory_allocated = _zero("max_memory_allocated", "The most memory that was in tensors")
memory_reserved = _zero("memory_reserved", "Memory that the allocator holds")
max_memory_reserved = _zero("max_memory_reserved", "The most memory that the allocator held")
memory_cached = _zero("memory_cached", "memory_reserved by its old name")
max_memory_cached = _zero("max_memory_cached", "max_memory_reserved by its old name")


def memory_stats(device=None) -> _collections.OrderedDict:
    """The allocator's counters by name; without a GPU none."""
    return _collections.OrderedDict()


def host_memory_stats() -> _collections.OrderedDict:
    """The counters of pinned memory by name; without a GPU none."""
    return _collections.OrderedDict()


def memory_stats_as_nested_dict(device=None) -> dict:
    """memory_stats as dictionaries in dictionaries."""
    return {}


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """The allocator's counters as a table."""
    return "no CUDA device: no memory in use"


def memory_snapshot(mempool_id=None) -> list:
    """The allocator's blocks; without a GPU none."""
    return []


def empty_cache() -> None:
    """Gives free GPU memory back; without a GPU there is none."""


def ipc_collect() -> None:
    """Frees memory that other processes have let go; without a GPU there is none."""


def reset_peak_memory_stats(device=None) -> None:
    """Starts the counters of most memory anew; without a GPU they are zero."""


reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats


def list_gpu_processes(device=None) -> str:
    """The processes on a GPU, as text."""
    return "no CUDA device"


def get_allocator_backend() -> str:
    """The allocator's name."""
    return "native"


@_contextlib.contextmanager
def use_mem_pool(pool, device=None):
    """A context in which memory comes from a pool; RuntimeError without a GPU."""
    yield _missing("use_mem_pool")()


mem_get_info = _missing("mem_get_info")
get_per_process_memory_fraction = _missing("get_per_process_memory_fraction")
set_per_process_memory_fraction = _missing("set_per_process_memory_fraction")
caching_allocator_alloc = _missing("caching_allocator_alloc")
caching_allocator_delete = _missing("caching_allocator_delete")
change_current_allocator = _missing("change_current_allocator")
MemPool = _missing_class("cuda.MemPool", _WHY, RuntimeError, doc="Memory apart from the allocator's own.")
CUDAPluggableAllocator = _missing_class("cuda.CUDAPluggableAllocator", _WHY, RuntimeError, doc="An allocator from a library.")
