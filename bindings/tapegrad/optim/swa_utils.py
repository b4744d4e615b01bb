"""Averages of weights: equally weighted (Izmailov et al., 2018) or exponential."""

import itertools
import math
from copy import deepcopy

from .. import int64, no_grad, tensor
from ..nn import Module
from ..nn.modules.batchnorm import _BatchNorm
from .lr_scheduler import LRScheduler, _per_group

__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn"]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _has_fractions(t) -> bool:
    return t.is_floating_point() or t.is_complex()


def get_ema_multi_avg_fn(decay: float = 0.999):
    """A function (averages, current values, number) that moves the averages by 1 - decay towards the current values."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list, current_param_list, _) -> None:
        for mean, p in zip(ema_param_list, current_param_list, strict=True):
            if _has_fractions(mean):
                mean.lerp_(p, 1 - decay)
            else:
                mean.copy_(mean * decay + p * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn():
    """A function (averages, current values, number of values averaged so far) that takes one more into the equal average."""

    @no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged) -> None:
        weight = 1 / (float(num_averaged) + 1)
        for mean, p in zip(averaged_param_list, current_param_list, strict=True):
            if _has_fractions(mean):
                mean.lerp_(p, weight)
            else:
                mean.copy_(mean + (p - mean) * weight)

    return swa_update


def get_ema_avg_fn(decay: float = 0.999):
    """A function (average, current value, number) that returns the new exponential average."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """A function (average, current value, number of values averaged so far) that returns the new equal average."""

    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of `model` whose parameters (with `use_buffers` its buffers, too) are averages over the calls of
    `update_parameters`. Without `avg_fn` and `multi_avg_fn` all calls count equally."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @staticmethod
    def _averaged(module, use_buffers: bool):
        return itertools.chain(module.parameters(), module.buffers()) if use_buffers else module.parameters()

    def update_parameters(self, model) -> None:
        """Takes the values of `model` into the averages; the first call copies them."""
        means, values = [], []
        for mean, p in zip(self._averaged(self.module, self.use_buffers), self._averaged(model, self.use_buffers), strict=False):
            means.append(mean.detach())
            values.append(p.detach().to(mean.device))
        if self.n_averaged == 0:
            for mean, p in zip(means, values, strict=True):
                mean.copy_(p)
        elif self.multi_avg_fn is not None:
            kinds: dict = {}
            for mean, p in zip(means, values, strict=True):
                of_kind = kinds.setdefault((mean.device, mean.dtype), ([], []))
                of_kind[0].append(mean)
                of_kind[1].append(p)
            for (device, _), (some_means, some_values) in kinds.items():
                self.multi_avg_fn(some_means, some_values, self.n_averaged.to(device))
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for mean, p in zip(means, values, strict=True):
                mean.copy_(average(mean, p, self.n_averaged.to(mean.device)))
        if not self.use_buffers:
            for kept, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                kept.detach().copy_(buffer.detach().to(kept.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader, model, device=None) -> None:
    """Computes the running statistics of all batch norms of `model` anew, from one pass over `loader`. Of a batch that is a
    tuple or list the first element goes into the model."""
    layers = {layer: layer.momentum for layer in model.modules() if isinstance(layer, _BatchNorm)}
    if not layers:
        return
    was_training = model.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the equal average of all batches
    model.train()
    for batch in loader:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(x if device is None else x.to(device))
    for layer, momentum in layers.items():
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the current rate to `swa_lr` within anneal_epochs, along a cosine ("cos") or a line ("linear"); then constant."""

    def __init__(self, optimizer, swa_lr, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        for group, lr in zip(optimizer.param_groups, _per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """The part of the way at the part t of the time."""
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list:
        self._asked()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        whole = max(1, self.anneal_epochs)
        before = self.anneal_func(max(0, min(1, (step - 1) / whole)))
        now = self.anneal_func(max(0, min(1, step / whole)))
        rates = []
        for group in self.optimizer.param_groups:
            lr, goal = group["lr"], group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
