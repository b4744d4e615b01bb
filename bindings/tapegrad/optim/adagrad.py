"""Adagrad."""

from .. import _C, full_like, no_grad
from .optimizer import RuleOptimizer, _counts_on_device, _scalar

__all__ = ["Adagrad"]


def rows_of(t, sparse):
    """The elements of a dense tensor at the places of a sparse one, in its order."""
    return t[tuple(sparse._indices().unbind(0))]


class Adagrad(RuleOptimizer):
    """Adagrad (Duchi et al., 2011). With sparse gradients a step touches only the rows that they name."""

    _rule = "Adagrad"
    _switches = ("maximize", "differentiable")
    _may_be_none = ("foreach", "fused")
    _not_negative = ("lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def __init__(self, params, lr=1e-2, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused})
        for group in self.param_groups:
            for p in group["params"]:
                self._start(p, group, initial_accumulator_value)

    def _start(self, p, group, value: float) -> None:
        with no_grad():
            self.state[p].update(step=_scalar(0), sum=full_like(p.detach(), complex(value, value) if p.is_complex() else value))
            if _counts_on_device(group) and p.is_cuda:
                self.state[p]["step"] = self.state[p]["step"].to(p.device)

    def share_memory(self) -> None:
        """Moves the sums to shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _sparse_update(self, p, grad, group) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        if not self.state[p]:
            self._start(p, group, self.defaults["initial_accumulator_value"])
        state = self.state[p]
        state["step"] += 1
        rate = float(group["lr"]) / (1 + (float(state["step"]) - 1) * group["lr_decay"])
        grad = grad.coalesce()
        values = -grad._values() if group["maximize"] else grad._values()
        state["sum"].add_(_C._sparse_with_values(grad, values.square()))
        roots = rows_of(state["sum"], grad).sqrt_().add_(group["eps"])
        p.add_(_C._sparse_with_values(grad, values / roots), alpha=-rate)
