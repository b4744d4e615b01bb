"""Rprop."""

from .optimizer import RuleOptimizer

__all__ = ["Rprop"]


class Rprop(RuleOptimizer):
    """Resilient propagation (Riedmiller and Braun, 1993): steps by the sign of the gradient. For whole batches.

    `etas` shrink and grow the size of an element's step, `step_sizes` bound it. A step is one native pass over all parameters.
    """

    _rule = "Rprop"
    _not_negative = ()

    def __init__(self, params, lr=1e-2, etas: tuple[float, float] = (0.5, 1.2), step_sizes: tuple[float, float] = (1e-6, 50), *,
                 capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable})
