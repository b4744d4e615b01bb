"""Redistribution from one placement to another: collectives on the ranks' parts, with gradients.

The gradient of a part lies as a rule fixed by how the part lies, so that no rank has to ask the others:

    Shard(d)    the same part of the gradient
    Replicate   the whole gradient, the same on each rank
    Partial     the whole gradient, too: each rank's summand has that of the sum

Each step here keeps it: cutting a whole tensor up gives, backwards, a gathering; a sum over ranks gives back what it gets.
"""

from ... import cat, no_grad, ones_like, zeros_like
from ...autograd import Function
from .. import distributed_c10d as c10d
from .._placements import CUTS, Partial, Replicate
from ._spec import bounds, cut_order

__all__ = ["add_up_gradients", "gradient_placements", "move", "move_gradient"]

_OPS = {"sum": "SUM", "avg": "AVG", "max": "MAX", "min": "MIN", "product": "PRODUCT", "prod": "PRODUCT", "band": "BAND", "bor": "BOR",
        "bxor": "BXOR"}


def _op(name: str):
    if name not in _OPS:
        raise ValueError(f"redistribute: unknown reduction of a Partial: {name!r}: expected one of {sorted(_OPS)}")
    return getattr(c10d.ReduceOp, _OPS[name])


# Parts as they are, without gradients.
def _padded(x, dim: int, n: int):
    missing = n - x.shape[dim]
    if not missing:
        return x
    return cat([x, x.new_zeros([missing if d == dim else s for d, s in enumerate(x.shape)])], dim)


