"""Layers and losses as PyTorch has them at its root: with the parts that their gradients need as further results, and numbers in place of
words. The results are computed by nn.functional's functions. The module is imported when one of the names is first used."""

from .. import _C
from . import _reduction
from .overloads import overridable

__all__ = ["bilinear", "ctc_loss", "embedding_bag", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "native_batch_norm", "native_channel_shuffle",
           "native_dropout", "native_group_norm", "native_layer_norm", "set_anomaly_enabled"]

_ops, _nn, _autograd = _C._functions[""], _C._functions["nn.functional"], _C._autograd


def _statistics(x, dims: list[int], eps: float) -> tuple:
    """Mean and 1 / sqrt(variance + eps) over dims, which stay as 1; of 16 bits in float32."""
    if x.dtype in (_C.float16, _C.bfloat16):
        x = x.float()
    variance, mean = _ops["var_mean"](x, dims, correction=0, keepdim=True)
    return mean, (variance + eps).rsqrt()


@overridable
def native_layer_norm(input, normalized_shape, weight, bias, eps: float) -> tuple:
    """(layer_norm, mean, 1 / standard deviation): the last two have the shape of input with 1 in place of the normalised sizes."""
    out = _nn["layer_norm"](input, normalized_shape, weight, bias, eps)
    first = input.dim() - len(normalized_shape)
    return out, *_statistics(input, list(range(first, input.dim())), eps)


@overridable
def native_group_norm(input, weight, bias, N: int, C: int, HxW: int, group: int, eps: float) -> tuple:  # noqa: N803
    """(group_norm, mean, 1 / standard deviation) of input (N, C, HxW elements): the last two are (N, group)."""
    out = _nn["group_norm"](input, group, weight, bias, eps)
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
    return _nn["batch_norm"](input, running_mean, running_var, weight, bias, training, momentum, eps), *parts


@overridable
def native_dropout(input, p: float, train: bool | None) -> tuple:
    """(dropout, mask): the mask is true where an element was kept; train None counts as true."""
    if train is False or p == 0 or input.numel() == 0:
        return input.clone(), _ops["ones_like"](input, dtype=_C.bool)
    if not 0 <= p <= 1:
        raise RuntimeError(f"native_dropout: p must be between 0 and 1: got {p}")
    mask = _ops["empty_like"](input, dtype=_C.bool).bernoulli_(1 - p)
    return input * mask * (1 / (1 - p) if p < 1 else 0.0), mask


@overridable
def native_channel_shuffle(input, groups: int):
    """nn.functional's channel_shuffle."""
    return _nn["channel_shuffle"](input, groups)


@overridable
def bilinear(input1, input2, weight, bias=None):
    """nn.functional's."""
    return _nn["bilinear"](input1, input2, weight, bias)


@overridable
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank: int = 0, reduction: int = 1, zero_infinity: bool = False):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    return _nn["ctc_loss"](log_probs, targets, input_lengths, target_lengths, blank, _reduction("ctc_loss", reduction), zero_infinity)


@overridable
def embedding_bag(weight, indices, offsets, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False, per_sample_weights=None,
                  include_last_offset: bool = False, padding_idx: int | None = None) -> tuple:
    """(bags, the bag of each index, the number of indices of each bag without padding, for maxima the index that gave each element, else empty).

    weight (rows, width), indices (n), offsets (bags), mode 0 sum, 1 mean, 2 maximum.
    """
    if mode not in (0, 1, 2):
        raise ValueError(f"embedding_bag: mode is 0 (sum), 1 (mean) or 2 (max): got {mode}")
    padding = None if padding_idx is None or padding_idx < -weight.size(0) else padding_idx
    bags = _nn["embedding_bag"](indices, weight, offsets, None, 2.0, scale_grad_by_freq, ("sum", "mean", "max")[mode], sparse, per_sample_weights,
                                include_last_offset, padding)
    begin = offsets[:-1] if include_last_offset else offsets
    bag_of = _ops["searchsorted"](begin, _ops["arange"](indices.numel(), dtype=offsets.dtype), right=True) - 1
    kept = _ops["ones_like"](indices) if padding is None else (indices != padding % weight.size(0)).to(indices.dtype)
    sizes = _ops["zeros"](begin.numel(), dtype=indices.dtype).index_add_(0, bag_of, kept)
    largest = indices.new_zeros(0)
    if mode == 2:
        n = indices.numel()
        gave = (weight.detach()[indices] == bags.detach()[bag_of]) & (kept != 0)[:, None]
        place = _ops["where"](gave, _ops["arange"](n)[:, None], n)  # the first of equal ones is taken
        first = place.new_full(bags.shape, n).scatter_reduce_(0, bag_of[:, None].expand_as(place), place, "amin")
        largest = _ops["cat"]((indices, indices.new_zeros(1)))[first]
    return bags, bag_of, sizes, largest


def is_anomaly_enabled() -> bool:
    """Whether autograd.set_detect_anomaly is on."""
    return _autograd.is_anomaly_enabled()


def is_anomaly_check_nan_enabled() -> bool:
    """Whether it raises for NaN."""
    return _autograd.is_anomaly_check_nan_enabled()


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """autograd.set_detect_anomaly."""
    _autograd.set_anomaly(bool(enabled), bool(check_nan))
