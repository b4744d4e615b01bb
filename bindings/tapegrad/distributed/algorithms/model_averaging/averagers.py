"""Schedules of model averaging."""

from abc import ABC, abstractmethod

from ...._warn import warn
from . import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Counts steps; subclasses say in which of them the models are averaged."""

    def __init__(self, process_group=None):
        from ... import group

        self.process_group = process_group if process_group is not None else group.WORLD
        self.step = 0

    @abstractmethod
    def average_parameters(self, params):
        """To be called after each step of the optimizer."""
        raise NotImplementedError


class PeriodicModelAverager(ModelAverager):
    """Averages in every `period`-th step after the first `warmup_steps`."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group=None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warn("When period is 1, no need to use model averaging because the communication cost of all-reducing parameters will be no less "
                 "than the cost of all-reducing gradients by DistributedDataParallel in the backward pass. Therefore, only "
                 "DistributedDataParallel should be used for this case.")
        self.warmup_steps, self.period = warmup_steps, period

    def average_parameters(self, params) -> None:
        """Parameters, or groups of an optimizer; those without a gradient are left alone."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
