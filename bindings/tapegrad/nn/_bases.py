"""Base classes and helpers of the generated layers: what several rows of nn/modules.toml share."""

import math

from .. import Tensor, empty, int64, no_grad, ones, tensor, zeros
from .._warn import warn
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = [
    "RNNCellBase", "_AdaptiveAvgPoolNd", "_AdaptiveMaxPoolNd", "_AvgPoolNd", "_BatchNorm", "_ConvNd", "_ConvTransposeNd",
    "_DropoutNd", "_Embedding", "_EmbeddingBag", "_InstanceNorm", "_LPPoolNd",
    "_Loss", "_MaxPoolNd", "_MaxUnpoolNd", "_NormBase", "_Upsample", "_WeightedLoss", "_check_conv", "_check_number", "_set_fractional", "_old_limits",
    "_padding", "_reduction", "_shape", "_tuple", "any_nonzero", "any_not_one", "reset_running_stats", "scalar_int64", "zero_row_",
]


def _tuple(value, n: int) -> tuple:
    """n copies of a number, or a sequence as it is (each number as it was given)."""
    if isinstance(value, (tuple, list)) or hasattr(value, "__iter__"):
        return tuple(value)
    return (value,) * n


def _padding(value, n: int):
    return value if isinstance(value, str) else _tuple(value, n)


def _shape(value) -> tuple:
    return (value,) if isinstance(value, int) else tuple(value)


def _reduction(size_average, reduce, reduction: str) -> str:
    """The `reduction` that the two old arguments of PyTorch's losses stand for."""
    if size_average is None and reduce is None:
        return reduction
    if isinstance(size_average, Tensor) or isinstance(reduce, Tensor):
        raise RuntimeError("loss: the constructor takes options: got a tensor\nmake it first, then call it: loss = nn.MSELoss(); loss(input, target)")
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    result = "none" if not reduce else "mean" if size_average else "sum"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{result}' instead.")
    return result


def _old_limits(layer, min_value, max_value) -> None:
    """Hardtanh's limits by the names that they once had."""
    for name, old, value in (("min_val", "min_value", min_value), ("max_val", "max_value", max_value)):
        if value is not None:
            warn(f"keyword argument `{old}` is deprecated and renamed to `{name}`", FutureWarning)
            setattr(layer, name, value)
    if not layer.max_val > layer.min_val:
        raise ValueError(f"max_val must be greater than min_val: got {layer.min_val} and {layer.max_val}")


def any_nonzero(values) -> bool:
    return values != (0,) * len(values)


def any_not_one(values) -> bool:
    return values != (1,) * len(values)


def zero_row_(weight, row: int) -> None:
    with no_grad():
        weight[row].fill_(0)


def scalar_int64(value: int, device=None):
    return tensor(value, dtype=int64, device=device)


def reset_running_stats(running_mean, running_var, num_batches_tracked) -> None:
    if running_mean is not None:
        running_mean.zero_()
        running_var.fill_(1)
        num_batches_tracked.zero_()


_CONV = {1: "conv1d", 2: "conv2d", 3: "conv3d"}


def _check_conv(padding, stride, padding_mode: str) -> None:
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
        raise ValueError("padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got "
                         f"padding_mode='{padding_mode}'")


def _check_number(name: str, value) -> None:
    if not isinstance(value, (float, int)):
        raise TypeError(f"{name} must be a float or int, got: {type(value)}")


def _set_fractional(layer, output_ratio, random_samples, n: int) -> None:
    """What FractionalMaxPool's row does not say of its attributes."""
    layer.output_ratio = None if output_ratio is None else _tuple(output_ratio, n)
    if output_ratio is not None and not all(0 < ratio < 1 for ratio in layer.output_ratio):
        raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
    layer.register_buffer("_random_samples", random_samples)


