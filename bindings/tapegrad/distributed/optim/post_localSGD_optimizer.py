"""An optimizer that averages the ranks' models periodically after its steps."""

from ..._warn import warn
from ...optim import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Calls an optimizer, then an averager (distributed.algorithms.model_averaging.averagers) on its parameters."""

    def __init__(self, optim, averager):
        self.optim, self.averager = optim, averager
        super().__init__(optim.param_groups, optim.defaults)
        self.param_groups, self.state = optim.param_groups, optim.state

    def step(self, closure=None):
        """The optimizer's step, and the average where it is its turn."""
        result = self.optim.step(closure) if closure is not None else self.optim.step()
        self.averager.average_parameters(self.param_groups)
        return result

    def state_dict(self) -> dict:
        """The optimizer's, with the averager's count of steps."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict) -> None:
        """The optimizer's state and the averager's count."""
        state_dict = dict(state_dict)
        if "step" not in state_dict:
            warn("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.")
        self.averager.step = state_dict.pop("step", 0)
        self.optim.load_state_dict(state_dict)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group) -> None:
        """Adds parameters with options of their own to the optimizer."""
        if param_group not in self.optim.param_groups:
            self.optim.add_param_group(param_group)

    def __repr__(self) -> str:
        return repr(self.optim)
