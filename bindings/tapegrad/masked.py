"""Reductions and normalisations that leave out elements where a mask is False.

The mask broadcasts to the input. An element left out counts as the operation's identity: 0 for a sum, 1 for a product,
the smallest number for a maximum. Where all are left out the result is that identity, and NaN for mean, median, var and std.
"""

from math import inf as _inf

from . import _C

_ops = _C._functions[""]
_where, _full = _ops["where"], _ops["full"]
_vector_norm = _C._functions["linalg"]["vector_norm"]
_INTEGERS = (_C.uint8, _C.int8, _C.int16, _C.int32, _C.int64, _C.bool)

__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
           "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var"]


def _wide_mask(name, input, mask):
    if not isinstance(mask, _C.Tensor):
        raise TypeError(f"masked.{name}: expected the mask to be a Tensor: got {type(mask).__name__}")
    if mask.dim() > input.dim():
        raise IndexError(f"masked.{name}: the mask has more dimensions than the input: got shapes {list(mask.shape)} and {list(input.shape)}")
    return mask.expand(input.shape).bool()


def _lowest(dtype, sign):
    """The identity of a maximum (sign -1) or a minimum (1)."""
    if dtype.is_floating_point:
        return sign * _inf
    if dtype is _C.bool:
        return sign > 0
    from ._root.type_info import iinfo

    return iinfo(dtype).max if sign > 0 else iinfo(dtype).min


def _filled(name, input, mask, identity):
    """The input with the identity where the mask is False."""
    if mask is None:
        return input
    return _where(_wide_mask(name, input, mask), input, _full((), identity, dtype=input.dtype, device=input.device))


def _dims(name, dim, ndim):
    """The dimensions from the front, all for None and ()."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = []
    for d in dim if isinstance(dim, (tuple, list)) else (dim,):
        if not -max(ndim, 1) <= d < max(ndim, 1):
            raise IndexError(f"masked.{name}: dimension {d} is out of range for {ndim} dimensions")
        d %= max(ndim, 1)
        if d in dims:
            raise RuntimeError(f"masked.{name}: dimension {d} appears more than once: got {dim}")
        dims.append(d)
    return tuple(sorted(dims)) if ndim else ()


def _sum_dtype(input, dtype):
    return dtype if dtype is not None else _C.int64 if input.dtype in _INTEGERS else input.dtype


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum over dim of the elements that the mask keeps."""
    dtype = _sum_dtype(input, dtype)
    return _filled("sum", input, mask, 0).sum(_dims("sum", dim, input.dim()), keepdim=keepdim, dtype=dtype)


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product over dim of the elements that the mask keeps."""
    result = _filled("prod", input, mask, 1).to(_sum_dtype(input, dtype))
    for d in reversed(_dims("prod", dim, input.dim())):
        result = result.prod(d, keepdim=keepdim)
    return result.clone() if result is input else result


def cumsum(input, dim, *, dtype=None, mask=None):
    """The running sum along dim; elements left out add nothing."""
    dtype = input.dtype if dtype is None else dtype
    return _filled("cumsum", input, mask, 0).cumsum(dim, dtype=dtype).to(dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    """The running product along dim; elements left out count as 1."""
    dtype = input.dtype if dtype is None else dtype
    return _filled("cumprod", input, mask, 1).cumprod(dim, dtype=dtype).to(dtype)


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The largest over dim of the elements that the mask keeps."""
    result = _filled("amax", input, mask, _lowest(input.dtype, -1)).amax(_dims("amax", dim, input.dim()), keepdim=keepdim)
    return result if dtype is None else result.to(dtype)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The smallest over dim of the elements that the mask keeps."""
    result = _filled("amin", input, mask, _lowest(input.dtype, 1)).amin(_dims("amin", dim, input.dim()), keepdim=keepdim)
    return result if dtype is None else result.to(dtype)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the largest of the elements that the mask keeps stands, in the input's dtype unless another is asked for."""
    result = _filled("argmax", input, mask, _lowest(input.dtype, -1)).argmax(dim, keepdim=keepdim)
    return result.to(input.dtype if dtype is None else dtype)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the smallest of the elements that the mask keeps stands, in the input's dtype unless another is asked for."""
    result = _filled("argmin", input, mask, _lowest(input.dtype, 1)).argmin(dim, keepdim=keepdim)
    return result.to(input.dtype if dtype is None else dtype)


