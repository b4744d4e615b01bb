"""Adafactor."""

from __future__ import annotations

import math

from .. import Tensor, finfo, norm, zeros_like
from .optimizer import PerParameterOptimizer, _scalar

__all__ = ["Adafactor"]


class Adafactor(PerParameterOptimizer):
    """Adafactor (Shazeer and Stern, 2018): of the mean squares of a matrix only those of its rows and columns are kept.

    As in PyTorch `lr` is the largest relative step, and `eps[0]` bounds the estimate, not the squares; None means the
    resolution of the parameter's dtype. Steps are as long as the parameter is large, at least `eps[1]`, and clipped where
    their root mean square exceeds `d`.
    """

    def __init__(self, params, lr=1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
                 d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
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
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
                                  "foreach": foreach, "maximize": maximize})

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
        self._to_tensors("step")

    def _update(self, p, grad, group) -> None:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients")
        state = self.state[p]
        if not state:
            state["step"] = _scalar(0)
            if grad.dim() > 1:
                shape = tuple(grad.shape)
                state["row_var"] = grad.new_zeros((*shape[:-1], 1))
                state["col_var"] = grad.new_zeros((*shape[:-2], 1, shape[-1]))
            else:
                state["variance"] = zeros_like(grad)
        state["step"] += 1
        step, lr = state["step"].item(), float(group["lr"])
        eps1 = finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
        if group["maximize"]:
            grad = -grad
        new = step ** group["beta2_decay"]  # the weight of this step's squares
        size = max(group["eps"][1], p.norm(2).item() / math.sqrt(p.numel()))
        rate = size * min(lr, 1 / math.sqrt(step))
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(norm(grad, dim=-1, keepdim=True).square_().div_(grad.size(-1)), new)
            columns.lerp_(norm(grad, dim=-2, keepdim=True).square_().div_(grad.size(-2)), new)
            estimate = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            estimate = state["variance"].lerp_(grad * grad, new).clone()
        change = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        clipped = max(1.0, change.norm(2).item() / (math.sqrt(change.numel()) * group["d"]))
        p.add_(change, alpha=-rate / clipped)
