"""Functions of PyTorch's root module that its layers are made of, and that programs seldom call: with the parts that gradients need as further
results, and numbers in place of words. Imported when one of them is first used."""

from .. import _C
from ..autograd import no_grad
from ..nn import functional as F
from . import _reduction
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


def _statistics(x, dims: list[int], eps: float) -> tuple:
    """Mean and 1 / sqrt(variance + eps) over dims, which stay as 1; of 16 bits in float32."""
    if x.dtype in (_C.float16, _C.bfloat16):
        x = x.float()
    variance, mean = _root["var_mean"](x, dims, correction=0, keepdim=True)
    return mean, (variance + eps).rsqrt()


@overridable
def native_layer_norm(input, normalized_shape, weight, bias, eps: float) -> tuple:
    """(layer_norm, mean, 1 / standard deviation): the last two have the shape of input with 1 in place of the normalised sizes."""
    out = F.layer_norm(input, normalized_shape, weight, bias, eps)
    first = input.dim() - len(normalized_shape)
    return out, *_statistics(input, list(range(first, input.dim())), eps)


@overridable
def native_group_norm(input, weight, bias, N: int, C: int, HxW: int, group: int, eps: float) -> tuple:  # noqa: N803
    """(group_norm, mean, 1 / standard deviation) of input (N, C, HxW elements): the last two are (N, group)."""
    out = F.group_norm(input, group, weight, bias, eps)
    mean, rstd = _statistics(input.reshape(N, group, -1), [2], eps)
    return out, mean.squeeze(2), rstd.squeeze(2)


@overridable
def native_batch_norm(input, weight, bias, running_mean, running_var, training: bool, momentum: float, eps: float) -> tuple:
    """(batch_norm, mean, 1 / standard deviation) of input (N, C, ...): the last two are (C), and empty without training."""
    if training:
        mean, rstd = _statistics(input.detach(), [d for d in range(input.dim()) if d != 1], eps)
        parts = mean.flatten(), rstd.flatten()
    else:
        parts = input.new_empty(0), input.new_empty(0)
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps), *parts


@overridable
def native_dropout(input, p: float, train: bool | None) -> tuple:
    """(dropout, mask): the mask is true where an element was kept; train None counts as true."""
    if train is False or p == 0 or input.numel() == 0:
        return input.clone(), _root["ones_like"](input, dtype=_C.bool)
    if not 0 <= p <= 1:
        raise RuntimeError(f"native_dropout: p must be between 0 and 1: got {p}")
    mask = _root["empty_like"](input, dtype=_C.bool).bernoulli_(1 - p)
    return input * mask * (1 / (1 - p) if p < 1 else 0.0), mask


@overridable
def native_channel_shuffle(input, groups: int):
    """nn.functional's channel_shuffle."""
    return F.channel_shuffle(input, groups)


@overridable
def bilinear(input1, input2, weight, bias=None):
    """nn.functional's."""
    return F.bilinear(input1, input2, weight, bias)


@overridable
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank: int = 0, reduction: int = 1, zero_infinity: bool = False):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _reduction("ctc_loss", reduction), zero_infinity)


@overridable
def embedding_bag(weight, indices, offsets, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False, per_sample_weights=None,
                  include_last_offset: bool = False, padding_idx: int | None = None) -> tuple:
    """(bags, the bag of each index, the number of indices of each bag without padding, for maxima the index that gave each element, else empty).

    weight (rows, width), indices (n), offsets (bags), mode 0 sum, 1 mean, 2 maximum.
    """
    if mode not in (0, 1, 2):
        raise ValueError(f"embedding_bag: mode is 0 (sum), 1 (mean) or 2 (max): got {mode}")
    padding = None if padding_idx is None or padding_idx < -weight.size(0) else padding_idx
    bags = F.embedding_bag(indices, weight, offsets, None, 2.0, scale_grad_by_freq, ("sum", "mean", "max")[mode], sparse, per_sample_weights,
                                include_last_offset, padding)
    begin = offsets[:-1] if include_last_offset else offsets
    bag_of = _root["searchsorted"](begin, _root["arange"](indices.numel(), dtype=offsets.dtype), right=True) - 1
    kept = _root["ones_like"](indices) if padding is None else (indices != padding % weight.size(0)).to(indices.dtype)
    sizes = _root["zeros"](begin.numel(), dtype=indices.dtype).index_add_(0, bag_of, kept)
    largest = indices.new_zeros(0)
    if mode == 2:
        n = indices.numel()
        gave = (weight.detach()[indices] == bags.detach()[bag_of]) & (kept != 0)[:, None]
        place = _root["where"](gave, _root["arange"](n)[:, None], n)  # the first of equal ones is taken
        first = place.new_full(bags.shape, n).scatter_reduce_(0, bag_of[:, None].expand_as(place), place, "amin")
        largest = _root["cat"]((indices, indices.new_zeros(1)))[first]
    return bags, bag_of, sizes, largest


def is_anomaly_enabled() -> bool:
    """Whether autograd.set_detect_anomaly is on."""
    return _C._autograd.is_anomaly_enabled()


def is_anomaly_check_nan_enabled() -> bool:
    """Whether it raises for NaN."""
    return _C._autograd.is_anomaly_check_nan_enabled()


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """autograd.set_detect_anomaly."""
    _C._autograd.set_anomaly(bool(enabled), bool(check_nan))
