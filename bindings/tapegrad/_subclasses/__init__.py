"""PyTorch's tensors without data for its compiler, by name: there are none here. Tensors on the device "meta" are without data."""

from __future__ import annotations

from .fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
