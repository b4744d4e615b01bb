"""Functions of PyTorch's root module that its layers are made of, and that programs seldom call. Imported when one of them is first used."""

from .. import _C
from ..autograd import no_grad
from ..nn import functional as F
from .overloads import overridable

_root = _C._functions[""]
has_lapack = has_openmp = has_spectral = True
has_mkl = False


@overridable
def affine_grid_generator(theta, size, align_corners):
    """As nn.functional.affine_grid."""
    return F.affine_grid(theta, list(size), align_corners)


@overridable
def embedding_renorm_(input, indices, max_norm, norm_type):
    """Scales the rows of a table that are looked up and whose norm is larger than max_norm."""
    with no_grad():
        F.embedding(indices, input, None, max_norm, norm_type)
    return input


def _fake_quantized(name, input, scale, zero_point, quant_min, quant_max):
    """Rounded to multiples of scale; the gradient passes where nothing was cut off."""
    if quant_min > quant_max:
        raise RuntimeError(f"{name}: `quant_min` should be less than or equal to `quant_max`: got {quant_min} and {quant_max}")
    with no_grad():
        whole = (input * (1.0 / scale) + zero_point).round()
        inside = (whole >= quant_min) & (whole <= quant_max)
        result = (whole.clamp(quant_min, quant_max) - zero_point) * scale
    through = _root["where"](inside, input - input.detach(), 0.0)
    return result.to(input.dtype) + through


@overridable
def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    """What a tensor would be with whole numbers from quant_min to quant_max times a scale, as training for quantisation wants it."""
    return _fake_quantized("fake_quantize_per_tensor_affine", input, scale, zero_point, quant_min, quant_max)


@overridable
def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    """The same with a scale and a zero point for each place along a dimension."""
    if scale.shape != (input.shape[axis],) or zero_point.shape != scale.shape:
        raise RuntimeError(f"fake_quantize_per_channel_affine: expected {input.shape[axis]} scales and zero points: got {list(scale.shape)} and {list(zero_point.shape)}")
    sizes = [-1 if d == axis % input.dim() else 1 for d in range(input.dim())]
    return _fake_quantized("fake_quantize_per_channel_affine", input, scale.reshape(sizes), zero_point.reshape(sizes), quant_min, quant_max)
