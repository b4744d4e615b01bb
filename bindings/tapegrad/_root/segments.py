"""segment_reduce (reductions of consecutive segments) and vander (Vandermonde matrices)."""

from .. import _C
from .overloads import overridable

__all__ = ["segment_reduce", "vander"]

_ops = _C._functions[""]
_EMPTY = {"sum": 0.0, "mean": float("nan"), "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _lengths_of(lengths, indices, offsets):
    if indices is not None:
        raise RuntimeError("segment_reduce: indices based reduction is not supported: give lengths or offsets")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce: expected one of lengths and offsets")
    given = offsets if lengths is None else lengths
    if given.dtype not in (_C.int32, _C.int64) or given.dim() == 0:
        raise RuntimeError(f"segment_reduce: expected lengths or offsets of dtype int32 or int64 with a dimension: got {given.dtype}, {tuple(given.shape)}")
    return given.diff() if lengths is None else lengths


@overridable
def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """The sum, mean, max, min or prod of consecutive parts of dimension `axis`, which is the last of lengths or offsets.

    An empty part is `initial`, or what the reduction of nothing is (mean: NaN). Lengths must add up to the size unless `unsafe`. Differentiable.
    """
    reduce = {"amax": "max", "amin": "min"}.get(reduce, reduce)  # names that PyTorch takes, too
    if reduce not in _EMPTY:
        raise RuntimeError(f"segment_reduce: expected sum, mean, max, min or prod: got {reduce!r}")
    lengths = _lengths_of(lengths, indices, offsets)
    axis = axis + data.dim() if axis < 0 else axis
    if axis != lengths.dim() - 1 or axis >= data.dim() or data.shape[:axis] != lengths.shape[:-1]:
        raise RuntimeError(f"segment_reduce: expected lengths for the dimensions up to axis {axis} of data: got {tuple(lengths.shape)} and {tuple(data.shape)}")
    if not unsafe and lengths.numel() and (int(lengths.min()) < 0 or bool((lengths.sum(-1) != data.shape[axis]).any())):
        raise RuntimeError(f"segment_reduce: Expected all rows of lengths along axis {axis} to be not negative and to add up to {data.shape[axis]}")
    count, rest = lengths.shape[-1], data.shape[axis + 1:]
    flat_lengths = lengths.reshape(-1)
    rows = data.flatten(0, axis) if axis else data
    places = _ops["arange"](flat_lengths.numel(), device=data.device).repeat_interleave(flat_lengths)
    if places.numel() != rows.shape[0]:  # unsafe: parts that end before the rows do
        size = data.shape[axis]
        row_of = places.div(max(count, 1), rounding_mode="floor")
        within = _ops["arange"](places.numel(), device=data.device) - (lengths.sum(-1).reshape(-1).cumsum(0) - lengths.sum(-1).reshape(-1))[row_of]
        rows = rows[row_of * size + within]
    start = (0.0 if reduce == "mean" else _EMPTY[reduce]) if initial is None else initial
    result = _ops["full"]((flat_lengths.numel(), *rest), start, dtype=data.dtype, device=data.device)
    if reduce in ("sum", "mean"):
        result = result.index_add(0, places, rows)
    else:
        index = places.reshape(-1, *[1] * len(rest)).expand(rows.shape)
        odd = rows.isnan() if rows.dtype.is_floating_point else None
        odd = odd if odd is not None and bool(odd.any()) else None
        factors = rows if odd is None or reduce != "prod" else rows.masked_fill(odd, 1)
        result = result.scatter_reduce(0, index, factors, {"max": "amax", "min": "amin", "prod": "prod"}[reduce], include_self=True)
        if odd is not None:
            # NaN are the extremes of their part, and share its gradient; one NaN among factors has that of the others' product.
            none = _ops["zeros"](result.shape, dtype=data.dtype, device=data.device)
            count, total = none.index_add(0, places, odd.to(data.dtype)), none.index_add(0, places, rows.masked_fill(~odd, 0))
            result = _ops["where"](count > 0, result * total * none.masked_fill(count > 1, float("nan")).add(1) if reduce == "prod" else total / count, result)
    if reduce == "mean":
        sizes = flat_lengths.reshape(-1, *[1] * len(rest))
        empty = _EMPTY["mean"] if initial is None else initial
        result = _ops["where"](sizes > 0, result / sizes.clamp(min=1), _ops["full"]((), empty, dtype=data.dtype, device=data.device))
    return result.reshape((*lengths.shape, *rest))


_segment_reduce = segment_reduce  # PyTorch's operator, which graph networks call


@overridable
def vander(x, N=None, increasing=False):
    """The powers of a vector as columns, the highest first unless `increasing`; N columns, by default as many as elements."""
    if x.dim() != 1:
        raise RuntimeError(f"vander: x must be a one-dimensional tensor: got {tuple(x.shape)}")
    columns = x.shape[0] if N is None else N
    if columns < 0:
        raise RuntimeError(f"vander: N must be non-negative: got {columns}")
    if columns < 2:
        return x.new_ones((x.shape[0], columns), dtype=x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else _C.int64)
    powers = _C._functions["linalg"]["vander"](x if x.dtype.is_floating_point or x.dtype.is_complex else x.long(), N=columns)
    return powers if increasing else powers.flip(1)
