"""Convolutions, pools, normalisation, images, attention and recurrent layers."""

from __future__ import annotations

import math

import numpy as np

from .. import bool as bool_
from .. import int64
from ._builder import Builder, Ref, handler
from ._errors import Refused
from ._sizes import Size, fixed, unknown


def _batched(g: Builder, x: Ref, dims: int, make) -> Ref:
    """make(x) of a batch; a sample without one is a batch for a moment."""
    if x.ndim == dims + 2:
        return make(x)
    made = make(g.unsqueeze(x, 0))
    first = [0]
    return [g.Squeeze(t, g.const(first)) for t in made] if isinstance(made, list) else g.Squeeze(made, g.const(first))


@handler("_conv1d", "_conv2d", "_conv3d", "_conv1d_named", "_conv2d_named", "_conv3d_named")
def _conv(g: Builder, x: Ref, weight: Ref, bias, stride, padding, dilation, groups):
    kernel = weight.shape[2:]
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation, strict=True)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        pads = [*padding, *padding]
    return _batched(g, x, len(kernel), lambda x: g.Conv(x, weight, bias, kernel_shape=kernel, strides=stride, pads=pads, dilations=dilation, group=groups))


@handler("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(g: Builder, x: Ref, weight: Ref, bias, stride, padding, output_padding, groups, dilation):
    kernel = weight.shape[2:]
    return _batched(g, x, len(kernel), lambda x: g.ConvTranspose(x, weight, bias, kernel_shape=kernel, strides=stride, pads=[*padding, *padding],
                                                                 output_padding=output_padding, dilations=dilation, group=groups))


# --- pools ---


def _ends(x: Ref, kernel, stride, padding, dilation, ceil: bool) -> list[int]:
    """The padding behind each dimension; with `ceil` as much as the last window reaches over the end."""
    if not ceil:
        return list(padding)
    sizes = x.shape[-len(kernel):]
    fixed(sizes)
    ends = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        count = -(-(n + 2 * p - reach) // s) + 1
        count -= (count - 1) * s >= n + p  # a window that begins behind the input is none
        ends.append(max((count - 1) * s + reach - n - p, p) if (count - 1) * s + reach - n - p > p else p)
    return ends


@handler("max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(g: Builder, x: Ref, kernel, stride, padding, dilation, ceil=False):
    stride = stride or kernel
    indexed = g.function.endswith("_indices")

    def pool(x):
        made = g.MaxPool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *_ends(x, kernel, stride, padding, dilation, ceil)], dilations=dilation,
                         outputs=2 if indexed else 1)
        if not indexed:
            return made
        count = 1
        for n in x.shape[2:]:
            count = count * n
        made[1].dtype = int64
        return [made[0], g.Mod(made[1], g.number(count, int64))]

    return _batched(g, x, len(kernel), pool)


@handler("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(g: Builder, x: Ref, kernel, stride, padding, ceil=False, count_pad=True, divisor=None):
    stride = stride or kernel
    ends = _ends(x, kernel, stride, padding, [1] * len(kernel), ceil)
    if ends != list(padding) and count_pad and any(padding):
        raise Refused("ceil_mode with padding that counts")
    if divisor is not None and (ends != list(padding) or any(padding) and not count_pad):
        raise Refused("divisor_override with padding that does not count")
    counted = int(count_pad and ends == list(padding))
    made = _batched(g, x, len(kernel), lambda x: g.AveragePool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *ends], count_include_pad=counted))
    return made if divisor is None else made * (math.prod(kernel) / divisor)


