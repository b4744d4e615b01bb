"""Reductions, scans, sorting, matrix products and losses."""

from __future__ import annotations

from .. import bool as bool_
from .. import int64
from ._builder import Builder, Ref, handler
from ._errors import Refused
from ._sizes import Size, fixed


def _axes(g: Builder, x: Ref, dims):
    """The dimensions as a tensor; None: all of them."""
    dims = [dims] if isinstance(dims, int) else dims
    return None if dims is None or not len(dims) or not x.ndim else g.const([x.axis(d) for d in dims])


def reduced(g: Builder, op_type: str, x: Ref, dims, keepdim=False) -> Ref:
    axes = _axes(g, x, dims)
    around = range(x.ndim) if axes is None else {x.axis(d) for d in ([dims] if isinstance(dims, int) else dims)}
    shape = [1 if d in around else n for d, n in enumerate(x.shape) if keepdim or d not in around]
    return g.op(op_type, x, axes, keepdims=int(keepdim), shape=shape)


@handler("sum", "mean", "prod", "amax", "amin", "_max_all", "_min_all")
def _reduction(g: Builder, x: Ref, dims=None, keepdim=False, dtype=None):
    op_type = {"sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "amax": "ReduceMax", "_max_all": "ReduceMax"}.get(g.function, "ReduceMin")
    return reduced(g, op_type, g.cast(x, g.out[0].dtype), dims, keepdim)


@handler("any", "all", "count_nonzero")
def _truths(g: Builder, x: Ref, dims=None, keepdim=False):
    ones = g.cast(g.cast(x, bool_), int64)
    made = reduced(g, {"any": "ReduceMax", "all": "ReduceMin", "count_nonzero": "ReduceSum"}[g.function], ones, dims, keepdim)
    return g.cast(made, g.out[0].dtype)


@handler("logsumexp")
def _logsumexp(g: Builder, x: Ref, dims, keepdim=False):
    most = reduced(g, "ReduceMax", x, dims, True)
    made = g.Log(reduced(g, "ReduceSum", g.Exp(x - most), dims, True)) + most
    axes = _axes(g, x, dims)
    return made if keepdim or axes is None and not x.ndim else g.Squeeze(made, axes)


@handler("vector_norm", "_norm_order", "_norm_name", "_linalg_norm_order")
def _norm(g: Builder, x: Ref, order, dims=None, keepdim=False, dtype=None):
    if g.function == "_linalg_norm_order" and order is not None and (x.ndim if dims is None else len(dims)) != 1:
        raise Refused("the norm of a matrix")
    order = 2 if order in ("fro", None) else order
    if order not in (1, 2, float("inf")):
        raise Refused(f"the norm of order {order}")
    x = g.cast(x, g.out[0].dtype)
    return reduced(g, "ReduceMax", g.Abs(x), dims, keepdim) if order == float("inf") else reduced(g, "ReduceL1" if order == 1 else "ReduceL2", x, dims, keepdim)


@handler("_var_correction", "_std_correction", "_var_mean_correction", "_std_mean_correction", "_var_unbiased", "_std_unbiased", "_var_dim", "_std_dim", "_var", "_std")
def _variance(g: Builder, x: Ref, *args):
    name = g.function
    if name.endswith("_unbiased"):
        dims, correction, keepdim = None, int(args[0]), False
    elif name.endswith("_dim"):
        dims, correction, keepdim = args[0], int(args[1]), args[2]
    elif name.endswith("_correction"):
        dims, correction, keepdim = args[0], 1 if args[1] is None else args[1], args[2]
    else:
        dims, keepdim, correction = args
    around = [x.axis(d) for d in dims] if dims else list(range(x.ndim))
    count = 1
    for d in around:
        count = count * x.shape[d]
    centre = reduced(g, "ReduceMean", x, around, True)
    square = (x - centre) * (x - centre)
    total = reduced(g, "ReduceSum", square, around, keepdim)
    by = count - correction
    made = total / (g.Max(g.number(by, x.dtype), g.number(0, x.dtype)) if isinstance(by, Size) else float(max(by, 0)))
    made = g.Sqrt(made) if "std" in name else made
    return [made, centre if keepdim else g.Squeeze(centre, g.const(around))] if "_mean" in name else made


@handler("argmax", "argmin")
def _arg(g: Builder, x: Ref, dim=None, keepdim=False):
    op_type = "ArgMax" if g.function == "argmax" else "ArgMin"
    if dim is None:
        found = g.op(op_type, g.Reshape(x, g.const([-1])), axis=0, keepdims=0, kind=int64)
        return g.reshape(found, g.out[0].shape) if keepdim else found
    return g.op(op_type, x, axis=x.axis(dim), keepdims=int(keepdim), kind=int64)


@handler("_max_dim", "_min_dim")
def _extreme(g: Builder, x: Ref, dim, keepdim=False):
    kind = "Max" if g.function == "_max_dim" else "Min"
    return [reduced(g, f"Reduce{kind}", x, dim, keepdim), g.op(f"Arg{kind}", x, axis=x.axis(dim), keepdims=int(keepdim), kind=int64)]


@handler("cumsum")
def _cumsum(g: Builder, x: Ref, dim, dtype=None):
    return g.CumSum(g.cast(x, g.out[0].dtype), g.const(x.axis(dim)))


@handler("sort", "argsort", "topk")
def _sorted(g: Builder, x: Ref, *args):
    if g.function == "topk":
        count, dim, largest, in_order = args
    else:
        dim, largest, in_order = args[0], args[1], True
        count = g.dim(x, dim)
    dim = x.axis(dim)
    k = count if isinstance(count, Ref) else g.ints([count])
    values, indices = g.TopK(x, k, axis=dim, largest=int(largest), sorted=int(in_order), outputs=2)
    indices.dtype = int64
    return indices if g.function == "argsort" else [values, indices]


@handler("softmax", "log_softmax", "_softmax", "_log_softmax", "_functional_softmax", "_functional_log_softmax", "_functional_softmin")
def _softmax(g: Builder, x: Ref, dim, *_):
    if not x.ndim:
        return g.reshape(_softmax(g, g.reshape(x, [1]), 0), [])
    if dim is None:
        dim = 0 if x.ndim in (1, 3) else 1
    axis, x = x.axis(dim), g.cast(x, g.out[0].dtype)
    return g.op("LogSoftmax" if "log" in g.function else "Softmax", -x if "softmin" in g.function else x, axis=axis)


# --- products ---


def transposed(g: Builder, x: Ref) -> Ref:
    return g.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


@handler("linear")
def _linear(g: Builder, x: Ref, weight: Ref, bias=None):
    if x.ndim == 2 and weight.ndim == 2:
        return g.Gemm(x, weight, bias, transB=1)
    y = g.MatMul(x, transposed(g, weight) if weight.ndim > 1 else weight)
    return y if bias is None else y + bias


@handler("matmul", "mm", "bmm", "mv", "dot")
def _matmul(g: Builder, x: Ref, y: Ref):
    return g.MatMul(x, y)


@handler("addmm", "baddbmm", "addmv")
def _addmm(g: Builder, x: Ref, a: Ref, b: Ref, beta=1, alpha=1):
    y = g.MatMul(a, b)
    y = y if alpha == 1 else y * alpha
    return y if beta == 0 else y + (x if beta == 1 else x * beta)


@handler("outer")
def _outer(g: Builder, x: Ref, y: Ref):
    return g.unsqueeze(x, 1) * y


@handler("einsum")
def _einsum(g: Builder, equation, operands):
    return g.Einsum(*operands, equation=equation)


# --- losses ---


def _loss(g: Builder, each: Ref, reduction: str, *old):
    """`old`: size_average and reduce, older names of the reduction."""
    if old != (None,) * len(old):
        raise Refused("size_average and reduce: use reduction")
    return each if reduction == "none" else g.op({"mean": "ReduceMean", "sum": "ReduceSum"}[reduction], each, keepdims=0)


@handler("mse_loss", "l1_loss")
def _distance(g: Builder, x: Ref, target: Ref, a=None, b=None, reduction="mean", weight=None):
    x, target = g.cast_all(g.out[0].dtype, x, target)
    each = g.Abs(x - target) if g.function == "l1_loss" else (x - target) * (x - target)
    return _loss(g, each if weight is None else each * weight, reduction, a, b)


@handler("smooth_l1_loss", "huber_loss")
def _smooth(g: Builder, x: Ref, target: Ref, *args):
    if g.function == "smooth_l1_loss":
        *old, reduction, beta = args
    else:
        reduction, beta, *old = args
    away = g.Abs(x - target)
    if beta == 0:
        return _loss(g, away, reduction, *old)
    near = g.Less(away, g.number(beta, x.dtype), kind=bool_)
    each = g.where(near, away * away * 0.5, (away - 0.5 * beta) * beta, x.dtype)
    return _loss(g, each / beta if g.function == "smooth_l1_loss" else each, reduction, *old)


@handler("binary_cross_entropy_with_logits")
def _binary(g: Builder, x: Ref, target: Ref, weight=None, a=None, b=None, reduction="mean", positive=None):
    away = g.Log(1 + g.Exp(-g.Abs(x)))
    if positive is None:
        each = g.Relu(x) - x * target + away
    else:
        each = (1 - target) * x + (1 + (positive - 1) * target) * (away + g.Relu(-x))
    return _loss(g, each if weight is None else each * weight, reduction, a, b)


@handler("kl_div")
def _kl_div(g: Builder, x: Ref, target: Ref, a=None, b=None, reduction="mean", log_target=False):
    if log_target:
        each = g.Exp(target) * (target - x)
    else:
        zero = g.Equal(target, g.number(0, x.dtype), kind=bool_)
        each = g.where(zero, 0.0, target * (g.Log(target) - x), x.dtype)
    if reduction == "batchmean":
        fixed(x.shape[:1])
        return _loss(g, each, "sum", a, b) / x.shape[0]
    return _loss(g, each, reduction, a, b)


@handler("nll_loss", "cross_entropy")
def _classes(g: Builder, x: Ref, target: Ref, weight=None, a=None, ignore=-100, b=None, reduction="mean", smoothing=0.0):
    if target.dtype is not int64 or smoothing or x.ndim < 2 or a is not None or b is not None:
        raise Refused("probabilities as targets, label smoothing, size_average, or one sample without a batch")
    op_type = "SoftmaxCrossEntropyLoss" if g.function == "cross_entropy" else "NegativeLogLikelihoodLoss"
    return g.op(op_type, x, target, weight, ignore_index=int(ignore), reduction=reduction)
