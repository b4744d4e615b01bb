"""What tapegrad.is_autocast_enabled and its relations read and set: the state of autocast in this thread."""

from .. import _C

__all__ = ["autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_dtype",
           "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled",
           "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype",
           "set_autocast_enabled", "set_autocast_gpu_dtype"]


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on for the device type; without one, for 'cuda'."""
    return _C._autocast_enabled("cuda" if device_type is None else device_type)


def set_autocast_enabled(device_type, enabled: bool | None = None) -> None:
    """set_autocast_enabled(device_type, enabled); with one argument, for 'cuda'."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _C._autocast_enabled(device_type, enabled)


def get_autocast_dtype(device_type: str):
    """The lower dtype of a device type: bfloat16 on the CPU and float16 on GPUs, unless set."""
    return _C._autocast_dtype(device_type)


def set_autocast_dtype(device_type: str, dtype) -> None:
    """Sets the lower dtype of a device type."""
    _C._autocast_dtype(device_type, dtype)


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return _C._autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Turns autocast on or off for the CPU."""
    _C._autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype():
    """The lower dtype of the CPU."""
    return _C._autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype) -> None:
    """Sets the lower dtype of the CPU."""
    _C._autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype():
    """The lower dtype of GPUs."""
    return _C._autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype) -> None:
    """Sets the lower dtype of GPUs."""
    _C._autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of leaves that need gradients are kept until the outermost autocast ends."""
    return _C._autocast_cache_enabled()


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Turns the keeping of casts on or off."""
    _C._set_autocast_cache_enabled(enabled)


def clear_autocast_cache() -> None:
    """Drops the casts that are kept."""
    _C._clear_autocast_cache()


def autocast_increment_nesting() -> int:
    """One more scope; the count."""
    return _C._autocast_nesting(1)


def autocast_decrement_nesting() -> int:
    """One scope less; the count."""
    return _C._autocast_nesting(-1)
