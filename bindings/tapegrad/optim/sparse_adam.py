"""Adam for sparse gradients."""

import math

from .. import _C, Tensor, zeros_like
from .adagrad import rows_of
from .optimizer import PerParameterOptimizer, _check_betas, _check_number

__all__ = ["SparseAdam"]


class SparseAdam(PerParameterOptimizer):
    """Adam in which the moments of a row move only when the row has a gradient. A step touches only those rows; the moments of a
    parameter, as large as it is, are made at its first step."""

    def __init__(self, params, lr=1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 maximize: bool = False) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        _check_number("lr", lr)
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        _check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [([i, j], p) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        for kind, bad in (("Sparse", [at for at, p in places if p.is_sparse]),
                          ("Complex", [at for at, p in places if p.is_complex()])):
            if bad:
                what = "requires dense parameter tensors" if kind == "Sparse" else "does not support complex parameters"
                raise ValueError(f"{kind} params at indices {bad}: SparseAdam {what}")

    def _refuse_in_graphs(self) -> None:
        if _C._cuda_is_captured():
            raise RuntimeError("SparseAdam: a step cannot be recorded into a CUDA graph: how many rows it touches depends on the values of the gradient\n"
                               "capture the forward and backward pass, and call step() after replay()")

    def _update(self, p, grad, group) -> None:
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=zeros_like(p.detach()), exp_avg_sq=zeros_like(p.detach()))
        state["step"] += 1
        grad = grad.coalesce()
        if grad._values().numel() == 0:
            return
        values = -grad._values() if group["maximize"] else grad._values()
        beta1, beta2 = group["betas"]
        moments = []
        for name, beta, target in (("exp_avg", beta1, values), ("exp_avg_sq", beta2, values.square())):
            old = rows_of(state[name], grad)
            change = (target - old) * (1 - beta)
            state[name].add_(_C._sparse_with_values(grad, change))
            moments.append(old + change)
        first, second = moments
        step = state["step"]
        rate = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        p.add_(_C._sparse_with_values(grad, first / (second.sqrt() + group["eps"])), alpha=-rate)
