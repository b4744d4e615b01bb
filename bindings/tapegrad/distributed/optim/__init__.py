"""Optimizers whose state would be shared out among processes."""

from __future__ import annotations

from ..._absent import missing_class
from ...optim import Optimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

DistributedOptimizer = missing_class("distributed.optim.DistributedOptimizer", "tapegrad runs one process so far: use the optimizer itself")


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer that keeps its share of the state. The share of one process is all of it."""

    def __init__(self, params, optimizer_class, process_group=None, parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        self.optim = optimizer_class(params, **defaults)
        super().__init__(self.optim.param_groups, self.optim.defaults)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def step(self, closure=None, **kwargs):
        """The optimizer's step."""
        return self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)

    def add_param_group(self, param_group) -> None:
        """Adds parameters with options of their own."""
        if param_group not in self.optim.param_groups:
            self.optim.add_param_group(param_group)
        self.param_groups = self.optim.param_groups

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collects all shares on one process: they are there."""

    def state_dict(self) -> dict:
        """The optimizer's."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict) -> None:
        """The optimizer's."""
        self.optim.load_state_dict(state_dict)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state


class PostLocalSGDOptimizer(Optimizer):
    """An optimizer with an averaging of models between processes: of one there is nothing to average."""

    def __init__(self, optim, averager):
        self.optim, self.averager = optim, averager
        super().__init__(optim.param_groups, optim.defaults)
        self.param_groups, self.state = optim.param_groups, optim.state

    def step(self, closure=None):
        """The optimizer's step."""
        return self.optim.step(closure) if closure is not None else self.optim.step()
