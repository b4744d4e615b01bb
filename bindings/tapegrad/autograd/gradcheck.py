"""Gradients against finite differences, in float64 or complex128."""

from __future__ import annotations

from .._C import Tensor, _autograd
from .grad_mode import no_grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient differs from its finite differences."""


def gradcheck(func, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """True when backward through `func` gives what central differences give, for each input that requires a gradient.

    A function whose outputs require none must not depend on the inputs. Else raises GradcheckError, which says where and by how much, or
    returns False without `raise_exception`. Inputs must be float64 or complex128, else ValueError. The comparison is
    |a - n| <= atol + rtol |n|; `nondet_tol`, `fast_mode` and the other switches are accepted: the full comparison is what runs.
    """
    return _run(func, inputs, (eps, atol, rtol), raise_exception, False)


def gradgradcheck(func, inputs, grad_outputs=None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
                  check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False,
                  masked: bool = False) -> bool:
    """gradcheck of the gradient of `func`, weighted with fixed numbers or with `grad_outputs`."""
    if grad_outputs is not None:
        return _run_weighted(func, inputs, grad_outputs, (eps, atol, rtol), raise_exception)
    return _run(func, inputs, (eps, atol, rtol), raise_exception, True)


def _as_tuple(value) -> tuple:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _run(func, inputs, tolerances, raise_exception: bool, second: bool) -> bool:
    arguments = _as_tuple(inputs)
    tensors = tuple(a for a in arguments if isinstance(a, Tensor))

    def call(*given):
        own = iter(given)
        result = func(*[next(own) if isinstance(a, Tensor) else a for a in arguments])
        return tuple(t for t in _as_tuple(result) if isinstance(t, Tensor))

    try:
        _autograd.gradcheck(call, tensors, *tolerances, second)
    except RuntimeError as error:
        if not str(error).startswith("gradcheck: "):
            raise
        if not second and str(error).startswith("gradcheck: no output requires a gradient") and _is_constant(call, tensors, tolerances[0]):
            return True
        if raise_exception:
            raise GradcheckError(str(error)) from None
        return False
    return True


def _is_constant(call, tensors, eps: float) -> bool:
    """Whether no output changes with an element of an input that requires a gradient: then having none is right."""
    with no_grad():
        for at, t in enumerate(tensors):
            for element in range(t.numel() if t.requires_grad else 0):
                found = []
                for step in (eps, -eps):
                    moved = t.detach().clone().contiguous()
                    moved.view(-1)[element] += step
                    found.append(call(*tensors[:at], moved, *tensors[at + 1:]))
                if not all(a.equal(b) for a, b in zip(*found, strict=True)):
                    return False
    return True


def _run_weighted(func, inputs, grad_outputs, tolerances, raise_exception: bool) -> bool:
    from . import grad

    arguments, weights = _as_tuple(inputs), _as_tuple(grad_outputs)
    wanted = [i for i, a in enumerate(arguments) if isinstance(a, Tensor) and a.requires_grad]

    def gradient(*everything):
        own, weight = everything[:len(arguments)], everything[len(arguments):]
        outputs = [t for t in _as_tuple(func(*own)) if isinstance(t, Tensor) and t.requires_grad]
        grads = grad(outputs, [own[i] for i in wanted], weight, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return _run(gradient, arguments + weights, tolerances, raise_exception, False)
