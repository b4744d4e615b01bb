"""The CPU as a device: its memory, in the terms that GPUs use."""

import contextlib

from .. import _C

__all__ = ["Event", "Stream", "StreamContext", "current_device", "current_stream", "device_count", "empty_cache", "get_capabilities",
           "is_available", "is_initialized", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
           "memory_stats", "memory_summary", "reset_peak_memory_stats", "set_device", "stream", "synchronize"]


def is_available() -> bool:
    """Always true."""
    return True


def device_count() -> int:
    """One."""
    return 1


def is_initialized() -> bool:
    """Always true."""
    return True


def current_device() -> str:
    return "cpu"


def set_device(device) -> None:
    """Does nothing: there is one CPU, whatever number launchers give it."""


def get_capabilities() -> dict:
    """Names of the processor's instruction sets, each True or False; {} where the system does not tell."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line.partition(":")[2].split() for line in file if line.startswith("flags")), [])
    except OSError:
        return {}
    own_names = {"fma3": "fma"} | {f"avx512_{part}": f"avx512{part}" for part in ("f", "bw", "vl", "dq", "cd", "ifma", "vbmi")}
    names = ("avx", "avx2", "fma3", "f16c", "avx512_f", "avx512_bw", "avx512_vl", "avx512_dq", "avx512_cd", "avx512_ifma", "avx512_vbmi",
             "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")
    return {name: own_names.get(name, name) in flags for name in names}


def synchronize(device=None) -> None:
    """Returns at once: operators on the CPU are done when they return."""


class Stream:
    """Stands where a stream is expected; work on the CPU has one order only."""

    def wait_stream(self, stream) -> None:
        """Returns at once."""


class Event:
    """Stands where an event is expected: what comes before it is done already."""

    def query(self) -> bool:
        return True

    def record(self, stream=None) -> None:
        """Returns at once."""

    def synchronize(self) -> None:
        """Returns at once."""

    def wait(self, stream=None) -> None:
        """Returns at once."""


class StreamContext(contextlib.nullcontext):
    """StreamContext(stream): a context without effect."""


def current_stream(device=None) -> Stream:
    return Stream()


def stream(stream):
    """A context without effect."""
    return StreamContext(stream)


def memory_stats(device=None) -> dict:
    """Counts of bytes and calls of the allocator."""
    return _C._cpu_memory_stats()


def memory_allocated(device=None) -> int:
    """Bytes that tensors hold now."""
    return _C._cpu_memory_stats()["allocated"]


def max_memory_allocated(device=None) -> int:
    """The most bytes that tensors held at one time."""
    return _C._cpu_memory_stats()["max_allocated"]


def memory_reserved(device=None) -> int:
    """Bytes taken from the system."""
    return _C._cpu_memory_stats()["reserved"]


def max_memory_reserved(device=None) -> int:
    """The most bytes taken from the system at one time."""
    return _C._cpu_memory_stats()["max_reserved"]


def reset_peak_memory_stats(device=None) -> None:
    """Lets the maxima start from what is held now."""
    _C._cpu_reset_peak()


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """A table of the numbers."""
    return _C._cpu_memory_summary()


def empty_cache() -> None:
    """Gives free memory back to the system."""
    _C._cpu_empty_cache()


def __getattr__(name: str):
    if name == "amp":
        from .._lazy import load

        return load(f"{__name__}.amp")
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
