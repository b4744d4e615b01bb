"""What PyTorch's compiler makes of a module: never here, so that asking `isinstance(model, OptimizedModule)` says no."""

from __future__ import annotations

from .. import nn
from .._absent import missing_class

OptimizedModule = missing_class("_dynamo.OptimizedModule", "nothing is compiled: compile() gives the module itself back", bases=(nn.Module,))


def is_dynamo_supported() -> bool:
    """Always false."""
    return False


is_inductor_supported = is_dynamo_supported
