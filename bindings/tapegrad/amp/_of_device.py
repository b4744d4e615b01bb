"""autocast and GradScaler of one type of device, as older scripts call them: cpu.amp.autocast, cuda.amp.GradScaler."""

from .. import amp
from .._warn import warn


def classes(kind: str, dtype, module: str) -> tuple[type, type]:
    """(autocast, GradScaler) for the module KIND.amp; dtype: what autocast computes in by default. Both warn that they are deprecated."""

    class autocast(amp.autocast):
        __doc__ = f"amp.autocast({kind!r}, ...)."

        def __init__(self, enabled: bool = True, dtype=dtype, cache_enabled: bool = True) -> None:
            warn(f"{kind}.amp.autocast(args...) is deprecated: use amp.autocast({kind!r}, args...)", FutureWarning)
            super().__init__(kind, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    class GradScaler(amp.GradScaler):
        __doc__ = f"amp.GradScaler({kind!r}, ...)."

        def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                     growth_interval: int = 2000, enabled: bool = True) -> None:
            warn(f"`torch.{kind}.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler({kind!r}, args...)` instead.", FutureWarning)
            super().__init__(kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    for made in (autocast, GradScaler):
        made.__module__, made.__qualname__ = module, made.__name__
    return autocast, GradScaler
