"""Ranks with fewer inputs than others: ranks that have finished keep taking part in the collectives of the others.

Every rank that still has input says so before each of its steps (`notify_join_context`, a sum over all ranks of the first joinable's
group); a rank that has none answers with zero and runs the joinables' main hooks, until no rank has input.
"""

from abc import ABC, abstractmethod

from ..._warn import warn

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank does that has no input left."""

    def main_hook(self) -> None:
        """Once for each step of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all are done. is_last_joiner: whether this rank was among the last."""


class _JoinConfig:
    def __init__(self, enable: bool = False, throw_on_early_termination: bool = False, is_first_joinable: bool = False):
        self.enable, self.throw_on_early_termination, self.is_first_joinable = enable, throw_on_early_termination, is_first_joinable


class Joinable(ABC):
    """Something with collectives in each step that takes part in uneven inputs. Subclasses call Joinable.__init__."""

    @abstractmethod
    def __init__(self) -> None:
        self._join_config = _JoinConfig()

    @abstractmethod
    def join_hook(self, **kwargs) -> JoinHook:
        """What it does without input."""

    @property
    @abstractmethod
    def join_device(self):
        """Where the flags of Join are."""

    @property
    @abstractmethod
    def join_process_group(self):
        """The ranks."""


class Join:
    """A context in which ranks may have different numbers of inputs.

    throw_on_early_termination: RuntimeError on all ranks as soon as one has no more input. Further arguments go to the joinables'
    join_hook.
    """

    _MANY = 1000

    def __init__(self, joinables: list, enable: bool = True, throw_on_early_termination: bool = False, **kwargs):
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable, self._throw = joinables, enable, throw_on_early_termination
        groups = {id(j.join_process_group): j.join_process_group for j in joinables}
        if len(groups) != 1:
            raise ValueError("Using join context manager with multiple process groups")
        (self._group,) = groups.values()
        self._device = joinables[0].join_device
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        for joinable in joinables:
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, joinable is joinables[0])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        try:
            if self._enable and kind is None:
                self._shadow_others()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig()

    def _shadow_others(self) -> None:
        is_last_joiner, steps = True, 0
        while self._sum(0.0) > 0:
            if self._throw:
                self._sum(1.0)
                raise RuntimeError(f"Rank {self._group.rank()} exhausted all inputs.")
            is_last_joiner = False
            steps += 1
            if steps == self._MANY + 1:
                warn(f"Detected uneven input skew of greater than {self._MANY}. This means that rank {self._group.rank()} has at least "
                     f"{self._MANY} fewer inputs than other currently-active ranks. This level of skew could lead to performance "
                     "degradation during training.")
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last_joiner)

    def _sum(self, mine: float) -> float:
        work = _sum_of(mine, self._device, self._group)
        work.wait()
        return work.result()[0].item()

    @staticmethod
    def notify_join_context(joinable: Joinable):
        """Says that this rank has work. A Work whose result is the number of ranks that have, for the first joinable of a context; else None."""
        if not hasattr(joinable, "_join_config"):
            raise AssertionError(f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor")
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        work = _sum_of(1.0, joinable.join_device, joinable.join_process_group)
        if config.throw_on_early_termination:
            work.wait()
            if work.result()[0].item() < joinable.join_process_group.size():
                _sum_of(0.0, joinable.join_device, joinable.join_process_group).wait()
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work


def _sum_of(mine: float, device, group):
    from ... import tensor
    from .. import all_reduce

    return all_reduce(tensor([mine], device=device), group=group, async_op=True)
