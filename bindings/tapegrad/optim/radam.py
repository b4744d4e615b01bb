"""RAdam."""

from .optimizer import RuleOptimizer

__all__ = ["RAdam"]


class RAdam(RuleOptimizer):
    """Adam that uses the mean square of the gradients only when enough of them were seen (Liu et al., 2020).

    A step is one native pass over all parameters.
    """

    _rule = "RAdam"
    _switches = ("maximize", "capturable", "differentiable", "decoupled_weight_decay")

    def __init__(self, params, lr=1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable})
