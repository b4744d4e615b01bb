"""autocast: which operators run in which dtype is said by the key `autocast` of their rows in the op table."""

from __future__ import annotations

import collections.abc
import functools

from .. import _C
from .._warn import warn
from ._state import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_LOWER = (_C.bfloat16, _C.float16)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows the device type."""
    return device_type in ("cpu", "cuda")


def _without_cuda() -> bool:
    from .. import cuda

    return not cuda.is_available()


class autocast:
    """A context manager and decorator: inside, rows marked `lower` run in `dtype`, those marked `float32` in float32,
    those marked `promote` in the widest dtype of their arguments. Doubles, integers and complex numbers stay.

    `dtype` is bfloat16 or float16; by default bfloat16 on the CPU and float16 on 'cuda'. `cache_enabled`: a weight is cast
    once in the outermost scope. Warns, and is off, for 'cuda' without a GPU and for other dtypes. Raises RuntimeError
    for an unknown device type.
    """

    def __init__(self, device_type: str, dtype=None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"autocast: device_type is a string such as 'cpu': got {type(device_type).__name__}")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"autocast: User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda" and _without_cuda():
            warn("autocast: CUDA is not available: autocast is off")
            enabled = False
        elif enabled and self.fast_dtype not in _LOWER:
            warn(f"autocast: In {device_type.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                 f"expected bfloat16 or float16: got {self.fast_dtype}")
            enabled = False
        self._enabled = bool(enabled)

    def __enter__(self) -> autocast:
        self.prev_cache_enabled = is_autocast_cache_enabled()
        self.prev = is_autocast_enabled(self.device)
        self.prev_fastdtype = get_autocast_dtype(self.device)
        set_autocast_enabled(self.device, self._enabled)
        set_autocast_dtype(self.device, self.fast_dtype)
        autocast_increment_nesting()
        set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *exception) -> bool:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        set_autocast_enabled(self.device, self.prev)
        set_autocast_dtype(self.device, self.prev_fastdtype)
        set_autocast_cache_enabled(self.prev_cache_enabled)
        return False

    def __call__(self, func):
        if not callable(func):
            raise TypeError(f"autocast: decorates a function: got {type(func).__name__}\n"
                            "as a context manager it is `with autocast(device_type): ...`")
        return autocast_decorator(self, func)


def autocast_decorator(autocast_instance, func):
    """The function run inside the scope."""

    @functools.wraps(func)
    def decorate_autocast(*args, **kwargs):
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


def _cast(value, device_type: str, dtype):
    """Floating tensors of the device in another dtype, also inside of containers; doubles stay."""
    if isinstance(value, _C.Tensor):
        wanted = value.is_floating_point() and value.device.type == device_type and value.dtype is not _C.float64
        return value.to(dtype) if wanted else value
    if isinstance(value, (str, bytes)) or hasattr(value, "__array__"):
        return value
    if isinstance(value, collections.abc.Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    if isinstance(value, collections.abc.Iterable):
        return (_cast(v, device_type, dtype) for v in value)
    return value


def _check_device_type(name: str, device_type) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"{name}: device_type is a string such as 'cpu': got {type(device_type).__name__}")


def custom_fwd(fwd=None, *, device_type: str, cast_inputs=None):
    """Decorates forward of a custom Function: with `cast_inputs`, inside autocast, its floating inputs are cast to that
    dtype and autocast is off in it; without, it runs as the caller does."""
    _check_device_type("custom_fwd", device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args, **kwargs):
        ctx, inside = args[0], is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(ctx, *_cast(args[1:], device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd=None, *, device_type: str):
    """Decorates backward of a custom Function: it runs under the autocast that forward had."""
    _check_device_type("custom_bwd", device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args, **kwargs):
        with autocast(device_type=device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd
