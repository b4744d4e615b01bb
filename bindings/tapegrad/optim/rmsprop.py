"""RMSprop."""

from .optimizer import RuleOptimizer

__all__ = ["RMSprop"]


class RMSprop(RuleOptimizer):
    """RMSprop (Hinton, 2012), with momentum, and centered as in Graves (2013).

    A step is one native pass over all parameters.
    """

    _rule = "RMSprop"
    _not_negative = ("eps", "momentum", "weight_decay", "alpha")

    def __init__(self, params, lr=1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0,
                 centered: bool = False, capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered, "weight_decay": weight_decay,
            "capturable": capturable, "foreach": foreach, "maximize": maximize, "differentiable": differentiable})

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("momentum", 0)
            group.setdefault("centered", False)
