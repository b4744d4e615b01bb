"""Views, indexing, joins, and tensors made from sizes."""

from __future__ import annotations

import numpy as np

from .. import arange, int64
from .. import bool as bool_
from ._builder import Builder, Ref, handler
from ._errors import Refused
from ._sizes import Size, around, at, differences, fixed, unknown


@handler("_view_shape", "reshape", "view_as", "reshape_as", "flatten", "unflatten", "ravel", "atleast_1d", "atleast_2d", sizes=True)
def _reshape(g: Builder, x: Ref, *_):
    return g.reshape(x, g.out[0].shape)


@handler("transpose", "swapaxes", "swapdims", "t", "adjoint")
def _transpose(g: Builder, x: Ref, a=-2, b=-1):
    if x.ndim < 2:
        return g.Identity(x)
    order = list(range(x.ndim))
    a, b = x.axis(a), x.axis(b)
    order[a], order[b] = b, a
    return g.transpose(x, order)


@handler("permute")
def _permute(g: Builder, x: Ref, dims):
    return g.transpose(x, dims)


@handler("movedim")
def _movedim(g: Builder, x: Ref, source, destination):
    moved = {x.axis(to): x.axis(d) for d, to in zip(source, destination, strict=True)}
    rest = iter([d for d in range(x.ndim) if d not in moved.values()])
    return g.transpose(x, [moved[d] if d in moved else next(rest) for d in range(x.ndim)])


@handler("squeeze")
def _squeeze(g: Builder, x: Ref, dims=None):
    found = [d for d in (range(x.ndim) if dims is None else map(x.axis, dims)) if x.ndim and not isinstance(x.shape[d], Size) and x.shape[d] == 1]
    return g.squeeze(x, *sorted(found)) if found else g.Identity(x)


@handler("unsqueeze")
def _unsqueeze(g: Builder, x: Ref, dim):
    return g.unsqueeze(x, dim + x.ndim + 1 if dim < 0 else dim)


@handler("expand", "expand_as", "broadcast_to", sizes=True)
def _expand(g: Builder, x: Ref, *_):
    return g.expand(x, g.out[0].shape)


@handler("select", sizes=True)
def _select(g: Builder, x: Ref, dim, index):
    return g.Gather(x, g.scalar(index), axis=x.axis(dim))


@handler("narrow", "narrow_copy", sizes=True)
def _narrow(g: Builder, x: Ref, dim, start, length):
    return g.slice(x, [start], [_end(start, length)], [x.axis(dim)])


def _end(start, length):
    """A slice that begins at a negative place ends at the end where it would end at 0."""
    end = start + length
    return np.iinfo(np.int64).max if not isinstance(start, Size) and start < 0 and end == 0 else end


@handler("diagonal", "unfold")
def _places(g: Builder, x: Ref, *args):
    """Views whose places are computed here: a row of all elements is indexed."""
    fixed(x.shape)
    places = getattr(arange(_product(x.shape)).reshape(x.shape), g.function)(*args)
    return g.Gather(g.reshape(x, [_product(x.shape)]), g.const(places.numpy()), axis=0)


@handler("meshgrid")
def _meshgrid(g: Builder, tensors, indexing=None):
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    return [g.expand(g.reshape(t, [t.shape[0] if d == order[i] else 1 for d in range(len(tensors))]), g.out[i].shape) for i, t in enumerate(tensors)]


@handler("_slice", sizes=True)
def _slice(g: Builder, x: Ref, dim=0, start=None, end=None, step=1):
    return g.slice(x, [start or 0] if not isinstance(start, Size) else [start], [np.iinfo(np.int64).max if end is None else end], [x.axis(dim)], [step])


# --- subscripts ---


