"""amp with the device type 'cpu', as older scripts call it."""

from ... import bfloat16
from ...amp import _of_device, autocast_mode, grad_scaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "grad_scaler"]

autocast, GradScaler = _of_device.classes("cpu", bfloat16, __name__)
