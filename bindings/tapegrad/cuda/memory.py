"""The memory of GPUs: what the caching allocator holds, by counters, snapshots and pages. Without a GPU the counters are
zero, as before the first tensor."""

import collections as _collections
import contextlib as _contextlib

from .. import _C
from ..compat.absent import missing_class as _missing_class
from ._core import device_index as _index
from ._core import missing as _missing
from ._core import report as _report

__all__ = ["CUDAPluggableAllocator", "MemPool", "caching_allocator_alloc", "caching_allocator_delete", "change_current_allocator", "empty_cache",
           "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats", "ipc_collect", "list_gpu_processes",
           "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached",
           "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
           "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
           "set_per_process_memory_fraction", "use_mem_pool"]


def _used() -> bool:
    """Whether there is anything to count; asking does not start CUDA."""
    return _C._cuda_state()[1]


def memory_stats(device=None) -> _collections.OrderedDict:
    """The allocator's counters by name, in blocks and bytes; none before the first use of a GPU.

    Names are "<what>.<pool>.<which>": what is allocation, segment, active, inactive_split, or with "_bytes" allocated, reserved,
    active, inactive_split, requested; pool is all, small_pool, large_pool; which is current, peak, allocated, freed. Besides
    num_alloc_retries, num_ooms, num_device_alloc, num_device_free and num_sync_all_streams.
    """
    if not _used():
        return _collections.OrderedDict()
    op = "cuda.memory_stats"
    return _collections.OrderedDict(sorted(_report(op, "memory_stats", _index(device, op)).items()))


def memory_stats_as_nested_dict(device=None) -> dict:
    """memory_stats as dictionaries in dictionaries."""
    nested: dict = {}
    for name, value in memory_stats(device).items():
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def host_memory_stats() -> _collections.OrderedDict:
    """The counters of pinned memory by name; none before the first use of a GPU."""
    return _collections.OrderedDict(sorted(_report("cuda.host_memory_stats", "host_memory_stats").items())) if _used() else _collections.OrderedDict()


def _counter(name: str, key: str, doc: str):
    def count(device=None) -> int:
        return memory_stats(device).get(key, 0)

    count.__name__ = count.__qualname__ = name
    count.__doc__ = f"{doc}, in bytes; without a GPU 0."
    return count


memory_allocated = _counter("memory_allocated", "allocated_bytes.all.current", "Memory in tensors")
max_memory_allocated = _counter("max_memory_allocated", "allocated_bytes.all.peak", "The most memory that was in tensors")
memory_reserved = _counter("memory_reserved", "reserved_bytes.all.current", "Memory that the allocator holds")
max_memory_reserved = _counter("max_memory_reserved", "reserved_bytes.all.peak", "The most memory that the allocator held")
memory_cached = _counter("memory_cached", "reserved_bytes.all.current", "memory_reserved by its old name")
max_memory_cached = _counter("max_memory_cached", "reserved_bytes.all.peak", "max_memory_reserved by its old name")


def reset_peak_memory_stats(device=None) -> None:
    """Starts the counters of most memory anew."""
    if _used():
        _C._cuda_reset_stats(_index(device, "cuda.reset_peak_memory_stats"), True)


def reset_accumulated_memory_stats(device=None) -> None:
    """Starts the counters of all memory that came and went anew."""
    if _used():
        _C._cuda_reset_stats(_index(device, "cuda.reset_accumulated_memory_stats"), False)


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def empty_cache() -> None:
    """Gives free GPU memory back to the driver, after waiting for the work on it. Seldom needed: the allocator does so itself
    before it says that memory is out."""
    if _used():
        _C._cuda_empty_cache(False)


def host_memory_empty_cache() -> None:
    """Gives free pinned memory back."""
    if _used():
        _C._cuda_empty_cache(True)


def ipc_collect() -> None:
    """Frees memory that other processes have let go; it goes by itself when memory is short or more tensors are sent."""
    _C._shared_collect()


def mem_get_info(device=None) -> tuple:
    """Free and total bytes of a GPU, as the driver sees them."""
    return _C._cuda_memory_info(_index(device, "cuda.mem_get_info"))


