"""Muon."""

import math

from .. import Tensor, addmm, bfloat16, zeros_like
from .optimizer import PerParameterOptimizer, _check_number

__all__ = ["Muon"]


def _orthogonalized(matrix, coefficients: tuple[float, float, float], steps: int, eps: float):
    """About U V^T for matrix = U S V^T: `steps` rounds of a quintic Newton-Schulz iteration in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if matrix.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    if hasattr(matrix, "device_mesh"):  # parts with several ranks: the whole once, rather than an exchange and a rounding in each product
        from ..distributed._placements import Replicate

        matrix = matrix.redistribute(placements=[Replicate()] * matrix.device_mesh.ndim)
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.to(bfloat16, copy=True)
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(PerParameterOptimizer):
    """Momentum whose matrices are made orthogonal before they are applied (Jordan et al., 2024). For matrices only: embeddings,
    biases and the last layer go to another optimizer.

    `adjust_lr_fn`: "original" scales the rate by sqrt(max(1, rows / columns)), "match_rms_adamw" by
    0.2 sqrt(max(rows, columns)).
    """

    _counts_steps = False

    def __init__(self, params, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
                 adjust_lr_fn: str | None = None) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        _check_number("lr", lr)
        for name, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn})
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def _update(self, p, grad, group) -> None:
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Muon does not support sparse gradients")
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros_like(grad)
        mean = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        change = grad.lerp(mean, group["momentum"]) if group["nesterov"] else mean
        change = _orthogonalized(change, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        lr = float(group["lr"])
        if group["adjust_lr_fn"] == "match_rms_adamw":
            rate = lr * 0.2 * math.sqrt(max(rows, columns))
        else:
            rate = lr * math.sqrt(max(1, rows / columns))
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(change, alpha=-rate)
