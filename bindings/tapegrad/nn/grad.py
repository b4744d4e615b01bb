"""The gradients of convolutions as functions of their own: one kernel each, and differentiable like any other."""

from .. import _C

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]

_ops = _C._functions["_C._ops"]


def _make(d: int):
    def window(stride, padding, dilation):
        sizes = ((value,) if isinstance(value, int) else tuple(value) for value in (stride, padding, dilation))
        return [each * d if len(each) == 1 else each for each in sizes]

    def of_batch(sizes, *tensors):
        """The sizes and the tensors with a dimension of one sample where they have none."""
        lone = len(sizes) == d + 1
        return lone, ((1, *sizes) if lone else tuple(sizes)), *(t.unsqueeze(0) if lone else t for t in tensors)

    def conv_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups: int = 1):
        lone, sizes, output = of_batch(input_size, grad_output)
        result = _ops["_conv_grad_input"](output, weight.conj() if weight.is_complex() else weight, sizes, *window(stride, padding, dilation), groups)
        return result.squeeze(0) if lone else result

    def conv_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups: int = 1):  # noqa: A002
        _, _, x, output = of_batch(input.shape, input, grad_output)
        return _ops["_conv_grad_weight"](output, x.conj() if x.is_complex() else x, tuple(weight_size), *window(stride, padding, dilation), groups)

    conv_input.__name__ = conv_input.__qualname__ = f"conv{d}d_input"
    conv_weight.__name__ = conv_weight.__qualname__ = f"conv{d}d_weight"
    conv_input.__doc__ = f"The gradient of conv{d}d with respect to its input of shape `input_size`."
    conv_weight.__doc__ = f"The gradient of conv{d}d with respect to its weight of shape `weight_size`."
    return conv_input, conv_weight


conv1d_input, conv1d_weight = _make(1)
conv2d_input, conv2d_weight = _make(2)
conv3d_input, conv3d_weight = _make(3)
