"""Clipping of gradients."""

import math
from types import GeneratorType

from ... import Tensor, no_grad, stack, tensor
from ..._warn import warn

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _tensors(parameters) -> list:
    if hasattr(parameters, "parameters") and not hasattr(parameters, "__iter__"):
        raise TypeError(f"expected an iterable of Tensors, but got {type(parameters).__name__}\ngive its parameters()")
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _norm(values, norm_type: float):
    if norm_type == math.inf:
        return values.abs().max()
    return values.norm(norm_type)


def get_total_norm(tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None):
    """The norm of all tensors taken as one vector."""
    tensors = _tensors(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return tensor(0.0)
    if any(hasattr(t, "device_mesh") for t in tensors):
        total = _norm_over_ranks_of(tensors, norm_type)
        if error_if_nonfinite:
            _check_finite(total, norm_type)
        return total
    with no_grad():
        first = tensors[0].device
        norms = [_norm(t.detach(), norm_type).to(first) for t in tensors]
        total = norms[0] if len(norms) == 1 else _norm(stack(norms), norm_type)
    if error_if_nonfinite:
        _check_finite(total, norm_type)
    return total


def clip_grads_with_norm_(parameters, max_norm: float, total_norm, foreach: bool | None = None) -> None:
    """Scales the gradients by max_norm / total_norm where that is below 1."""
    grads = [g for p in _tensors(parameters) if (g := p.grad) is not None]
    if not grads:
        return
    with no_grad():
        # Multiplying by 1 in the usual case is cheaper than asking a device for the norm.
        whole = total_norm.full_tensor() if hasattr(total_norm, "device_mesh") else total_norm
        factor = (max_norm / (whole + 1e-6)).clamp(max=1.0)
        for grad in grads:
            part = grad.to_local() if hasattr(grad, "device_mesh") else grad
            part.mul_(factor.to(part.device))


def _check_finite(total, norm_type: float) -> None:
    if not total.isfinite():
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot "
                           "be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                           "`error_if_nonfinite=False`")


def _norm_over_ranks_of(tensors: list, norm_type: float):
    """The norm of DTensors and plain tensors together."""
    from ...distributed.tensor._norms import total_norm

    whole = [t for t in tensors if not hasattr(t, "device_mesh")]
    total = total_norm([t for t in tensors if hasattr(t, "device_mesh")], norm_type)
    return _norm(stack([total, get_total_norm(whole, norm_type).to(total.dtype)]), norm_type) if whole else total


def clip_grad_norm_(parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None):
    """Scales all gradients together so that their norm is at most max_norm; returns the norm before."""
    is_generator, parameters = isinstance(parameters, GeneratorType), _tensors(parameters)
    if is_generator and not parameters:
        warn("`parameters` is an empty generator, no gradient clipping will occur.")
    grads = [g for p in parameters if (g := p.grad) is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, float(max_norm), total, foreach)
    return total


def clip_grad_norm(parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach=None):
    """The old name of clip_grad_norm_."""
    warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
         FutureWarning)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every element of every gradient to [-clip_value, clip_value]."""
    clip_value = float(clip_value)
    with no_grad():
        for p in _tensors(parameters):
            if p.grad is not None:
                p.grad.clamp_(min=-clip_value, max=clip_value)
