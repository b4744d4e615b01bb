"""amp with the device type 'cpu', as older scripts call it."""

from __future__ import annotations

import warnings

from ... import amp, bfloat16
from ...amp import autocast_mode, grad_scaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "grad_scaler"]


class autocast(amp.autocast):
    """amp.autocast('cpu', ...)."""

    def __init__(self, enabled: bool = True, dtype=bfloat16, cache_enabled: bool = True) -> None:
        warnings.warn("cpu.amp.autocast(args...) is deprecated: use amp.autocast('cpu', args...)", FutureWarning, stacklevel=2)
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """amp.GradScaler('cpu', ...)."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        warnings.warn("cpu.amp.GradScaler(args...) is deprecated: use amp.GradScaler('cpu', args...)", FutureWarning, stacklevel=2)
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