def _count(name, input, dim, keepdim, mask):
    if mask is None:
        mask = _ops["ones"](input.shape, dtype=_C.bool, device=input.device)
    return _wide_mask(name, input, mask).sum(_dims(name, dim, input.dim()), keepdim=keepdim)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean over dim of the elements that the mask keeps; NaN where it keeps none."""
    dtype = input.dtype if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"masked.mean: expected a floating or complex dtype: got {dtype}")
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / _count("mean", input, dim, keepdim, mask)


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median along dim of the elements that the mask keeps; NaN where it keeps none."""
    floating = input.dtype.is_floating_point
    values = input if floating else input.float()
    result = _filled("median", values, mask, float("nan")).nanmedian(dim, keepdim)[0]
    if floating:
        return result
    if bool(result.isnan().any()):
        raise ValueError(f"masked.median: a row without elements has no median in integers: got dtype {input.dtype}")
    return result.to(input.dtype if dtype is None else dtype)


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log(sum(exp(x))) over dim of the elements that the mask keeps."""
    values = input if input.dtype.is_floating_point or input.dtype.is_complex else input.to(_ops["get_default_dtype"]())
    result = _filled("logsumexp", values, mask, -_inf).logsumexp(_dims("logsumexp", dim, input.dim()), keepdim=keepdim)
    return result.to(input.dtype if dtype is None else dtype)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(input) + exp(other)), where a masked element counts as log(0)."""
    result = _ops["logaddexp"](_filled("logaddexp", input, input_mask, -_inf), _filled("logaddexp", other, other_mask, -_inf))
    return result.to(input.dtype if dtype is None else dtype)


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The vector norm over dim of the elements that the mask keeps."""
    ord = 2.0 if ord is None else ord
    values = _filled("norm", input, mask, _inf if ord == -_inf else 0)
    return _vector_norm(values, ord, _dims("norm", dim, input.dim()), keepdim, dtype=input.dtype if dtype is None else dtype)


def _variance(name, input, dim, unbiased, correction, keepdim, dtype, mask):
    if unbiased is not None and correction is not None:
        raise AssertionError(f"masked.{name}: unbiased and correction exclude each other")
    if correction is None:
        correction = 0.0 if unbiased is False else 1.0
    dtype = input.dtype if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = _C.float32
    count = _count(name, input, dim, True, mask)
    count = count.to(_C.float64 if dtype in (_C.float64, _C.complex128) else _C.float32)
    average = sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    distance = input - average
    total = sum(distance * distance.conj(), dim, keepdim=keepdim, dtype=dtype, mask=mask)
    divisor = (count.reshape(total.shape) - correction).clamp(min=0)
    return (total / divisor).to(dtype)


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The variance over dim of the elements that the mask keeps; NaN where it keeps none."""
    return _variance("var", input, dim, unbiased, correction, keepdim, dtype, mask)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The standard deviation over dim of the elements that the mask keeps; NaN where it keeps none."""
    return _variance("std", input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


def softmax(input, dim, *, dtype=None, mask=None):
    """softmax along dim with zeros for the elements left out."""
    return _filled("softmax", input, mask, _lowest(input.dtype, -1)).softmax(dim, dtype=dtype)


def log_softmax(input, dim, *, dtype=None, mask=None):
    """log_softmax along dim with minus infinity for the elements left out."""
    return _filled("log_softmax", input, mask, _lowest(input.dtype, -1)).log_softmax(dim, dtype=dtype)


def softmin(input, dim, *, dtype=None, mask=None):
    """softmax of -x along dim with zeros for the elements left out."""
    return (-_filled("softmin", input, mask, _lowest(input.dtype, 1))).softmax(dim, dtype=dtype)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """The elements that the mask keeps (0 for the others) divided by their norm along dim, or by eps if that is larger."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled("normalize", input, mask, 0) / length.clamp(min=eps)


_KEEP_SHAPE = ("cumsum", "cumprod", "softmax", "log_softmax", "softmin", "normalize", "logaddexp")


def _input_mask(input, *args, mask=None, **kwargs):
    """The mask in the shape of the input; all True where there is none."""
    if mask is None:
        mask = _ops["ones"](input.shape, dtype=_C.bool, device=input.device)
    return _wide_mask("_input_mask", input, mask)


def _output_mask(op, input, *args, **kwargs):
    """Which elements of op's result come from an element that the mask keeps."""
    name = getattr(op, "__name__", str(op))
    kept = _input_mask(input, mask=kwargs.get("mask"))
    if name in _KEEP_SHAPE:
        return kept
    place = 1 if name == "norm" else 0  # norm has ord in front
    dim = args[place] if len(args) > place else kwargs.get("dim", -1 if name == "median" else None)
    return kept.any(_dims(name, dim, input.dim()), keepdim=bool(kwargs.get("keepdim", False))) if input.dim() else kept


def __getattr__(name: str):
    from ._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
