"""Adafactor."""

import math

from .. import _C, Tensor, finfo, norm, zeros_like
from .optimizer import PerParameterOptimizer, _check_number, _counts_on_device, _scalar

__all__ = ["Adafactor"]


def _number(t: Tensor, there: bool):
    return t.double() if there else t.item()


def _at_least(least: float, x):
    return x.clamp(min=least) if isinstance(x, Tensor) else max(least, x)


def _at_most(most, x):
    if not isinstance(x, Tensor):
        return min(most, x)
    return x.minimum(most) if isinstance(most, Tensor) else x.clamp(max=most)


def _weight(new, like: Tensor):
    return new.to(like.dtype) if isinstance(new, Tensor) else new


class Adafactor(PerParameterOptimizer):
    """Adafactor (Shazeer and Stern, 2018): of the mean squares of a matrix only those of its rows and columns are kept.

    As in PyTorch `lr` is the largest relative step, and `eps[0]` bounds the estimate, not the squares; None means the
    resolution of the parameter's dtype. Steps are as long as the parameter is large, at least `eps[1]`, and clipped where
    their root mean square exceeds `d`.

    With `capturable`, which PyTorch's does not have, nothing of a step on a CUDA device goes through the host, so that it may be recorded into a
    CUDA graph once a step has been taken, and goes on counting when that is replayed; an lr that is a tensor there is read in each replay.
    """

    _takes_capturable = True

    def __init__(self, params, lr=1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
                 d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        _check_number("lr", lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        # Only on request, so that PyTorch's loads what others save.
        more = {"capturable": True} if capturable else {}
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
                                  "foreach": foreach, "maximize": maximize, **more})

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
        self._to_tensors("step")
        self._to_devices()

    def _update(self, p, grad, group) -> None:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients")
        there = p.is_cuda and _counts_on_device(group)
        state = self.state[p]
        if not state:
            if there and _C._cuda_is_captured():
                raise RuntimeError("Adafactor: the state would be made in each replay of the CUDA graph\ntake a step before the capture")
            state["step"] = _scalar(0).to(p.device) if there else _scalar(0)
            if grad.dim() > 1:
                shape = tuple(grad.shape)
                state["row_var"] = grad.new_zeros((*shape[:-1], 1))
                state["col_var"] = grad.new_zeros((*shape[:-2], 1, shape[-1]))
            else:
                state["variance"] = zeros_like(grad)
        state["step"] += 1
        # Numbers are those of the host, or, where the device counts, doubles in tensors of the device, which the host does not read.
        step, lr = _number(state["step"], there), group["lr"]
        lr = lr.to(p.device).double() if there and isinstance(lr, Tensor) else float(lr)
        eps1 = finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
        if group["maximize"]:
            grad = -grad
        new = step ** group["beta2_decay"]  # the weight of this step's squares
        size = _at_least(group["eps"][1], _number(p.norm(2), there) / math.sqrt(p.numel()))
        rate = size * _at_most(lr, 1 / (step.sqrt() if there else math.sqrt(step)))
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(norm(grad, dim=-1, keepdim=True).square_().div_(grad.size(-1)), _weight(new, rows))
            columns.lerp_(norm(grad, dim=-2, keepdim=True).square_().div_(grad.size(-2)), _weight(new, columns))
            estimate = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            estimate = state["variance"].lerp_(grad * grad, _weight(new, grad)).clone()
        change = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        clipped = _at_least(1.0, _number(change.norm(2), there) / (math.sqrt(change.numel()) * group["d"]))
        if there:
            p.sub_(change.mul_(rate / clipped))
        else:
            p.add_(change, alpha=-rate / clipped)