def _find_slices(shape, size, stride, offset):
    """A view of a contiguous tensor as slices: for each dimension (start, step) and which dimension of the view it is, or None. Raises Refused."""
    contiguous = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        contiguous[d] = contiguous[d + 1] * shape[d + 1]
    starts, rest = [], offset
    for step in contiguous:
        starts.append(rest // step if step else 0)
        rest %= max(step, 1)
    found: list = [None] * len(shape)
    last = -1
    for v, (n, s) in enumerate(zip(size, stride, strict=True)):
        if n == 1:
            continue
        for d in range(last + 1, len(shape)):
            step = s // contiguous[d] if contiguous[d] else 0
            if step >= 1 and step * contiguous[d] == s and starts[d] + step * (n - 1) < shape[d]:
                found[d], last = (v, step), d
                break
        else:
            raise Refused("its strides are those of no slices and integers")
    return starts, found


@handler("_strided_view", sizes=True)
def _strided_view(g: Builder, x: Ref, size, _, __, stride, offset):
    if any(not isinstance(n, Size) and n == 0 for n in [*size, *x.shape]):
        return g.Expand(g.number(0, x.dtype), g.ints(size))
    if any(unknown(n) for n in x.shape):
        raise Refused("it is a view of a tensor whose sizes are known only when the model runs")
    recorded = [s[1] for s in g.symbols]
    points = [[n + (i >> k & 1) for k, n in enumerate(recorded)] for i in range(1 << len(recorded))] if recorded else [[]]
    points.append([n + 5 + k for k, n in enumerate(recorded)])  # where no size that may change is 1 by chance
    *seen, (_, slices) = [_find_slices([at(n, p) for n in x.shape], [at(n, p) for n in size], [at(n, p) for n in stride], at(offset, p)) for p in points]
    starts = [around(differences([s[d] for s, _ in seen]), recorded) for d in range(x.ndim)]
    contiguous: list = [1] * x.ndim
    for d in range(x.ndim - 2, -1, -1):
        contiguous[d] = contiguous[d + 1] * x.shape[d + 1]
    kept = [(d, *f) for d, f in enumerate(slices) if f is not None]
    if sum((s * c for s, c in zip(starts, contiguous, strict=True)), 0) != offset or any(contiguous[d] * step != stride[v] for d, v, step in kept):
        raise Refused("where it begins depends on a size that may change in no way that slices say")
    cut = [(d, v, step) for d, v, step in kept if not (starts[d] == 0 and step == 1 and size[v] == x.shape[d])]
    y = x
    if cut:
        y = g.slice(y, [starts[d] for d, _, _ in cut], [starts[d] + (size[v] - 1) * step + 1 for d, v, step in cut], [d for d, _, _ in cut], [c[2] for c in cut])
    y.shape = y.shape or [size[f[0]] if f else x.shape[d] for d, f in enumerate(slices)]
    for d in reversed(range(x.ndim)):
        if slices[d] is None:
            shape = [n for i, n in enumerate(y.shape) if i != d]
            y = g.squeeze(y, d) if y.shape[d] == 1 and starts[d] == 0 else g.Gather(y, g.scalar(starts[d]), axis=d, shape=shape)
    present = {v for _, v, _ in kept}
    new = [v for v in range(len(size)) if v not in present]
    y = g.unsqueeze(y, *new) if new else y
    return y if y is not x else g.Identity(x)


def _index_front(g: Builder, x: Ref, indices):
    """x with the dimensions that are indexed in front, indices as one tensor, the dimensions with and without one, and the sizes of indices."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].dtype is bool_ for d in dims):
        raise Refused("a mask selects as many elements as it has ones")
    rest = [d for d in range(x.ndim) if d not in dims]
    count = max(indices[d].ndim for d in dims)
    shape = list(np.broadcast_shapes(*[[1 if isinstance(n, Size) else n for n in indices[d].shape] for d in dims]))
    for d in dims:
        for k, n in enumerate(indices[d].shape):
            if isinstance(n, Size):
                shape[count - indices[d].ndim + k] = n
    parts = [g.unsqueeze(g.expand(g.cast(indices[d], int64), shape), count) for d in dims]
    index = parts[0] if len(parts) == 1 else g.Concat(*parts, axis=count)
    return g.transpose(x, dims + rest), index, dims, rest, shape


@handler("_index", "_index_tensor")
def _index(g: Builder, x: Ref, indices):
    found = [i for i in indices if i is not None]
    if len(found) == 1 and found[0].dtype is not bool_:
        return g.Gather(x, g.cast(found[0], int64), axis=[i is not None for i in indices].index(True))
    front, index, dims, rest, shape = _index_front(g, x, indices)
    y, count = g.GatherND(front, index), len(shape)
    at_dim = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    if at_dim == 0:
        return y
    order = [*range(count, count + at_dim), *range(count), *range(count + at_dim, count + len(rest))]
    return g.Transpose(y, perm=order)


@handler("_index_put", "index_put")
def _index_put(g: Builder, x: Ref, indices, values: Ref, accumulate=False):
    found = [i for i in indices if i is not None]
    if len(found) == 1 and found[0].dtype is bool_ and values.ndim == 0 and indices[0] is not None:
        mask = g.reshape(found[0], [*found[0].shape, *[1] * (x.ndim - found[0].ndim)])
        return g.where(mask, values, x, x.dtype)
    front, index, dims, rest, shape = _index_front(g, x, indices)
    at_dim = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    if at_dim:
        raise Refused("it writes at indices behind a dimension without one")
    updates = g.expand(g.cast(values, x.dtype), [*shape, *[x.shape[d] for d in rest]])
    written = g.ScatterND(front, index, updates, reduction="add" if accumulate else None)
    written.shape = front.shape
    back = [*dims, *rest]
    return g.transpose(written, [back.index(d) for d in range(x.ndim)])


@handler("index_select")
def _index_select(g: Builder, x: Ref, dim, index: Ref, sparse=False):
    return g.Gather(x, index if index.ndim else g.unsqueeze(index, 0), axis=x.axis(dim))


@handler("take")
def _take(g: Builder, x: Ref, index: Ref):
    return g.Gather(g.Reshape(x, g.const([-1])), index, axis=0)


@handler("gather", "take_along_dim")
def _gather(g: Builder, x: Ref, a, b, sparse=False):
    dim, index = (b, a) if isinstance(a, Ref) else (a, b)
    if dim is None or not x.ndim:
        raise Refused("of all elements in one row")
    if g.function == "take_along_dim" and index.shape != x.shape:
        raise Refused("the indices are broadcast")
    return g.GatherElements(x, index, axis=x.axis(dim))


@handler("_scatter_src", "_scatter_src_into", "scatter_add", "scatter_reduce", "_scatter_value", "_scatter_value_into", "index_add", "index_copy", "index_fill")
def _scatter(g: Builder, x: Ref, dim, index: Ref, source, reduce=None, include=True):
    if not x.ndim or not index.ndim or not include:
        raise Refused("a tensor of no dimension, or without its own values")
    dim = x.axis(dim)
    if g.function.startswith("index_"):
        fixed(index.shape)
        if g.function == "index_add" and reduce not in (None, 1):
            source = g.number(source, x.dtype) * reduce
        shape = [index.shape[0] if d == dim else n for d, n in enumerate(x.shape)]
        index = g.expand(g.reshape(index, [index.shape[0] if d == dim else 1 for d in range(x.ndim)]), shape)
    source = g.number(source, x.dtype)
    source = g.expand(source, index.shape) if source.ndim == 0 else source
    if source.shape != index.shape:
        fixed(index.shape)
        source = g.slice(source, [0] * x.ndim, index.shape, list(range(x.ndim)))
    how = {"scatter_add": "sum", "index_add": "sum"}.get(g.function, reduce if g.function == "scatter_reduce" else None)
    if how not in (None, "sum", "prod", "amax", "amin"):
        raise Refused(f"reduce={how!r}")
    return g.ScatterElements(x, index, source, axis=dim, reduction={None: None, "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}[how])


@handler("embedding", "_embedding")
def _embedding(g: Builder, indices: Ref, weight: Ref, padding=None, max_norm=None, *_):
    if g.function == "_embedding":
        indices, weight, max_norm = weight, indices, None
    if max_norm is not None:
        raise Refused("max_norm changes the weight")
    return g.Gather(weight, indices, axis=0)


@handler("embedding_bag")
def _embedding_bag(g: Builder, indices: Ref, weight: Ref, offsets=None, max_norm=None, norm_type=2, scale=False, mode="mean", sparse=False, scales=None,
                   last=False, padding=None):
    if indices.ndim != 2 or offsets is not None or max_norm is not None or padding is not None:
        raise Refused("bags of several lengths, max_norm or padding_idx")
    rows = g.Gather(weight, indices, axis=0)
    if scales is not None:
        rows = rows * g.unsqueeze(scales, 2)
    return g.op({"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}[mode], rows, g.const([1]), keepdims=0)


# --- joins and parts ---


@handler("cat")
def _cat(g: Builder, tensors, dim=0):
    tensors = [t for t in tensors if t.shape != [0] or len(g.out[0].shape) == 1]
    return g.Concat(*g.cast_all(g.out[0].dtype, *tensors), axis=tensors[0].axis(dim))


@handler("stack")
def _stack(g: Builder, tensors, dim=0):
    dim = dim + tensors[0].ndim + 1 if dim < 0 else dim
    return g.Concat(*[g.unsqueeze(t, dim) for t in g.cast_all(g.out[0].dtype, *tensors)], axis=dim)


@handler("_split_size", "split_with_sizes", "_split_sections", "chunk", "unsafe_chunk", "unsafe_split", "_tensor_split_sections", "_tensor_split_indices",
         sizes=True)
def _split(g: Builder, x: Ref, _, dim=0):
    dim = x.axis(dim)
    parts = g.Split(x, g.ints([o.shape[dim] for o in g.out]), axis=dim, outputs=len(g.out))
    return parts if isinstance(parts, list) else [parts]


@handler("unbind")
def _unbind(g: Builder, x: Ref, dim=0):
    return [g.Gather(x, g.scalar(i), axis=x.axis(dim)) for i in range(len(g.out))]


@handler("repeat", "tile", sizes=True)
def _repeat(g: Builder, x: Ref, repeats):
    repeats = [1] * (x.ndim - len(repeats)) + list(repeats)
    return g.Tile(g.reshape(x, [1] * (len(repeats) - x.ndim) + x.shape), g.ints(repeats))


@handler("_repeat_interleave_int")
def _repeat_interleave(g: Builder, x: Ref, repeats, dim=None, size=None):
    x = g.reshape(x, [-1]) if dim is None else x
    dim = 0 if dim is None else x.axis(dim)
    y = g.unsqueeze(x, dim + 1)
    return g.reshape(g.expand(y, [*y.shape[:dim + 1], repeats, *y.shape[dim + 2:]]), g.out[0].shape)


@handler("flip")
def _flip(g: Builder, x: Ref, dims):
    count = len(dims)
    return g.slice(x, [-1] * count, [np.iinfo(np.int64).min] * count, [x.axis(d) for d in dims], [-1] * count) if count else g.Identity(x)


@handler("roll")
def _roll(g: Builder, x: Ref, shifts, dims=()):
    if not dims:
        return g.reshape(_rolled(g, g.reshape(x, [-1]), shifts[0], 0, _product(x.shape)), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(g, x, shift, x.axis(dim), x.shape[x.axis(dim)])
    return x


def _rolled(g: Builder, x: Ref, shift: int, dim: int, size) -> Ref:
    fixed(size)
    shift = shift % size if size else 0
    if not shift:
        return g.Identity(x, shape=x.shape)
    return g.Concat(g.slice(x, [-shift], [np.iinfo(np.int64).max], [dim]), g.slice(x, [0], [-shift], [dim]), axis=dim, shape=x.shape)


def _product(shape):
    total = 1
    for n in shape:
        total = total * n
    return total


@handler("tril", "triu")
def _triangle(g: Builder, x: Ref, diagonal=0):
    return g.Trilu(x, g.const(diagonal), upper=int(g.function == "triu"))


@handler("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def _pixel_shuffle(g: Builder, x: Ref, factor):
    if x.ndim != 4:
        raise Refused("images of other than four dimensions")
    if g.function == "pixel_shuffle":
        return g.DepthToSpace(x, blocksize=factor, mode="CRD")
    n, c, h, w = x.shape
    fixed(c, h, w)
    if g.function == "channel_shuffle":
        return g.reshape(g.transpose(g.reshape(x, [n, factor, c // factor, h, w]), [0, 2, 1, 3, 4]), x.shape)
    y = g.reshape(x, [n, c, h // factor, factor, w // factor, factor])
    return g.reshape(g.transpose(y, [0, 1, 3, 5, 2, 4]), g.out[0].shape)


# --- what is made ---


@handler("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "empty", "empty_like", "new_empty", "scalar_tensor",
         "zero", "fill", sizes=True)
def _full(g: Builder, *args):
    out = g.out[0]
    value = 1 if "ones" in g.function else 0 if "full" not in g.function and g.function not in ("fill", "scalar_tensor") else args[0 if g.function == "scalar_tensor" else
                                                                                                                     2 if g.function == "new_full" else 1]
    if any(unknown(n) for n in out.shape):
        like = g.op("Shape", args[0], kind=int64)
        return g.Expand(g.number(value, out.dtype), like)
    return g.expand(g.number(value, out.dtype), out.shape)


@handler("copy", sizes=True)
def _copy(g: Builder, x: Ref, source, *_):
    return g.expand(g.number(source, x.dtype), x.shape)


@handler("_arange_end", "_arange", sizes=True)
def _arange(g: Builder, *args):
    kind = g.out[0].dtype
    start, end, step = (0, args[0], 1) if g.function == "_arange_end" else args[:3]
    return g.Range(*g.cast_all(kind, start, end, step))
