"""Adagrad."""

from __future__ import annotations

from .. import _C, float32, full_like, no_grad, tensor
from .optimizer import PerParameterOptimizer, _check_lr, _check_supported

__all__ = ["Adagrad"]


def rows_of(t, sparse):
    """The elements of a dense tensor at the places of a sparse one, in its order."""
    return t[tuple(sparse._indices().unbind(0))]


def with_values(sparse, values):
    """The same places with other values."""
    return _C._sparse_make(sparse._indices(), values, tuple(sparse.shape), True)


class Adagrad(PerParameterOptimizer):
    """Adagrad (Duchi et al., 2011). With sparse gradients a step touches only the rows that they name."""

    def __init__(self, params, lr=1e-2, lr_decay: float = 0, weight_decay: float = 0, initial_accumulator_value: float = 0,
                 eps: float = 1e-10, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        _check_lr(lr)
        for name, value in (("lr_decay", lr_decay), ("weight_decay", weight_decay),
                            ("initial_accumulator_value", initial_accumulator_value), ("epsilon", eps)):
            if not value >= 0.0:
                raise ValueError(f"Invalid {name} value: {value}")
        _check_supported(foreach, fused, differentiable)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused})
        for group in self.param_groups:
            for p in group["params"]:
                self._start(p, initial_accumulator_value)

    def _start(self, p, value: float) -> None:
        with no_grad():
            self.state[p].update(step=tensor(0.0, dtype=float32), sum=full_like(p.detach(), value))

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        self._complete_groups("maximize", "differentiable")
        self._steps_to_tensors()

    def share_memory(self) -> None:
        """Moves the sums to shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _update(self, p, grad, group) -> None:
        if not self.state[p]:
            self._start(p, self.defaults["initial_accumulator_value"])
        state = self.state[p]
        state["step"] += 1
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"] != 0:
            if grad.is_sparse:
                raise RuntimeError("weight_decay option is not compatible with sparse gradients")
            grad = grad + p * group["weight_decay"]
        rate = float(group["lr"]) / (1 + (float(state["step"]) - 1) * group["lr_decay"])
        if not grad.is_sparse:
            if grad.is_complex():  # real and imaginary part are numbers of their own
                from .. import view_as_real
                p, grad, total = view_as_real(p), view_as_real(grad), view_as_real(state["sum"])
            else:
                total = state["sum"]
            total.addcmul_(grad, grad)
            p.addcdiv_(grad, total.sqrt().add_(group["eps"]), value=-rate)
            return
        grad = grad.coalesce()
        values = grad._values()
        _C._sparse_add_to_(state["sum"], with_values(grad, values.square()), 1)
        roots = rows_of(state["sum"], grad).sqrt_().add_(group["eps"])
        _C._sparse_add_to_(p, with_values(grad, values / roots), -rate)