def set_per_process_memory_fraction(fraction: float, device=None) -> None:
    """The share of a GPU's memory that this process may take, from 0 to 1; beyond it memory is out."""
    if not isinstance(fraction, float):
        raise TypeError(f"cuda.set_per_process_memory_fraction: expected a float: got {type(fraction).__name__}")
    _C._cuda_memory_fraction(_index(device, "cuda.set_per_process_memory_fraction"), fraction)


def get_per_process_memory_fraction(device=None) -> float:
    """The share of a GPU's memory that this process may take."""
    return _C._cuda_memory_fraction(_index(device, "cuda.get_per_process_memory_fraction"))


def get_device_memory_used(device=None) -> int:
    """Bytes of a GPU that are in use, by whomever."""
    free, total = mem_get_info(device)
    return total - free


def caching_allocator_alloc(size: int, device=None, stream=None) -> int:
    """The address of that many bytes of the allocator, for code that takes addresses; give it back with caching_allocator_delete."""
    from .streams import current_stream

    index = _index(device, "cuda.caching_allocator_alloc")
    number = getattr(stream, "cuda_stream", stream)
    return _C._cuda_allocate_raw(index, size, current_stream(index).cuda_stream if number is None else number)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back what caching_allocator_alloc gave."""
    _C._cuda_free_raw(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether memory is cached; chosen before the first use, by TAPEGRAD_CUDA_ALLOC_CONF=backend:plain."""
    if not value:
        raise RuntimeError("cuda.caching_allocator_enable: caching is chosen before the first use: set TAPEGRAD_CUDA_ALLOC_CONF=backend:plain")


def get_allocator_backend() -> str:
    """The allocator's name."""
    return "native"


def list_gpu_processes(device=None) -> str:
    """The processes on a GPU, as text; only nvidia-smi knows those of others."""
    import os

    if _C._cuda_device_count() == 0:
        return "no CUDA device"
    index = _index(device, "cuda.list_gpu_processes")
    return f"GPU:{index}\nprocess {os.getpid():>10d} uses {memory_reserved(index) / (1 << 20):>12.3f} MB GPU memory (others: nvidia-smi)"


# --- snapshots ---

def _frames(site: int, sites: dict) -> list:
    text = sites.get(str(site), "")
    file, _, line = text.rpartition(":")
    return [{"filename": file, "line": int(line), "name": ""}] if file and line.isdigit() else []


def _read_snapshot(index: int) -> dict:
    return _report("cuda.memory_snapshot", "snapshot", index)


def memory_snapshot(mempool_id=None, include_traces: bool = True) -> list:
    """The allocator's segments with their blocks, as a list of dictionaries; [] before the first use of a GPU."""
    if not _used():
        return []
    segments = []
    for index in range(_C._cuda_device_count()):
        raw = _read_snapshot(index)
        for segment in raw["segments"]:
            segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
            if mempool_id is not None and segment["segment_pool_id"] != tuple(mempool_id):
                continue
            for block in segment["blocks"]:
                block["frames"] = _frames(block.pop("site"), raw["sites"])
            segments.append(segment)
    return segments


def _record_memory_history(enabled="all", *args, max_entries: int = 100_000, **kwargs) -> None:
    """Whether allocations are remembered for snapshots, up to `max_entries` of the newest; None: no more."""
    _C._cuda_record_history(max_entries if enabled else 0)


def _snapshot(device=None, augment_with_fx_traces: bool = False) -> dict:
    """Segments, and per GPU what happened since _record_memory_history."""
    traces = []
    for index in range(_C._cuda_device_count()):
        raw = _read_snapshot(index)
        for event in raw["device_traces"]:
            event["frames"] = _frames(event.pop("site"), raw["sites"])
        traces.append(raw["device_traces"])
    return {"segments": memory_snapshot(), "device_traces": traces, "allocator_settings": {}}


def _dump_snapshot(filename: str = "dump_snapshot.json", augment_with_fx_traces: bool = False) -> None:
    """Writes the snapshot to a file: a page that shows segments and blocks over time when its name ends in .html, else JSON."""
    import json

    snapshot = _snapshot()
    if filename.endswith(".html"):
        from ._memory_page import page

        text = page(snapshot)
    else:
        text = json.dumps(snapshot)
    with open(filename, "w", encoding="utf-8") as file:
        file.write(text)


