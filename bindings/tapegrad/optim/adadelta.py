"""Adadelta."""

from .optimizer import RuleOptimizer

__all__ = ["Adadelta"]


class Adadelta(RuleOptimizer):
    """Adadelta (Zeiler, 2012). A step is one native pass over all parameters."""

    _rule = "Adadelta"

    def __init__(self, params, lr=1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
                 foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False) -> None:
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "capturable": capturable,
            "foreach": foreach, "differentiable": differentiable})