@handler("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive(g: Builder, x: Ref, size):
    what, dims = "Average" if "avg" in g.function else "Max", len(size)
    spatial = x.shape[-dims:]
    size = [n if s is None or s < 0 else s for n, s in zip(spatial, size, strict=True)]
    if all(not isinstance(s, Size) and s == 1 for s in size):
        return _batched(g, x, dims, lambda x: g.op(f"Global{what}Pool", x))
    fixed(spatial, size)
    if any(n % s for n, s in zip(spatial, size, strict=True)):
        if what == "Max" or dims > 2:
            raise Refused(f"from {spatial} to {size}: windows of several sizes")
        x = g.MatMul(x, g.const(_window_means(spatial[-1], size[-1]), x.dtype))
        return x if dims == 1 else g.MatMul(g.const(_window_means(spatial[0], size[0]).T, x.dtype), x)
    kernel = [n // s for n, s in zip(spatial, size, strict=True)]
    return _batched(g, x, dims, lambda x: g.op(f"{what}Pool", x, kernel_shape=kernel, strides=kernel))


def _window_means(n: int, count: int):
    """A matrix whose product with a row has the means of its windows: windows of several sizes are no pool of ONNX."""
    made = np.zeros((n, count))
    for i in range(count):
        start, end = i * n // count, -(-(i + 1) * n // count)
        made[start:end, i] = 1 / (end - start)
    return made


# --- normalisation ---


def _scaled(g: Builder, y: Ref, weight, bias, shape) -> Ref:
    y = y if weight is None else y * g.reshape(weight, shape)
    return y if bias is None else y + g.reshape(bias, shape)


@handler("batch_norm", "_batch_norm_eval")
def _batch_norm(g: Builder, x: Ref, a, b, c=None, d=None, *rest):
    mean, var, weight, bias = (c, d, a, b) if g.function == "_batch_norm_eval" else (a, b, c, d)
    training, eps = (False, rest[0]) if g.function == "_batch_norm_eval" else (rest[0], rest[2])
    if training or mean is None:
        raise Refused("it takes statistics of the batch: export the model in evaluation mode")
    channels = x.shape[1]
    weight = weight or g.const([1.0] * channels, x.dtype)
    return g.BatchNormalization(x, weight, bias or g.const([0.0] * channels, x.dtype), mean, var, epsilon=float(eps))


@handler("instance_norm")
def _instance_norm(g: Builder, x: Ref, mean=None, var=None, weight=None, bias=None, use_input=True, momentum=0.1, eps=1e-5):
    if not use_input:
        raise Refused("statistics of training")
    channels = x.shape[1]
    return g.InstanceNormalization(x, weight or g.const([1.0] * channels, x.dtype), bias or g.const([0.0] * channels, x.dtype), epsilon=float(eps))


@handler("layer_norm")
def _layer_norm(g: Builder, x: Ref, shape, weight=None, bias=None, eps=1e-5):
    weight = weight or g.expand(g.number(1.0, x.dtype), shape)
    return g.LayerNormalization(x, weight, bias, axis=x.ndim - len(shape), epsilon=float(eps))


@handler("rms_norm")
def _rms_norm(g: Builder, x: Ref, shape, weight=None, eps=None):
    from .. import finfo

    square = g.ReduceMean(x * x, g.const(list(range(x.ndim - len(shape), x.ndim))), keepdims=1)
    y = x / g.Sqrt(square + (finfo(x.dtype).eps if eps is None else eps))
    return y if weight is None else y * weight


@handler("group_norm")
def _group_norm(g: Builder, x: Ref, groups, weight=None, bias=None, eps=1e-5):
    channels = x.shape[1]
    flat = g.Reshape(x, g.const([0, groups, -1]))
    y = g.InstanceNormalization(flat, g.const([1.0] * groups, x.dtype), g.const([0.0] * groups, x.dtype), epsilon=float(eps))
    back = g.op("Shape", x, kind=int64) if any(unknown(n) for n in x.shape) else g.ints(x.shape)
    return _scaled(g, g.Reshape(y, back), weight, bias, [channels] + [1] * (x.ndim - 2))


@handler("local_response_norm")
def _local_response_norm(g: Builder, x: Ref, size, alpha=1e-4, beta=0.75, k=1.0):
    if size % 2 == 0:
        raise Refused("an even number of channels")
    return g.LRN(x, alpha=float(alpha), beta=float(beta), bias=float(k), size=size)


@handler("normalize")
def _normalize(g: Builder, x: Ref, p=2.0, dim=1, eps=1e-12):
    if p not in (1, 2):
        raise Refused(f"the norm of order {p}")
    axes = [x.axis(d) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    size = g.op("ReduceL1" if p == 1 else "ReduceL2", x, g.const(axes), keepdims=1)
    return x / g.Max(size, g.number(eps, x.dtype))


@handler("cosine_similarity")
def _cosine(g: Builder, x: Ref, y: Ref, dim=1, eps=1e-8):
    axes, least = g.const([x.axis(dim)]), g.number(eps, x.dtype)
    a, b = (t / g.Max(g.ReduceL2(t, axes, keepdims=1), least) for t in (x, y))
    return g.ReduceSum(a * b, axes, keepdims=0)


# --- images ---


@handler("pad", "constant_pad_nd", "_pad_mode", sizes=True)
def _pad(g: Builder, x: Ref, pads, mode="constant", value=None):
    if g.function == "constant_pad_nd":
        mode, value = "constant", mode
    fixed(pads)
    dims = [x.ndim - 1 - i for i in range(len(pads) // 2)]
    pairs = dict(zip(dims, zip(pads[::2], pads[1::2], strict=True), strict=True))
    cut = {d: p for d, p in pairs.items() if min(p) < 0}
    if cut:
        x = g.slice(x, [max(-a, 0) for a, _ in cut.values()], [min(b, 0) or 2 ** 63 - 1 for _, b in cut.values()], list(cut))
        pairs = {d: (max(a, 0), max(b, 0)) for d, (a, b) in pairs.items()}
    if mode == "circular":
        for d, (a, b) in pairs.items():
            parts = [g.slice(x, [-a], [2 ** 63 - 1], [d])] * bool(a) + [x] + [g.slice(x, [0], [b], [d])] * bool(b)
            x = g.Concat(*parts, axis=d)
        return x
    ndim = len(g.out[0].shape)
    both = [pairs.get(d, (0, 0)) for d in range(ndim)]
    if not any(a or b for a, b in both):
        return g.Identity(x)
    fill = g.number(value or 0, x.dtype) if mode == "constant" else None
    return g.Pad(x, g.const([a for a, _ in both] + [b for _, b in both]), fill, mode={"constant": "constant", "reflect": "reflect", "replicate": "edge"}[mode])


@handler("interpolate", "upsample", "upsample_nearest", "upsample_bilinear", sizes=True)
def _interpolate(g: Builder, x: Ref, size=None, factors=None, mode="nearest", align=None, recompute=None, antialias=False):
    if g.function != "interpolate" and g.function != "upsample":
        mode, align = ("nearest", None) if g.function == "upsample_nearest" else ("bilinear", True)
    if antialias or mode not in ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic"):
        raise Refused(f"mode='{mode}'" + ", antialias" * antialias)
    kind = {"nearest": "nearest", "nearest-exact": "nearest", "bicubic": "cubic"}.get(mode, "linear")
    where = "asymmetric" if mode == "nearest" else "align_corners" if align else "half_pixel"
    scales = sizes = None
    if size is None and not recompute:
        scales = g.const([1.0, 1.0, *_each(factors, x.ndim - 2)], _float32())
    else:
        front = [g.dim(x, 0), g.dim(x, 1)]
        spatial = g.ints(g.out[0].shape[2:] if size is None else _each(size, x.ndim - 2))
        sizes = g.Concat(*[n if isinstance(n, Ref) else g.ints([n]) for n in front], spatial, axis=0)
    return g.Resize(x, None, scales, sizes, mode=kind, coordinate_transformation_mode=where, cubic_coeff_a=-0.75 if kind == "cubic" else None,
                    nearest_mode="floor" if mode == "nearest" else "round_prefer_ceil" if kind == "nearest" else None)


def _each(values, count: int) -> list:
    """One value for each dimension."""
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    return values * count if len(values) == 1 else values


def _float32():
    from .. import float32

    return float32


@handler("grid_sample")
def _grid_sample(g: Builder, x: Ref, grid: Ref, mode="bilinear", padding="zeros", align=None):
    if x.ndim != 4:
        raise Refused("images of three dimensions")
    if g.version >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return g.GridSample(x, grid, mode=mode, padding_mode=padding, align_corners=int(bool(align)))


# --- attention ---


@handler("scaled_dot_product_attention")
def _attention(g: Builder, q: Ref, k: Ref, v: Ref, mask=None, dropout=0.0, causal=False, scale=None, grouped=False):
    if dropout:
        raise Refused("it drops weights at random: export the model in evaluation mode")
    if grouped and q.shape[-3] != k.shape[-3]:
        k, v = (_repeated_heads(g, t, q.shape[-3]) for t in (k, v))
    if scale is None:
        fixed(q.shape[-1])
        scale = 1 / math.sqrt(q.shape[-1])
    scores = g.MatMul(q * scale, g.transpose(k, [*range(k.ndim - 2), k.ndim - 1, k.ndim - 2]))
    least = g.number(float("-inf"), q.dtype)
    if causal:
        rows, columns = (n if isinstance(n, Ref) else g.ints([n]) for n in (g.dim(q, -2), g.dim(k, -2)))
        ones = g.Expand(g.number(1, int64), g.Concat(rows, columns, axis=0))
        scores = g.where(g.cast(g.Trilu(ones, upper=0), bool_), scores, least, q.dtype)
    if mask is not None:
        scores = g.where(mask, scores, least, q.dtype) if mask.dtype is bool_ else scores + g.cast(mask, q.dtype)
    weights = g.Softmax(scores, axis=-1)
    if mask is not None:  # of a row without any column, zeros
        empty = g.IsInf(g.ReduceMax(scores, g.const([-1]), keepdims=1), kind=bool_, detect_positive=0)
        weights = g.where(empty, 0.0, weights, q.dtype)
    return g.MatMul(weights, v)


def _repeated_heads(g: Builder, x: Ref, heads) -> Ref:
    fixed(heads, x.shape[-3])
    d = x.ndim - 2
    y = g.unsqueeze(x, d)
    return g.reshape(g.expand(y, [*y.shape[:d], heads // x.shape[-3], *y.shape[d + 1:]]), [*x.shape[:-3], heads, *x.shape[-2:]])


# --- recurrent layers ---

_GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}  # ONNX's order of PyTorch's gates


def _gates(g: Builder, w: Ref, op_type: str) -> Ref:
    order = _GATES[op_type]
    if len(order) == 1:
        return w
    parts = g.Split(w, axis=0, num_outputs=len(order), outputs=len(order))
    return g.Concat(*[parts[i] for i in order], axis=0)


@handler("_lstm_input", "_gru_input", "_rnn_tanh_input", "_rnn_relu_input")
def _recurrent(g: Builder, x: Ref, states, params, biases, layers, dropout, train, both, batch_first):
    op_type = "LSTM" if "lstm" in g.function else "GRU" if "gru" in g.function else "RNN"
    states = states if isinstance(states, list) else [states]
    directions, each = 2 if both else 1, 4 if biases else 2
    if len(params) != layers * directions * each:
        raise Refused("projections of the hidden state")
    if train and dropout and layers > 1:
        raise Refused("it drops numbers at random: export the model in evaluation mode")
    if x.ndim != 3:
        raise Refused("one sequence without a batch")
    x = g.transpose(x, [1, 0, 2]) if batch_first else x
    last: list[list[Ref]] = [[] for _ in states]
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            row = layer * directions + direction
            weights = params[row * each:(row + 1) * each]
            w, r = (g.unsqueeze(_gates(g, p, op_type), 0) for p in weights[:2])
            b = g.unsqueeze(g.Concat(*[_gates(g, p, op_type) for p in weights[2:]], axis=0), 0) if biases else None
            start = [g.slice(s, [row], [row + 1], [0]) for s in states]
            # A backward direction as a forward one over the reversed sequence: not all runtimes have the other.
            turned = g.slice(x, [-1], [-2 ** 63], [0], [-1]) if direction else x
            y, *ends = g.op(op_type, turned, w, r, b, None, *start, hidden_size=params[row * each + 1].shape[1], outputs=1 + len(states),
                            linear_before_reset=1 if op_type == "GRU" else None, activations=["Relu"] if "relu" in g.function else None)
            y = g.Squeeze(y, g.const([1]))
            outputs.append(g.slice(y, [-1], [-2 ** 63], [0], [-1]) if direction else y)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        x = outputs[0] if len(outputs) == 1 else g.Concat(*outputs, axis=2)
    return [g.Transpose(x, perm=[1, 0, 2]) if batch_first else x, *[t[0] if len(t) == 1 else g.Concat(*t, axis=0) for t in last]]


@handler("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(g: Builder, x: Ref, states, w, r, b=None, c=None):
    op_type = "LSTM" if "lstm" in g.function else "GRU" if "gru" in g.function else "RNN"
    if x.ndim != 2:
        raise Refused("one sample without a batch")
    states = states if isinstance(states, list) else [states]
    bias = None if b is None else g.unsqueeze(g.Concat(_gates(g, b, op_type), _gates(g, c, op_type), axis=0), 0)
    _, *ends = g.op(op_type, g.unsqueeze(x, 0), g.unsqueeze(_gates(g, w, op_type), 0), g.unsqueeze(_gates(g, r, op_type), 0), bias, None,
                    *[g.unsqueeze(s, 0) for s in states], hidden_size=r.shape[1], outputs=1 + len(states),
                    linear_before_reset=1 if op_type == "GRU" else None, activations=["Relu"] if "relu" in g.function else None)
    ends = [g.Squeeze(e, g.const([0])) for e in ends]
    return ends if len(ends) > 1 else ends[0]
