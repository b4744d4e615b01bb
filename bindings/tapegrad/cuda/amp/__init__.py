"""amp with the device type 'cuda', as older scripts call it."""

from __future__ import annotations

import functools
import warnings

from ... import amp, float16
from ...amp import autocast_mode, grad_scaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "custom_bwd", "custom_fwd", "grad_scaler"]


class autocast(amp.autocast):
    """amp.autocast('cuda', ...)."""

    def __init__(self, enabled: bool = True, dtype=float16, cache_enabled: bool = True) -> None:
        warnings.warn("cuda.amp.autocast(args...) is deprecated: use amp.autocast('cuda', args...)", FutureWarning, stacklevel=2)
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """amp.GradScaler('cuda', ...)."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        warnings.warn("cuda.amp.GradScaler(args...) is deprecated: use amp.GradScaler('cuda', args...)", FutureWarning, stacklevel=2)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd=None, *, cast_inputs=None):
    """amp.custom_fwd with device_type='cuda'."""
    return functools.partial(amp.custom_fwd, device_type="cuda")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd):
    """amp.custom_bwd with device_type='cuda'."""
    return functools.partial(amp.custom_bwd, device_type="cuda")(bwd)
