"""ShardedGradScaler: loss scaling where each rank sees its pieces of the gradients only."""

from ...amp import GradScaler
from .. import distributed_c10d as dist

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """A GradScaler whose ranks skip a step together: one that finds an infinite gradient tells the others."""

    def __init__(self, device: str = "cpu", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
                 growth_interval: int = 2000, enabled: bool = True, process_group=None):
        super().__init__(device, init_scale=init_scale, backoff_factor=backoff_factor, growth_factor=growth_factor,
                         growth_interval=growth_interval, enabled=enabled)
        self.process_group = process_group

    def unscale_(self, optimizer) -> None:
        """Divides the gradients by the scale; whether one was infinite is the same on all ranks afterwards."""
        super().unscale_(optimizer)
        if self.is_enabled():
            for found in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values():
                dist.all_reduce(found, dist.ReduceOp.MAX, group=self.process_group)
