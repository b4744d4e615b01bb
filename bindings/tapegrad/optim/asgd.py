"""Averaged stochastic gradient descent."""

from .optimizer import RuleOptimizer

__all__ = ["ASGD"]


class ASGD(RuleOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992). The average is in the state, under `ax`.

    A step is one native pass over all parameters.
    """

    _rule = "ASGD"
    _numbers = ("step", "eta", "mu")
    _not_negative = ("weight_decay",)

    def __init__(self, params, lr=1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0,
                 foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable})