def _gather(x, group, dim: int, n: int):
    """The whole of which each rank has a part of dimension `dim`, n rows in all."""
    size = group.size()
    step = -(-n // size)
    if n == 0:
        return x.clone()
    mine = _padded(x, dim, step).movedim(dim, 0).contiguous()
    whole = mine.new_empty((step * size, *mine.shape[1:]))
    c10d.all_gather_single(whole, mine, group)
    return whole[:n].movedim(0, dim).contiguous()


def _cut(x, group, dim: int):
    first, last = bounds(x.shape[dim], group.size(), group.rank())
    return x.narrow(dim, first, last - first).clone().contiguous()


def _reduce(x, group, op: str):
    x = x.clone().contiguous()
    c10d.all_reduce(x, _op(op), group)
    return x


def _reduce_and_cut(x, group, dim: int, op: str):
    size, n = group.size(), x.shape[dim]
    if n == 0:
        return x.clone()
    step = -(-n // size)
    rows = _padded(x, dim, step * size).movedim(dim, 0).contiguous()
    mine = rows.new_empty((step, *rows.shape[1:]))
    c10d.reduce_scatter_single(mine, rows, _op(op), group)
    first, last = bounds(n, size, group.rank())
    return mine[:last - first].movedim(0, dim).contiguous()


def _exchange(x, group, source: int, rows: int, target: int):
    """Parts of dimension `source` (`rows` in all) become parts of dimension `target`, of which each rank has all."""
    size, rank = group.size(), group.rank()
    cuts = [bounds(x.shape[target], size, r) for r in range(size)]
    sent = [x.narrow(target, first, last - first).reshape(-1) for first, last in cuts]
    shapes = []
    for r in range(size):
        shape = list(x.shape)
        first, last = bounds(rows, size, r)
        shape[source], shape[target] = last - first, cuts[rank][1] - cuts[rank][0]
        shapes.append(shape)
    counts = [_numel(shape) for shape in shapes]
    flat = x.new_empty(sum(counts))
    c10d.all_to_all_single(flat, cat(sent), counts, [s.numel() for s in sent], group)
    return cat([piece.reshape(shape) for piece, shape in zip(flat.split(counts), shapes, strict=True)], source).contiguous()


def _numel(shape) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _summand(x, group, op: str):
    """A part whose reduction over the ranks is x: exactly, since only one rank's part counts where the others' would."""
    if op in ("sum", "product", "prod", "bxor") and group.rank():
        return ones_like(x) if op.startswith("prod") else zeros_like(x)
    return x.clone()


# The steps.
class _Gather(Function):
    @staticmethod
    def forward(ctx, x, group, dim, n):
        ctx.group, ctx.dim = group, dim
        return _gather(x, group, dim, n)

    @staticmethod
    def backward(ctx, grad):
        return _Cut.apply(grad, ctx.group, ctx.dim), None, None, None


class _Cut(Function):
    @staticmethod
    def forward(ctx, x, group, dim):
        ctx.group, ctx.dim, ctx.n = group, dim, x.shape[dim]
        return _cut(x, group, dim)

    @staticmethod
    def backward(ctx, grad):
        return _Gather.apply(grad, ctx.group, ctx.dim, ctx.n), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx, x, group, op):
        ctx.op = op
        return _reduce(x, group, op)

    @staticmethod
    def backward(ctx, grad):
        _linear(ctx.op)
        return grad, None, None


class _ReduceAndCut(Function):
    @staticmethod
    def forward(ctx, x, group, dim, op):
        ctx.group, ctx.dim, ctx.n, ctx.op = group, dim, x.shape[dim], op
        return _reduce_and_cut(x, group, dim, op)

    @staticmethod
    def backward(ctx, grad):
        _linear(ctx.op)
        return _Gather.apply(grad, ctx.group, ctx.dim, ctx.n), None, None, None


class _Exchange(Function):
    @staticmethod
    def forward(ctx, x, group, source, rows, target):
        ctx.group, ctx.back = group, (target, x.shape[target], source)
        return _exchange(x, group, source, rows, target)

    @staticmethod
    def backward(ctx, grad):
        return _Exchange.apply(grad, ctx.group, *ctx.back), None, None, None, None


class _Summand(_Reduce):
    @staticmethod
    def forward(ctx, x, group, op):
        ctx.op = op
        return _summand(x, group, op)


class _AddUpGradients(Function):
    """The same on each rank; its gradients are parts of a sum."""

    @staticmethod
    def forward(ctx, x, groups):
        ctx.groups = groups
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        for group in ctx.groups:
            grad = _Reduce.apply(grad, group, "sum")
        return grad, None


class _MoveGradient(Function):
    @staticmethod
    def forward(ctx, x, spec, given, wanted):
        ctx.move = spec, given, wanted
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        spec, given, wanted = ctx.move
        return move(grad, spec.with_placements(given), wanted), None, None, None


def _linear(op: str) -> None:
    if op not in ("sum", "avg"):
        raise RuntimeError(f"redistribute: the gradient of a reduction by {op!r} is not known: only 'sum' and 'avg' have one")


def gradient_placements(placements) -> tuple:
    """How the gradient of a part lies."""
    if not any(isinstance(p, Partial) for p in placements):
        return tuple(placements)
    return tuple(Replicate() if isinstance(p, Partial) else p for p in placements)


def add_up_gradients(x, mesh, dims):
    """x as it is; its gradient is added up over the mesh's dimensions `dims`."""
    groups = [mesh.get_group(i) for i in dims if mesh.size(i) > 1]
    return _AddUpGradients.apply(x, groups) if groups and x.requires_grad else x


def move_gradient(x, spec, given, wanted):
    """x as it is; gradients that come back lying as `given` go on lying as `wanted`."""
    if tuple(given) == tuple(wanted) or not x.requires_grad:
        return x
    return _MoveGradient.apply(x, spec, tuple(given), tuple(wanted))


def _before(spec, current: list, i: int, dim: int) -> int:
    """The rows of dimension `dim` that the ranks along mesh dimension i have together."""
    coordinate, n = spec.mesh.get_coordinate(), spec.shape[dim]
    order = cut_order(current)
    for j in order[:order.index(i)]:
        if isinstance(current[j], CUTS) and current[j].dim == dim:
            first, last = bounds(n, spec.mesh.size(j), coordinate[j])
            n = last - first
    return n


def _step(x, spec, current: list, i: int, to):
    """One dimension of the mesh; none that cuts later cuts the same dimension of the tensor."""
    at, group = current[i], spec.mesh.get_group(i)
    if isinstance(at, CUTS):
        rows = _before(spec, current, i, at.dim)
    current[i] = to
    if group.size() == 1:
        return x
    if isinstance(at, CUTS) and isinstance(to, CUTS):
        return _Exchange.apply(x, group, at.dim, rows, to.dim)
    if isinstance(at, Partial) and isinstance(to, CUTS):
        return _ReduceAndCut.apply(x, group, to.dim, at.reduce_op)
    if isinstance(at, CUTS):
        x = _Gather.apply(x, group, at.dim, rows)
    elif isinstance(at, Partial):
        x = _Reduce.apply(x, group, at.reduce_op)
    if isinstance(to, CUTS):
        return _Cut.apply(x, group, to.dim)
    return _Summand.apply(x, group, to.reduce_op) if isinstance(to, Partial) else x


def move(x, spec, placements):
    """The part of the same tensor when it lies as `placements`. Every rank of the mesh must call it."""
    current, wanted = list(spec.placements), list(placements)
    if current == wanted:
        return x
    if spec.mesh.get_coordinate() is None:
        return x  # this rank has no part
    ndim = len(current)

    def alone(i: int) -> bool:
        cuts = {p.dim for p in (current[i], wanted[i]) if isinstance(p, CUTS)}
        return not any(isinstance(p, CUTS) and p.dim in cuts for j in range(ndim) if j != i for p in (current[j], wanted[j]))

    for i in range(ndim):
        if current[i] != wanted[i] and alone(i):
            x = _step(x, spec, current, i, wanted[i])
    # Cuts of one dimension by several of the mesh lie inside one another: the inner ones are undone first, and made last.
    touched: set = set()
    for i in range(ndim):
        if current[i] != wanted[i]:
            touched |= {p.dim for p in (current[i], wanted[i]) if isinstance(p, CUTS)}
    for i in reversed(cut_order(current)):
        if current[i] != wanted[i] or (isinstance(current[i], CUTS) and current[i].dim in touched):
            x = _step(x, spec, current, i, Replicate())
    for i in cut_order(wanted):
        if current[i] != wanted[i]:
            x = _step(x, spec, current, i, wanted[i])
    return x


def move_plainly(x, spec, placements):
    """move without the tape."""
    with no_grad():
        return move(x.detach(), spec, placements)
