"""Gradients against finite differences, in float64 or complex128."""

from __future__ import annotations

import numpy as np

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
        outputs = [t for t in _as_tuple(func(*own)) if isinstance(t, Tensor)]
        pairs = [(t, w) for t, w in zip(outputs, weight) if t.requires_grad]
        if not pairs:
            return ()
        grads = grad([t for t, _ in pairs], [own[i] for i in wanted], [w for _, w in pairs], create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    return _run(gradient, arguments + weights, tolerances, raise_exception, False)


# PyTorch's former helpers, which tests of operators call.


def _iter_tensors(x, only_requiring_grad: bool = False):
    """The tensors in nested containers."""
    if isinstance(x, Tensor):
        if x.requires_grad or not only_requiring_grad:
            yield x
    elif hasattr(x, "__iter__") and not isinstance(x, str):
        for item in x:
            yield from _iter_tensors(item, only_requiring_grad)


def _get_numerical_jacobian(fn, inputs, outputs=None, target=None, eps: float = 1e-3, is_forward_ad: bool = False) -> list:
    """For each tensor of `target` that requires a gradient, and each output of fn(inputs): the central differences, (elements in, elements out).

    O(elements in) calls, for which the elements are written to in place and set back.
    """
    from .. import no_grad, stack, zeros

    def flat() -> list:
        with no_grad():
            return [t.detach().clone().reshape(-1) for t in _iter_tensors(fn(inputs))]

    sizes = [t.numel() for t in _iter_tensors(outputs)] if outputs is not None else [t.numel() for t in flat()]
    found = []
    for x in _iter_tensors(inputs if target is None else target, True):
        rows: list[list] = [[] for _ in sizes]
        place = x.detach()
        for index in np.ndindex(*x.shape):
            derivatives = []
            for step in (eps, 1j * eps) if x.is_complex() else (eps,):
                value = place[index].item()
                try:
                    place[index] = value + step
                    high = flat()
                    place[index] = value - step
                    low = flat()
                finally:
                    place[index] = value
                derivatives.append([(a - b) / (2 * eps) for a, b in zip(high, low, strict=True)])
            for row, *parts in zip(rows, *derivatives):
                row.append(parts[0] if len(parts) == 1 else 0.5 * (parts[0] + 1j * parts[1]))  # conjugated below, as PyTorch's is
        found.append(tuple(stack(row) if row else zeros(0, size, dtype=x.dtype) for row, size in zip(rows, sizes)))
    return found


def get_numerical_jacobian(fn, inputs, target=None, eps: float = 1e-3, grad_out: float = 1.0) -> tuple:
    """The central differences of fn's first output with respect to each input that requires a gradient."""
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")
    return tuple(jacobians[0] for jacobians in _get_numerical_jacobian(fn, inputs, None, target, eps))


def get_analytical_jacobian(inputs, output, nondet_tol: float = 0.0, grad_out: float = 1.0) -> tuple:
    """(Jacobians of the output with respect to the inputs by backward, whether two runs agree to `nondet_tol`, sizes are right, dtypes are right)."""
    from .. import stack, zeros_like
    from . import grad

    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0.")
    wanted = list(_iter_tensors(inputs, True))

    def columns() -> list:
        rows: list[list] = [[] for _ in wanted]
        for index in np.ndindex(*output.shape):
            weight = zeros_like(output)
            weight[index] = 1
            for row, x, g in zip(rows, wanted, grad(output, wanted, weight, retain_graph=True, allow_unused=True)):
                row.append(zeros_like(x) if g is None else g)
        return rows

    first, second = columns(), columns()
    agree = all(bool(((a - b).abs() <= nondet_tol).all()) for u, v in zip(first, second) for a, b in zip(u, v))
    sizes = all(g.shape == x.shape for x, row in zip(wanted, first) for g in row)
    dtypes = all(g.dtype == x.dtype for x, row in zip(wanted, first) for g in row)
    return tuple(stack([g.reshape(-1) for g in row], 1) for row in first), agree, sizes, dtypes