class _ConvNd(Module):
    """Base of the convolutions."""

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """Padding as `pad` wants it: (before, after) from the last dimension backwards."""
        n = len(self.kernel_size)
        if self.padding == "valid":
            return [0, 0] * n
        if self.padding == "same":
            result = []
            for k, d in zip(reversed(self.kernel_size), reversed(self.dilation), strict=True):
                total = d * (k - 1)
                result += [total // 2, total - total // 2]
            return result
        return [p for p in reversed(self.padding) for _ in range(2)]

    def _conv_forward(self, input, weight, bias):
        """The convolution with other weights than the layer's own, and with every padding mode."""
        function = getattr(F, _CONV[len(self.kernel_size)])
        if self.padding_mode == "zeros" and not isinstance(self.padding, str):
            return function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        around = self._reversed_padding_repeated_twice
        if self.padding_mode == "zeros":
            if all(a == b for a, b in zip(around[::2], around[1::2], strict=True)):  # the kernel itself can pad so
                return function(input, weight, bias, self.stride, tuple(around[::-2]), self.dilation, self.groups)
            padded = F.pad(input, around)
        else:
            padded = F.pad(input, around, self.padding_mode)
        return function(padded, weight, bias, self.stride, (0,) * len(self.kernel_size), self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    """Base of the transposed convolutions."""

    def _output_padding(self, input, output_size, stride, padding, kernel_size, n: int, dilation=None):
        """The output_padding that gives the wanted spatial size."""
        wanted = list(output_size)
        if len(wanted) == n + 2 or (len(wanted) == n + 1 and input.dim() == n + 1):
            wanted = wanted[-n:]
        if len(wanted) != n:
            raise ValueError(f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {n + 2} elements "
                             f"(got {len(wanted)})")
        dilation = dilation or (1,) * n
        first = input.dim() - n
        least = [(input.size(first + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel_size[d] - 1) + 1
                 for d in range(n)]
        most = [m + stride[d] - 1 for d, m in enumerate(least)]
        if any(not low <= w <= high for w, low, high in zip(wanted, least, most, strict=True)):
            raise ValueError(f"requested an output size of {wanted}, but valid sizes range from {least} to {most} "
                             f"(for an input of {tuple(input.shape)[2:]})")
        return [w - low for w, low in zip(wanted, least, strict=True)]


class _NormBase(Module):
    """Base of batch and instance normalisation. Our own layers are made by their rows, which call it without arguments; classes
    of other libraries call it as they call PyTorch's."""

    _version = 2
    _learns = True  # the default of affine and track_running_stats

    def __init__(self, num_features: int | None = None, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool | None = None,
                 track_running_stats: bool | None = None, device=None, dtype=None, *, bias: bool = True) -> None:
        super().__init__()
        if num_features is None:
            return
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine = self._learns if affine is None else affine
        self.track_running_stats = self._learns if track_running_stats is None else track_running_stats
        options = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", self.affine), ("bias", self.affine and bias)):
            self.register_parameter(name, Parameter(empty(num_features, **options)) if wanted else None)
        for name, make in (("running_mean", zeros), ("running_var", ones)):
            self.register_buffer(name, make(num_features, **options) if self.track_running_stats else None)
        self.register_buffer("num_batches_tracked", scalar_int64(0, device=device) if self.track_running_stats else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        for parameter, fill in ((self.weight, init.ones_), (self.bias, init.zeros_)):
            if parameter is not None:
                fill(parameter)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        digits = [c for c in cls.__name__ if c in "123"]
        if cls.__name__.startswith(("BatchNorm", "InstanceNorm")) and digits:
            cls._dimensions = int(digits[0])

    def reset_running_stats(self) -> None:
        reset_running_stats(self.running_mean, self.running_var, self.num_batches_tracked)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:  # older files have no count
            key = prefix + "num_batches_tracked"
            if key not in state_dict:
                state_dict[key] = self.num_batches_tracked if self.num_batches_tracked is not None else scalar_int64(0)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


class _BatchNorm(_NormBase):
    """Base of BatchNorm1d, 2d and 3d."""

    def _check_input_dim(self, input) -> None:
        d = self._dimensions
        if input.dim() != d + 2 and not (d == 1 and input.dim() == 2):
            wanted = "2D or 3D" if d == 1 else f"{d + 2}D"
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def _batch_norm(self, input):
        self._check_input_dim(input)
        training, momentum = self.training, self.momentum
        if not training:
            mean = self.running_mean
            return F.batch_norm(input, mean, self.running_var, self.weight, self.bias, mean is None, momentum or 0.0, self.eps)
        if not self.track_running_stats:
            return F.batch_norm(input, None, None, self.weight, self.bias, True, momentum or 0.0, self.eps)
        count = self.num_batches_tracked
        if count is not None:
            count.add_(1)
            if momentum is None:
                momentum = 1.0 / float(count)
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, True,
                            momentum or 0.0, self.eps)


class _InstanceNorm(_NormBase):
    """Base of InstanceNorm1d, 2d and 3d."""

    _learns = False

    def _get_no_batch_dim(self) -> int:
        """How many dimensions an input without a batch has."""
        return self._dimensions + 1

    def _check_input_dim(self, input) -> None:
        d = self._dimensions
        if input.dim() not in (d + 1, d + 2):
            raise ValueError(f"expected {d + 1}D or {d + 2}D input (got {input.dim()}D input)")

    def _instance_norm(self, input):
        self._check_input_dim(input)
        d = self._dimensions
        channels = input.dim() - d - 1
        if input.size(channels) != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={channels} to match num_features ({self.num_features}), "
                                 f"but got: {input.size(channels)}.")
            warn(f"input's size at dim={channels} does not match num_features. You can silence this warning by not "
                 "passing in num_features, which is not used because affine=False")
        if channels == 0:
            return self._normalise(input.unsqueeze(0)).squeeze(0)
        return self._normalise(input)

    def _normalise(self, input):
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                               self.training or not self.track_running_stats,
                               self.momentum if self.momentum is not None else 0.0, self.eps)


class _DropoutNd(Module):
    """Base of the dropout layers."""


class _MaxPoolNd(Module):
    """Base of the max pooling layers."""


class _MaxUnpoolNd(Module):
    """Base of the layers that undo max pooling."""


class _AvgPoolNd(Module):
    """Base of the average pooling layers."""


class _AdaptiveAvgPoolNd(Module):
    """Base of the adaptive average pooling layers."""


class _AdaptiveMaxPoolNd(Module):
    """Base of the adaptive max pooling layers."""


class _LPPoolNd(Module):
    """Base of the p-norm pooling layers."""


class _Loss(Module):
    """Base of the losses."""

    reduction: str

    def __init__(self, size_average=None, reduce=None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = _reduction(size_average, reduce, reduction)


class _WeightedLoss(_Loss):
    """Base of the losses with a weight per class."""

    def __init__(self, weight=None, size_average=None, reduce=None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class _VectorTable(Module):
    """Base of Embedding and EmbeddingBag, which may take over a given table of vectors."""

    def _set_table(self, padding_idx: int | None, shown: str, weight, device, dtype, trained: bool = True) -> None:
        """Sets padding_idx, counted from the front, and weight; messages call padding_idx `shown`."""
        n, width = self.num_embeddings, self.embedding_dim
        if padding_idx is not None and not -n <= padding_idx < n:
            raise AssertionError(f"{shown} must be within num_embeddings")
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % n
        if weight is not None and list(weight.shape) != [n, width]:
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(empty((n, width), device=device, dtype=dtype) if weight is None else weight, requires_grad=trained)
        if weight is None:
            self.reset_parameters()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            zero_row_(self.weight, self.padding_idx)

    @classmethod
    def _over(cls, embeddings, **options):
        """A layer over the rows of a matrix."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        return cls(num_embeddings=embeddings.size(0), embedding_dim=embeddings.size(1), _weight=embeddings, **options)


class _Embedding(_VectorTable):
    """Constructor of Embedding."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight=None,
                 _freeze: bool = False, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.sparse = num_embeddings, embedding_dim, sparse
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self._set_table(padding_idx, "Padding_idx", _weight, device, dtype, not _freeze)

    @classmethod
    def from_pretrained(cls, embeddings, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False):
        """A layer over given vectors (rows of a matrix); they are not trained unless freeze is False."""
        return cls._over(embeddings, _freeze=freeze, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
                         scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


class _EmbeddingBag(_VectorTable):
    """Constructor of EmbeddingBag."""

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight=None,
                 include_last_offset: bool = False, padding_idx: int | None = None, device=None, dtype=None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.sparse = num_embeddings, embedding_dim, sparse
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.include_last_offset = mode, include_last_offset
        self._set_table(padding_idx, "padding_idx", _weight, device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                        include_last_offset: bool = False, padding_idx: int | None = None):
        """A layer over given vectors (rows of a matrix); they are not trained unless freeze is False."""
        layer = cls._over(embeddings, max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, mode=mode,
                          sparse=sparse, include_last_offset=include_last_offset, padding_idx=padding_idx)
        layer.weight.requires_grad = not freeze
        return layer


class _Upsample(Module):
    """Constructor of Upsample."""

    def __init__(self, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None,
                 recompute_scale_factor: bool | None = None) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor


class RNNCellBase(Module):
    """Base of the recurrent cells: inputs without a batch dimension, absent states.

    A user-defined class passes its sizes and how many rows of weights it has per unit (num_chunks: 4 for an LSTM); the cells
    here make their parameters themselves and give nothing.
    """

    def __init__(self, input_size: int | None = None, hidden_size: int | None = None, bias: bool = True, num_chunks: int = 1,
                 device=None, dtype=None) -> None:
        super().__init__()
        if input_size is None:
            return
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        for name, shape in (("weight_ih", (rows, input_size)), ("weight_hh", (rows, hidden_size)), ("bias_ih", (rows,)),
                            ("bias_hh", (rows,))):
            made = Parameter(empty(shape, device=device, dtype=dtype)) if bias or len(shape) == 2 else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def extra_repr(self) -> str:
        kind = getattr(self, "nonlinearity", "tanh")
        return (f"{self.input_size}, {self.hidden_size}" + ("" if self.bias is True else f", bias={self.bias}")
                + ("" if kind == "tanh" else f", nonlinearity={kind}"))

    def _check(self, input, *states) -> None:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for state in states:
            if state.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected hidden to be 1D or 2D, got {state.dim()}D instead")

    def _with_states(self, cell, input, states, count: int) -> tuple:
        """cell(input, states, weights), with a batch and with zeros as states where these are absent."""
        self._check(input, *(states or ()))
        batched = input.dim() == 2
        if not batched:
            input, states = input.unsqueeze(0), states and tuple(s.unsqueeze(0) for s in states)
        states = states or (input.new_zeros((input.size(0), self.hidden_size)),) * count
        results = cell(input, states, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return results if batched else tuple(r.squeeze(0) for r in results)

    def _single(self, cell, input, hx):
        return self._with_states(lambda x, states, *weights: (cell(x, *states, *weights),), input, None if hx is None else (hx,), 1)[0]

    def _lstm(self, input, hx):
        return self._with_states(F.lstm_cell, input, hx, 2)

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)
