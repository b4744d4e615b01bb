"""NAdam."""

from .optimizer import RuleOptimizer

__all__ = ["NAdam"]


class NAdam(RuleOptimizer):
    """Adam with Nesterov's momentum (Dozat, 2016). A step is one native pass over all parameters."""

    _rule = "NAdam"
    _switches = ("maximize", "capturable", "differentiable", "decoupled_weight_decay")
    _numbers = ("step", "mu_product")
    _not_negative = ("eps", "weight_decay", "momentum_decay")

    def __init__(self, params, lr=2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False, differentiable: bool = False) -> None:
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable})
