"""The GradScaler of this device type."""

from ...amp.grad_scaler import OptState
from . import GradScaler

__all__ = ["GradScaler", "OptState"]
