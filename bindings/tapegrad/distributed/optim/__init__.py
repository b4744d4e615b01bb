"""Optimizers that are distributed over several processes."""

from ..._lazy import load as _load
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero import ZeroRedundancyOptimizer

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]  # noqa: F822  the first is loaded when it is asked for


def __getattr__(name: str):
    if name == "DistributedOptimizer":
        return _load(f"{__name__}.optimizer").DistributedOptimizer
    from ..._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
