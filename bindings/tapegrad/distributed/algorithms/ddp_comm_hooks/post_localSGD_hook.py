"""Local SGD after a while: gradients are the mean over all ranks at first, then over a small group only (Lin et al., 2020).

The models of different groups are made equal now and then by model_averaging.averagers.PeriodicModelAverager.
"""

from ....futures import Future
from .debugging_hooks import noop_hook
from .default_hooks import _allreduce_fut

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """process_group: all ranks; subgroup: those among whom gradients are reduced from step start_localSGD_iter on (None: those of this machine);
    post_local_gradient_allreduce=False: no reduction then."""

    __slots__ = ["iter", "post_local_gradient_allreduce", "process_group", "start_localSGD_iter", "subgroup"]

    def __init__(self, process_group, subgroup, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True):
        self.process_group, self.subgroup, self.start_localSGD_iter = process_group, subgroup, start_localSGD_iter
        self.post_local_gradient_allreduce, self.iter = post_local_gradient_allreduce, 0

    def __getstate__(self) -> dict:
        return {name: getattr(self, name) for name in self.__slots__ if name not in ("process_group", "subgroup")}

    def __setstate__(self, state) -> None:
        self.process_group = self.subgroup = None
        for name, value in state.items():
            setattr(self, name, value)

    def maybe_increase_iter(self, bucket) -> None:
        """Counts a step with its last bucket."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket) -> Future:
    """The mean over all ranks in the first steps, over the subgroup afterwards."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return _allreduce_fut(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return noop_hook(state, bucket)
    if state.subgroup is None:
        from ... import new_subgroups

        state.subgroup, _ = new_subgroups()
    return _allreduce_fut(state.subgroup, bucket.buffer())
