"""Functions of the root module that are not rows of the op table: methods as functions, copies of views, and PyTorch's low
forms of layer functions, whose arguments differ from those of nn.functional."""

from __future__ import annotations

from typing import NamedTuple

from .. import _C
from .overloads import overridable

_ops = _C._functions[""]
_nn = _C._functions["nn.functional"]
_Tensor = _C.Tensor

__all__ = []


def _public(function):
    function.__module__ = "tapegrad"
    __all__.append(function.__name__)
    return overridable(function)


def _method_as_function(name: str, doc: str) -> None:
    def checked(input, *args, **kwargs):
        if not isinstance(input, _Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return getattr(input, name)(*args, **kwargs)

    def alone(input):
        return checked(input)

    def with_other(input, other):
        return checked(input, other)

    function = {"is_same_size": with_other}.get(name, checked if name in ("fill_", "resize_as_", "as_strided_") else alone)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    globals()[name] = _public(function)


for _name, _doc in {
    "detach": "The same memory, unknown to the tape.",
    "detach_": "Takes the tensor off the tape.",
    "fill_": "Writes one value to every element.",
    "zero_": "Writes zero to every element.",
    "resize_as_": "resize_ to the shape of another tensor.",
    "resolve_conj": "The tensor itself: conjugation is never postponed.",
    "resolve_neg": "The tensor itself: negation is never postponed.",
    "is_signed": "Whether the dtype has negative numbers.",
    "is_conj": "False: conjugation is never postponed.",
    "is_neg": "False: negation is never postponed.",
    "is_inference": "Whether the tensor was made in inference mode.",
    "is_same_size": "Whether both have one shape.",
    "get_device": "The index of a CUDA device; -1 on the CPU.",
    "as_strided_": "Gives the tensor itself other sizes and strides.",
    "is_distributed": "False.",
}.items():
    _method_as_function(_name, _doc)


def _copied(name: str, result, out):
    """A copy of a view, or of each of several; written to `out` where it is given."""
    if isinstance(result, _Tensor):
        return result.clone() if out is None else _C._write_out(name, out, result)
    if out is None:
        return tuple(t.clone() for t in result)
    if len(out) != len(result):
        raise RuntimeError(f"{name}: expected {len(result)} tensors in out: got {len(out)}")
    for t, o in zip(result, out):
        _C._write_out(name, o, t)
    return None  # as PyTorch's


def _copy_of_view(view: str, function) -> None:
    name = f"{view}_copy"

    def copy(input, *args, out=None, **kwargs):
        if not isinstance(input, _Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return _copied(name, function(input, *args, **kwargs), out)

    copy.__name__ = copy.__qualname__ = name
    copy.__doc__ = f"A copy of what {view} gives a view of."
    globals()[name] = _public(copy)


for _name in ("as_strided", "detach", "diagonal", "expand", "narrow", "permute", "select", "split", "split_with_sizes", "squeeze", "t",
              "transpose", "unbind", "unfold", "unsqueeze", "view"):
    _copy_of_view(_name, getattr(_Tensor, _name))
for _name in ("view_as_real", "view_as_complex"):
    _copy_of_view(_name, _ops[_name])
_copy_of_view("alias", lambda input: input)


@_public
def broadcast_shapes(*shapes):
    """The shape that all shapes (sequences of ints, or an int) broadcast to."""
    result: list[int] = []
    for shape in shapes:
        sizes = [shape] if isinstance(shape, int) else list(shape)
        for s in sizes:
            if not isinstance(s, int):
                raise RuntimeError(f"broadcast_shapes: expected sizes that are ints: got {type(s).__name__}")
            if s < 0:
                raise RuntimeError(f"broadcast_shapes: sizes must not be negative: got {tuple(sizes)}")
        result = [1] * (len(sizes) - len(result)) + result
        for i in range(1, len(sizes) + 1):
            if sizes[-i] != 1 and sizes[-i] != result[-i]:
                if result[-i] != 1:
                    raise RuntimeError("broadcast_shapes: shapes do not broadcast: got " + ", ".join(str(s) for s in shapes))
                result[-i] = sizes[-i]
    return _C.Size(result)


class _Histogramdd(NamedTuple):
    hist: _Tensor
    bin_edges: tuple


_Histogramdd.__name__ = _Histogramdd.__qualname__ = "histogramdd"


@_public
def histogramdd(input, bins, range=None, weight=None, density=False):
    """Counts of points (the last dimension holds their coordinates) in boxes, and the edges per coordinate.

    `bins`: a number of equal parts, one per coordinate, or the edges per coordinate. `range`: the lower and upper ends, one
    after the other; by default the points' own.
    """
    if input.dim() < 1:
        raise RuntimeError("histogramdd: expected at least one dimension: got a tensor without")
    n = input.shape[-1]
    bins = [bins] * n if isinstance(bins, int) else list(bins)
    if len(bins) != n:
        raise RuntimeError(f"histogramdd: expected bins for each of {n} coordinates: got {len(bins)}")
    if range is not None and len(range) != 2 * n:
        raise RuntimeError(f"histogramdd: expected {2 * n} ends of ranges: got {len(range)}")
    if n == 0:
        return _Histogramdd(_ops["full"]((), float("nan") if density else 0.0, dtype=input.dtype, device=input.device), ())
    edges = []
    points = input.detach().reshape(-1, n)
    for k, wanted in enumerate(bins):
        if isinstance(wanted, _Tensor):
            edges.append(wanted)
            continue
        if wanted < 1:
            raise RuntimeError(f"histogramdd: expected at least one bin: got {wanted}")
        if range is not None:
            low, high = range[2 * k], range[2 * k + 1]
        elif points.shape[0]:
            low, high = points[:, k].min().item(), points[:, k].max().item()
        else:
            low, high = 0.0, 1.0
        if not low <= high:
            raise RuntimeError(f"histogramdd: the range must be finite and rising: got [{low}, {high}]")
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges.append(_ops["linspace"](low, high, wanted + 1, dtype=input.dtype))
    hist = _C._functions["_C._ops"]["_histogramdd"](input, edges, weight, density)
    return _Histogramdd(hist, tuple(edges))


_REDUCTIONS = ("none", "mean", "sum")


def _reduction(name: str, reduction) -> str:
    """The word for a number as PyTorch's low forms take it; words pass."""
    if isinstance(reduction, str):
        return reduction
    if reduction not in (0, 1, 2):
        raise ValueError(f"{name}: reduction is 0 (none), 1 (mean) or 2 (sum): got {reduction}")
    return _REDUCTIONS[reduction]


@_public
def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=0):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    word = _reduction("binary_cross_entropy_with_logits", reduction)
    return _nn["binary_cross_entropy_with_logits"](input, target, weight=weight, pos_weight=pos_weight, reduction=word)


@_public
def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=0):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    return _nn["cosine_embedding_loss"](input1, input2, target, margin, reduction=_reduction("cosine_embedding_loss", reduction))


