"""The gradients of convolutions as functions of their own."""

from .. import autograd, enable_grad, is_grad_enabled, zeros
from . import functional as F  # noqa: N812

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _make(d: int):
    conv = getattr(F, f"conv{d}d")

    def gradient(result, leaf, grad_output):
        return autograd.grad(result, leaf, grad_output, create_graph=is_grad_enabled() and grad_output.requires_grad)[0]

    def conv_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups: int = 1):
        with enable_grad():
            x = zeros(tuple(input_size), dtype=weight.dtype, device=weight.device, requires_grad=True)
            result = conv(x, weight, None, stride, padding, dilation, groups)
        return gradient(result, x, grad_output)

    def conv_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups: int = 1):  # noqa: A002
        with enable_grad():
            weight = zeros(tuple(weight_size), dtype=input.dtype, device=input.device, requires_grad=True)
            result = conv(input, weight, None, stride, padding, dilation, groups)
        return gradient(result, weight, grad_output)

    conv_input.__name__ = conv_input.__qualname__ = f"conv{d}d_input"
    conv_weight.__name__ = conv_weight.__qualname__ = f"conv{d}d_weight"
    conv_input.__doc__ = f"The gradient of conv{d}d with respect to its input of shape `input_size`."
    conv_weight.__doc__ = f"The gradient of conv{d}d with respect to its weight of shape `weight_size`."
    return conv_input, conv_weight


conv1d_input, conv1d_weight = _make(1)
conv2d_input, conv2d_weight = _make(2)
conv3d_input, conv3d_weight = _make(3)
