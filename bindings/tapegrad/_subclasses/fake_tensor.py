"""Names of PyTorch's file of this name: asking whether a tensor is fake says no, making one says what to use."""

from __future__ import annotations

from .._absent import missing_class

_WHY = 'there are no fake tensors: tensors on the device "meta" have shapes and no data'
FakeTensor = missing_class("_subclasses.fake_tensor.FakeTensor", _WHY)
FakeTensorMode = missing_class("_subclasses.fake_tensor.FakeTensorMode", _WHY)


def is_fake(x) -> bool:
    """Always false."""
    return False
