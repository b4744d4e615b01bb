"""CyclicLR, which `lr_scheduler` offers."""

import math

from .lr_scheduler import LRScheduler, _attributes, _check_optimizer, _per_group, _set, _WithMomentum, _without


class CyclicLR(_WithMomentum):
    """Up from base_lr to max_lr in step_size_up steps and down again in step_size_down, over and over, momentum the other way
    (Smith, 2017).

    `mode`: "triangular", "triangular2" (the amplitude halves in each cycle) or "exp_range" (times gamma in each step).
    `scale_fn` replaces it: a factor of the amplitude from the number of the cycle or, with scale_mode "iterations", of the step.
    """

    def __init__(self, optimizer, base_lr, max_lr, step_size_up: int = 2000, step_size_down: int | None = None,
                 mode: str = "triangular", gamma: float = 1.0, scale_fn=None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum=0.8, max_momentum=0.9, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                _set(group, "lr", lr)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (float(step_size_down) if step_size_down is not None else up)
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x) -> float:
        """The factor of the amplitude in cycle (or step) x."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list:
        """The next rates; sets the momentum of the groups as well where it cycles."""
        self._asked()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)

        def part(low, high):
            return (high - low) * height * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

        rates = [low + part(low, high) for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True):
                self._set_momentum(group, high - part(low, high))
        return rates

    def state_dict(self) -> dict:
        """Everything but the optimizer; of scale_fn only the attributes of a callable object."""
        return super().state_dict() | {"_scale_fn_custom": _attributes(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: dict) -> None:
        """The reverse of state_dict."""
        attributes = state_dict["_scale_fn_custom"]
        super().load_state_dict(_without(state_dict, "_scale_fn_custom"))
        if attributes is not None:
            self._scale_fn_custom.__dict__.update(attributes)


CyclicLR.__module__ = LRScheduler.__module__
