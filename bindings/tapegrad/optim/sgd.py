"""Stochastic gradient descent."""

from .optimizer import RuleOptimizer

__all__ = ["SGD"]


class SGD(RuleOptimizer):
    """Stochastic gradient descent with momentum, dampening, weight decay and Nesterov's form.

    A step is one native pass over all parameters.
    """

    _rule = "SGD"
    _switches = ("nesterov", "maximize", "differentiable", "fused")
    _numbers = ()
    _not_negative = ()  # NaN passes, as in PyTorch

    def __init__(self, params, lr=1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused})
