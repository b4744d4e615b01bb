"""Optimizers that several processes share."""

from __future__ import annotations

from ..._absent import missing_class
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

DistributedOptimizer = missing_class("distributed.optim.DistributedOptimizer", "tapegrad runs one process so far: use the optimizer itself")
