"""Adamax."""

from .optimizer import RuleOptimizer

__all__ = ["Adamax"]


class Adamax(RuleOptimizer):
    """Adam with the largest gradient in place of their square mean (Kingma and Ba, 2015, section 7.1).

    A step is one native pass over all parameters.
    """

    _rule = "Adamax"

    def __init__(self, params, lr=2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable})