@_public
def hinge_embedding_loss(input, target, margin=1.0, reduction=0):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    return _nn["hinge_embedding_loss"](input, target, margin, reduction=_reduction("hinge_embedding_loss", reduction))


@_public
def kl_div(input, target, reduction=0, *, log_target=False):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    return _nn["kl_div"](input, target, reduction=_reduction("kl_div", reduction), log_target=log_target)


@_public
def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=0):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    return _nn["margin_ranking_loss"](input1, input2, target, margin, reduction=_reduction("margin_ranking_loss", reduction))


@_public
def poisson_nll_loss(input, target, log_input, full, eps, reduction):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    word = _reduction("poisson_nll_loss", reduction)
    return _nn["poisson_nll_loss"](input, target, log_input=log_input, full=full, eps=eps, reduction=word)


@_public
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction=0):
    """nn.functional's, with reduction as a number: 0 none, 1 mean, 2 sum."""
    word = _reduction("triplet_margin_loss", reduction)
    return _nn["triplet_margin_loss"](anchor, positive, negative, margin, p, eps, swap, reduction=word)


def _dropout_forms(name: str, source: str) -> None:
    plain = _nn[source]

    def function(input, p, train):
        return plain(input, p, train)

    def inplace(input, p, train):
        return plain(input, p, train, True)

    for f, n in ((function, name), (inplace, f"{name}_")):
        f.__name__ = f.__qualname__ = n
        f.__doc__ = plain.__doc__
        globals()[n] = _public(f)


