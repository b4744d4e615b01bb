"""The base of the schedules of the learning rate."""

from __future__ import annotations

import warnings
import weakref

from .. import Tensor
from .optimizer import Optimizer

_EPOCH_WARNING = ("The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
                  "`scheduler.step()` to step the scheduler.")


def _copied(value):
    return value.clone() if isinstance(value, Tensor) else value


def _values(optimizer, key: str) -> list:
    return [_copied(group[key]) for group in optimizer.param_groups]


def _set(group: dict, key: str, value) -> None:
    """A learning rate that is a tensor stays the same tensor."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value)
    else:
        group[key] = value


def _per_group(name: str, optimizer, value) -> list:
    n = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != n:
            raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
                             f"param_groups has {n}.")
        return list(value)
    return [value] * n


def _note_step(optimizer) -> None:
    """Makes the optimizer's first step leave a mark, to warn of calls in the wrong order; it undoes itself then."""
    if getattr(optimizer.step, "_notes_step", False) or getattr(optimizer, "_opt_called", False):
        return
    step = optimizer.step
    ours = "step" not in optimizer.__dict__
    owner = weakref.ref(optimizer)

    def noting(*args, **kwargs):
        self = owner()
        self._opt_called = True
        if self.__dict__.get("step") is noting:
            if ours:
                del self.__dict__["step"]
            else:
                self.step = step
        return type(self).step(self, *args, **kwargs) if ours else step(*args, **kwargs)

    noting._notes_step = True
    noting._runs_hooks = getattr(step, "_runs_hooks", False)
    optimizer.step = noting


class LRScheduler:
    """Base of the schedules: subclasses compute `get_lr()` from `last_epoch` and the current values."""

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                               "last_epoch >= 0.\nload the optimizer's state first, or leave last_epoch out for a new run")
        self.base_lrs = _values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_step(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict) -> None:
        """The reverse of state_dict."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list:
        """The learning rates that the last step set."""
        return self._last_lr

    def get_lr(self) -> list:
        """The next learning rate of each group."""
        raise NotImplementedError

    def _current(self) -> list:
        return _values(self.optimizer, "lr")

    def _scaled(self, factor: float) -> list:
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _asked(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", UserWarning,
                          stacklevel=3)

    def step(self, epoch: int | None = None) -> None:
        """Goes on by one, or to the given epoch."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you "
                          "should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure "
                          "to do this will result in PyTorch skipping the first value of the learning rate schedule.",
                          UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(_EPOCH_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                values = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            _set(group, "lr", lr)
        self._last_lr = self._current()
