"""Leaves and functions that several tests of gradients begin with."""

import tapegrad as tg
from tapegrad.autograd import Function


def leaf(*values, dtype=tg.float64):
    return tg.tensor(list(values), dtype=dtype, requires_grad=True)


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0]


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class Same(Function):
    """What it is given; the gradient is what a test derives from it."""

    @staticmethod
    def forward(ctx, x):
        return x * 1


class InPlace(Function):
    """x *= 2; the gradient is what a test derives from it."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x
