"""Operators that give the same elements another shape or order, and parts of them."""

import math

from .._placements import Partial, Replicate, Shard
from ._dtensor import DTensor, wrap
from ._spec import Spec
from ._table import argument, dims_of, leaves_of, prepare, rule, structured


def _permuted(func, name, t, order, args, kwargs):
    return structured(func, name, t, (), lambda d: order.index(d), args, kwargs, linear=True)


@rule("t", "T", "mT", "H", "mH", "adjoint", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis")
def permutation(func, name, args, kwargs):
    """Dimensions in another order."""
    t, n = args[0], args[0].ndim
    order = list(range(n))
    if name in ("transpose", "swapaxes", "swapdims"):
        a, b = (argument(args, kwargs, i, f"dim{i - 1}", f"axis{i - 1}") for i in (1, 2))
        dims_of([a, b], n)
        if n:
            order[a], order[b] = order[b], order[a]
    elif name == "permute":
        dims = argument(args, kwargs, 1, "dims")
        dims = list(dims) if isinstance(dims, (tuple, list)) else list(args[1:])
        if len(dims) == n and len(dims_of(dims, n)) == n:
            order = [d % n for d in dims]
    elif name in ("movedim", "moveaxis"):
        source, to = ([x] if isinstance(x, int) else list(x) for x in (argument(args, kwargs, 1, "source"), argument(args, kwargs, 2, "destination")))
        source, to = [d % n for d in source], [d % n for d in to]
        rest = iter(d for d in range(n) if d not in source)
        order = [source[to.index(i)] if i in to else next(rest) for i in range(n)]
    elif name in ("T", "t"):
        order.reverse()
    elif n >= 2:
        order[-1], order[-2] = order[-2], order[-1]
    return _permuted(func, name, t, order, args[1:], kwargs)


@rule("unsqueeze")
def unsqueezed(func, name, args, kwargs):
    """A dimension more."""
    t, dim = args[0], argument(args, kwargs, 1, "dim")
    dim = dim + t.ndim + 1 if dim < 0 else dim
    return structured(func, name, t, (), lambda d: d + (d >= dim), args[1:], kwargs, linear=True)


@rule("squeeze")
def squeezed(func, name, args, kwargs):
    """Without dimensions of one row: of the whole, where a part may have one row of many."""
    t, dim = args[0], argument(args, kwargs, 1, "dim")
    gone = {d for d in dims_of(dim, t.ndim) if t.ndim and t.shape[d] == 1} if dim is not None or t.ndim else set()
    dims = tuple(sorted(gone))
    return structured(lambda x: x.squeeze(dims) if dims else x.view_as(x), name, t, gone, lambda d: d - sum(r < d for r in gone), (), {}, linear=True)


@rule("select", "narrow", "index_select", "unbind", "split", "chunk", "tensor_split", "split_with_sizes", "diagonal", "gather", "take_along_dim")
def along_one(func, name, args, kwargs):
    """Parts along a dimension, which must be whole."""
    t = args[0]
    if not isinstance(t, DTensor) or name in ("diagonal", "gather", "take_along_dim") or len(leaves_of(args, kwargs)) > 1:
        return NotImplemented
    at = 1 if name in ("select", "narrow", "unbind") else 2
    dim = argument(args, kwargs, at, "dim", default=0)
    dims = dims_of(dim, t.ndim)
    (d0,) = dims
    gone = name in ("select", "unbind")
    return structured(func, name, t, dims, lambda d: d - (gone and d > d0), args[1:], kwargs, linear=True)


@rule("expand", "expand_as", "broadcast_to")
def expanded(func, name, args, kwargs):
    """Rows of one repeated; dimensions that are cut stay as they are."""
    t = args[0]
    sizes = argument(args, kwargs, 1, "size", "other")
    sizes = list(sizes.shape) if isinstance(sizes, DTensor) else list(sizes) if isinstance(sizes, (tuple, list)) else list(args[1:])
    more = len(sizes) - t.ndim
    if more < 0:
        return NotImplemented
    touched = {d for d in range(t.ndim) if sizes[d + more] not in (-1, t.shape[d])}
    local = list(sizes)
    for p in t.placements:
        if isinstance(p, Shard) and p.dim not in touched:
            local[p.dim + more] = -1
    return structured(lambda x: x.expand(local), name, t, touched, lambda d: d + more, (), {}, linear=True)


def _groups(old, new) -> list:
    """Pairs of lists of dimensions of the one and the other shape with as many elements; None where there are no elements."""
    if math.prod(old) == 0:
        return []
    result, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        left, right = ([i], [j]) if i < len(old) and j < len(new) else (list(range(i, len(old))), list(range(j, len(new))))
        if i < len(old) and j < len(new):
            a, b = old[i], new[j]
            while a != b:
                if a < b:
                    left.append(left[-1] + 1)
                    a *= old[left[-1]]
                else:
                    right.append(right[-1] + 1)
                    b *= new[right[-1]]
        i, j = i + len(left), j + len(right)
        result.append((left, right))
    return result


def _resolved(numel: int, sizes) -> list:
    sizes = [int(s) for s in sizes]
    if sizes.count(-1) == 1:
        rest = math.prod(s for s in sizes if s != -1)
        if rest > 0 and numel % rest == 0:
            sizes[sizes.index(-1)] = numel // rest
    if math.prod(sizes) != numel or any(s < 0 for s in sizes):
        raise RuntimeError(f"shape '{sizes}' is invalid for input of size {numel}")
    return sizes


def reshaped(func, name, t, sizes):
    """Another shape. The first dimension of several that are joined may be cut, where the parts are then the parts of the result."""
    groups = _groups(list(t.shape), sizes)
    placements, target = [], []
    for p in t.placements:
        if isinstance(p, Partial):
            p = p if p.reduce_op in ("sum", "avg") else Replicate()
            placements.append(p)
            target.append(p)
            continue
        to = Replicate()
        if isinstance(p, Shard):
            for left, right in groups:
                left = [d for d in left if t.shape[d] != 1]
                right = [d for d in right if sizes[d] != 1]
                if left and right and left[0] == p.dim:
                    cuts = math.prod(t.device_mesh.size(j) for j in range(t.device_mesh.ndim) if t.placements[j] == p)
                    whole = len(left) == len(right) == 1
                    if whole or (t.shape[p.dim] % cuts == 0 and sizes[right[0]] % cuts == 0):
                        to = Shard(right[0])
        placements.append(p if isinstance(to, Shard) else Replicate())
        target.append(to)
    spec = Spec(t.device_mesh, target, sizes)
    out = wrap(func(prepare(t, placements), spec.local_shape()), spec)
    if tuple(placements) != t.placements or getattr(t, "_copy_of_view", None):
        out._copy_of_view = getattr(t, "_copy_of_view", None) or name
    return out


@rule("view", "reshape", "view_as", "reshape_as", "flatten", "ravel", "unflatten")
def views(func, name, args, kwargs):
    """Another shape."""
    t = args[0]
    if name in ("flatten", "ravel"):
        if not t.ndim:
            sizes = [1]
        else:
            first, last = (argument(args, kwargs, i, n, default=d) % t.ndim for i, n, d in ((1, "start_dim", 0), (2, "end_dim", -1)))
            if first > last:
                raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
            sizes = [*t.shape[:first], math.prod(t.shape[first:last + 1]), *t.shape[last + 1:]]
    elif name == "unflatten":
        dim = argument(args, kwargs, 1, "dim") % max(t.ndim, 1)
        inner = _resolved(t.shape[dim], argument(args, kwargs, 2, "sizes"))
        sizes = [*t.shape[:dim], *inner, *t.shape[dim + 1:]]
    else:
        sizes = argument(args, kwargs, 1, "shape", "size", "other", "dtype")
        if isinstance(sizes, DTensor):
            sizes = sizes.shape
        elif isinstance(sizes, int):
            sizes = args[1:]
        elif not isinstance(sizes, (tuple, list)):
            return NotImplemented  # another dtype
        sizes = _resolved(t.numel(), sizes)
    if name in ("view", "view_as"):
        return reshaped(lambda x, shape: x.view(shape), name, t, list(sizes))
    return reshaped(lambda x, shape: x.reshape(shape), name, t, list(sizes))


@rule("__getitem__")
def item(func, name, args, kwargs):
    """Numbers, slices, None and ...; other indices the general way."""
    t, index = args
    index = list(index) if isinstance(index, tuple) else [index]
    if any(not (i is None or i is Ellipsis or isinstance(i, slice) or (isinstance(i, int) and not isinstance(i, bool))) for i in index):
        return NotImplemented
    used = sum(isinstance(i, (int, slice)) for i in index)
    if used > t.ndim:
        raise IndexError(f"too many indices for tensor of dimension {t.ndim}")
    if Ellipsis not in index:
        index.append(Ellipsis)
    touched, where, old, new = set(), {}, 0, 0
    for i in index:
        if i is None:
            new += 1
        elif i is Ellipsis:
            for _ in range(t.ndim - used):
                where[old] = new
                old, new = old + 1, new + 1
        elif isinstance(i, slice):
            where[old] = new
            if i != slice(None):
                touched.add(old)
            old, new = old + 1, new + 1
        else:
            touched.add(old)
            old += 1
    return structured(func, name, t, touched, where.get, args[1:], kwargs, linear=True)


@rule("cat", "concat", "concatenate", "stack")
def joined(func, name, args, kwargs):
    """Tensors one after another, along a dimension that is whole."""
    tensors = list(argument(args, kwargs, 0, "tensors"))
    tensors = [t for t in tensors if t.ndim != 1 or t.numel() or name == "stack"] or tensors
    dim = argument(args, kwargs, 1, "dim", "axis", default=0)
    first = max(tensors, key=lambda t: t.numel())
    if any(t.ndim != first.ndim for t in tensors):
        return NotImplemented
    ndim = first.ndim + (name == "stack")
    (dim,) = dims_of(dim, ndim)
    placements = []
    for i, p in enumerate(first.placements):
        if isinstance(p, Shard) and (name == "stack" or p.dim != dim) or (isinstance(p, Partial) and p.reduce_op in ("sum", "avg")
                                                                          and all(t.placements[i] == p for t in tensors)):
            placements.append(p)
        else:
            placements.append(Replicate())
    out = func([prepare(t, placements) for t in tensors], dim)
    target = [Shard(p.dim + (p.dim >= dim)) if isinstance(p, Shard) and name == "stack" else p for p in placements]
    shape = list(first.shape)
    if name == "stack":
        shape.insert(dim, len(tensors))
    else:
        shape[dim] = sum(t.shape[dim] for t in tensors)
    return wrap(out, Spec(first.device_mesh, target, shape))