for _name in ("dropout", "alpha_dropout", "feature_alpha_dropout"):
    _dropout_forms(_name, _name)


@_public
def feature_dropout(input, p, train):
    """Sets whole channels (the second dimension) to zero with probability p and scales the others."""
    if not train or p == 0 or input.numel() == 0:
        return input
    if input.dim() < 2:
        raise RuntimeError(f"feature_dropout: expected at least 2 dimensions: got shape {list(input.shape)}")
    noise = input.new_empty([*input.shape[:2], *([1] * (input.dim() - 2))]).bernoulli_(1 - p)
    return input * (noise / (1 - p) if p < 1 else noise)


@_public
def feature_dropout_(input, p, train):
    """feature_dropout in place."""
    return input.copy_(feature_dropout(input, p, train))


@_public
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """The rows of weight that the indices name."""
    padding = None if padding_idx < 0 else padding_idx
    return _nn["embedding"](indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)


@_public
def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=False):
    """nn.functional's, with the arguments in another order."""
    return _nn["batch_norm"](input, running_mean, running_var, weight, bias, training, momentum, eps)


@_public
def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=False):
    """nn.functional's, with the arguments in another order."""
    return _nn["instance_norm"](input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@_public
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sample with numbers for the modes: bilinear, nearest, bicubic; zeros, border, reflection."""
    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return _nn["grid_sample"](input, grid, mode, padding, align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler
__all__ += ["grid_sampler_2d", "grid_sampler_3d"]


@_public
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """conv1d, conv2d or conv3d, or their transposes, by the weight's dimensions."""
    n = weight.dim() - 2
    if n not in (1, 2, 3):
        raise RuntimeError(f"convolution: expected a weight of 3 to 5 dimensions: got shape {list(weight.shape)}")
    table = {**_ops, **_nn}
    if transposed:
        return table[f"conv_transpose{n}d"](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return table[f"conv{n}d"](input, weight, bias, stride, padding, dilation, groups)


@_public
def conv_tbc(input, weight, bias, pad=0):
    """conv1d of (time, batch, channels) by a weight (width, channels in, channels out)."""
    if input.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        raise RuntimeError("conv_tbc: expected input (time, batch, channels), weight (width, in, out) and a bias vector: got shapes "
                           f"{list(input.shape)}, {list(weight.shape)} and {list(bias.shape)}")
    table = {**_ops, **_nn}
    return table["conv1d"](input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


@_public
def norm_except_dim(v, pow=2, dim=0):
    """The norm over all dimensions but one, which keeps its place; dim=-1: over all."""
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, [d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True)


@_public
def to_dlpack(input):
    """The tensor as a DLPack capsule."""
    return input.__dlpack__()


class SymInt:
    """No value is one: sizes are ints. For `isinstance(n, (int, SymInt))`."""


class SymFloat:
    """No value is one: numbers are floats."""


class SymBool:
    """No value is one: truth values are bools."""


__all__ += ["SymBool", "SymFloat", "SymInt"]

# What distributions are drawn with; scripts with distributions of their own use them, too.
_standard_gamma, _standard_gamma_grad, _sample_dirichlet, _dirichlet_grad = (
    _C._functions["_C._ops"][_name] for _name in ("_standard_gamma", "_standard_gamma_grad", "_sample_dirichlet", "_dirichlet_grad"))
__all__ += ["_dirichlet_grad", "_sample_dirichlet", "_standard_gamma", "_standard_gamma_grad"]
