"""amp with the device type 'cuda', as older scripts call it."""

import functools

from ... import amp, float16
from ...amp import _of_device, autocast_mode, grad_scaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "custom_bwd", "custom_fwd", "grad_scaler"]

autocast, GradScaler = _of_device.classes("cuda", float16, __name__)


def custom_fwd(fwd=None, *, cast_inputs=None):
    """amp.custom_fwd with device_type='cuda'."""
    return functools.partial(amp.custom_fwd, device_type="cuda")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd):
    """amp.custom_bwd with device_type='cuda'."""
    return functools.partial(amp.custom_bwd, device_type="cuda")(bwd)