def _set_allocator_settings(env: str) -> None:
    """Changes options of the allocators: "name:value,...", as in TAPEGRAD_CUDA_ALLOC_CONF."""
    for item in env.split(","):
        name, _, value = item.partition(":")
        _C._cuda_set_allocator_option(name.strip(), value.strip())


# --- a table for people ---

def _amount(n: int) -> str:
    value, unit = float(n), 0
    while value >= 10_000 and unit < 4:
        value, unit = value / 1024, unit + 1
    return f"{value:7.0f} {('B  ', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """The allocator's counters as a table."""
    if not _used():
        return "no CUDA device: no memory in use"
    index = _index(device, "cuda.memory_summary")
    stats = memory_stats(index)
    rows = [("Allocated memory", "allocated_bytes", True), ("Active memory", "active_bytes", True), ("Requested memory", "requested_bytes", True),
            ("GPU reserved memory", "reserved_bytes", True), ("Non-releasable memory", "inactive_split_bytes", True),
            ("Allocations", "allocation", False), ("Active allocs", "active", False), ("GPU reserved segments", "segment", False),
            ("Non-releasable allocs", "inactive_split", False)]
    width = 77
    lines = ["=" * width, f"tapegrad CUDA memory summary, device {index}".center(width).rstrip(), "-" * width,
             f"  CUDA OOMs: {stats['num_ooms']:<12d} | cudaMalloc retries: {stats['num_alloc_retries']}", "=" * width,
             f"{'Metric':<23} | {'Cur Usage':>11} | {'Peak Usage':>11} | {'Tot Alloc':>11} | {'Tot Freed':>11}", "-" * width]
    for title, key, in_bytes in rows:
        for pool, name in [("all", title), ("large_pool", "  from large pool"), ("small_pool", "  from small pool")][:1 if abbreviated else 3]:
            cells = [stats[f"{key}.{pool}.{which}"] for which in ("current", "peak", "allocated", "freed")]
            lines.append(f"{name:<23} | " + " | ".join(_amount(n) if in_bytes else f"{n:>11d}" for n in cells))
        lines.append("-" * width)
    return "\n".join(lines)


# --- memory apart ---

class MemPool:
    """Memory apart from the allocator's own, for what is made inside use_mem_pool; it is kept until the pool goes.

    Args:
        allocator: None; there are no others.
        use_on_oom, no_split: Accepted.
    """

    def __init__(self, allocator=None, use_on_oom: bool = False, no_split: bool = False):
        if allocator is not None:
            raise NotImplementedError("cuda.MemPool: memory comes from tapegrad's own allocator: got another")
        self._pool = _C._cuda_new_pool()
        self._devices: set = set()

    @property
    def id(self) -> tuple:
        """What names the pool in snapshots and in CUDAGraph.pool()."""
        return (0, self._pool)

    def use_count(self) -> int:
        """How many GPUs the pool has memory on, and one."""
        return 1 + len(self._devices)

    def snapshot(self) -> list:
        """The pool's segments."""
        return memory_snapshot(self.id)

    def __del__(self):
        for index in getattr(self, "_devices", ()):
            _C._cuda_pool("release", index, self._pool)


@_contextlib.contextmanager
def use_mem_pool(pool, device=None):
    """A context in which this thread's memory comes from a pool; RuntimeError without a GPU."""
    index = _index(device, "cuda.use_mem_pool")
    if index not in pool._devices:
        _C._cuda_pool("retain", index, pool._pool)
        pool._devices.add(index)
    _C._cuda_pool("use_in_thread", index, pool._pool)
    try:
        yield
    finally:
        _C._cuda_pool("end", index, pool._pool)


_OWN = "memory comes from tapegrad's own allocator"
change_current_allocator = _missing("change_current_allocator", _OWN)
CUDAPluggableAllocator = _missing_class("cuda.CUDAPluggableAllocator", _OWN, RuntimeError, doc="An allocator from a library; not there.")
