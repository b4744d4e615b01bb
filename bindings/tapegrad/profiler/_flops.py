"""Multiplications and additions of operators, by the shapes of their arguments."""

from math import prod

__all__ = ["flops_of", "formulas"]


def _sizes(a):
    """The sizes of a tensor's record, or None."""
    return a[1] if isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], list) else None


def _broadcast(*shapes) -> list:
    n = max((len(s) for s in shapes), default=0)
    return [max((s[len(s) - n + d] for s in shapes if len(s) - n + d >= 0), default=1) for d in range(n)]


def matmul_flops(a, b) -> int:
    """Two per product and sum of (..., m, k) @ (..., k, n); vectors are rows and columns."""
    if not a or not b:
        return 0
    a = [1, *a] if len(a) == 1 else a
    b = [*b, 1] if len(b) == 1 else b
    return 2 * prod(_broadcast(a[:-2], b[:-2])) * a[-2] * a[-1] * b[-1]


def _conv(args):
    """(input, weight, bias, stride, padding, dilation, groups): two per product and sum, each output element meets a kernel."""
    x, w = _sizes(args[0]), _sizes(args[1])
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(x[2:], w[2:], args[3], args[4], args[5])]
    return 2 * x[0] * prod(w) * prod(out)


def _linear(args):
    w = _sizes(args[1])
    return matmul_flops(_sizes(args[0]), w if len(w) == 1 else [w[1], w[0]])


def _conv_grad_input(args):
    """(gradient of the output, weight, ...); transposed convolutions are this, too."""
    return 2 * _sizes(args[0])[0] * prod(_sizes(args[1])) * prod(_sizes(args[0])[2:])


def _conv_grad_weight(args):
    """(gradient of the output, input, sizes of the weight, ...)"""
    return 2 * _sizes(args[0])[0] * prod(args[2]) * prod(_sizes(args[0])[2:])


def _attention(args):
    q, k, v = (_sizes(a) for a in args[:3])
    return matmul_flops(q, [*k[:-2], k[-1], k[-2]]) + matmul_flops([*q[:-1], k[-2]], v)


def _elementwise(args):
    return prod(_broadcast(*(s for s in map(_sizes, args[:2]) if s is not None)))


# Of operators that call none of the others.
formulas = {
    "mm": lambda a: matmul_flops(_sizes(a[0]), _sizes(a[1])),
    "bmm": lambda a: matmul_flops(_sizes(a[0]), _sizes(a[1])),
    "mv": lambda a: matmul_flops(_sizes(a[0]), _sizes(a[1])),
    "dot": lambda a: matmul_flops(_sizes(a[0]), _sizes(a[1])),
    "addmm": lambda a: matmul_flops(_sizes(a[1]), _sizes(a[2])),
    "baddbmm": lambda a: matmul_flops(_sizes(a[1]), _sizes(a[2])),
    "linear": _linear, "convolution": _conv, "conv_grad_input": _conv_grad_input, "conv_grad_weight": _conv_grad_weight,
    "scaled_dot_product_attention": _attention,
    "add": _elementwise, "add_": _elementwise, "mul": _elementwise, "mul_": _elementwise,
}


def flops_of(name: str, args) -> int | None:
    """The floating-point operations of a call, or None for an operator without a formula."""
    formula = formulas.get(name)
    try:
        return None if formula is None else formula(args)
    except (TypeError, IndexError, ValueError):
        return None  # shapes that the operator refused
