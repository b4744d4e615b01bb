"""Products of matrices, and rows of tables."""

from ...nn import functional as F
from .._placements import Partial, Replicate, Shard
from ._dtensor import DTensor, wrap
from ._spec import Spec, bounds
from ._table import argument, prepare, rule


def _beside(dim: int, batch: dict, place: int) -> tuple:
    """How the other factor and the product lie where a factor is cut along dim, which is one of the batch or goes to `place`."""
    if dim not in batch:
        return Replicate(), Shard(place)
    d, other = batch[dim]
    return (Replicate() if other is None else Shard(other)), Shard(d)


def _plan(a, b, k: tuple, places: tuple, batch: dict) -> tuple:
    """How the two factors and the product must lie, and the mesh's dimensions along which each factor is shared.

    k: the dimensions that are summed over, of a and of b; places: where the rows of a and the columns of b are in the product; batch:
    other dimension of the product -> those of a and b (None where it has not that one, or a single row).
    """
    of_a = {da: (d, db) for d, (da, db) in batch.items() if da is not None}
    of_b = {db: (d, da) for d, (da, db) in batch.items() if db is not None}
    for_a, for_b, result, shared_a, shared_b = [], [], [], [], []
    for i, (p, q) in enumerate(zip(a.placements, b.placements, strict=True)):
        p = Replicate() if isinstance(p, Partial) else p
        q = Replicate() if isinstance(q, Partial) else q
        if isinstance(p, Shard) and isinstance(q, Shard) and p.dim != k[0] and q.dim != k[1]:
            together = p.dim in of_a and of_a[p.dim][1] == q.dim
            if not together:  # one of them must be whole: the smaller one
                p, q = (p, Replicate()) if a.numel() >= b.numel() else (Replicate(), q)
        if (isinstance(p, Shard) and p.dim == k[0] and (isinstance(q, Replicate) or q.dim == k[1])) or (
                isinstance(q, Shard) and q.dim == k[1] and isinstance(p, Replicate)):
            p, q, r = Shard(k[0]), Shard(k[1]), Partial()
        elif isinstance(p, Shard) and p.dim != k[0]:
            q, r = _beside(p.dim, of_a, places[0])
            if isinstance(q, Replicate):
                shared_b.append(i)
        elif isinstance(q, Shard) and q.dim != k[1]:
            p, r = _beside(q.dim, of_b, places[1])
            if isinstance(p, Replicate):
                shared_a.append(i)
        else:
            p, q, r = Replicate(), Replicate(), Replicate()
        for_a.append(p)
        for_b.append(q)
        result.append(r)
    return for_a, for_b, result, shared_a, shared_b


def _added(t, target, shape):
    """A summand beside a product that lies as target: of a product in parts it is in the first one."""
    placements, shared = [], []
    for i, p in enumerate(target):
        if isinstance(p, Shard):
            d = p.dim - (len(shape) - t.ndim)
            if d >= 0 and t.shape[d] == shape[p.dim]:
                p = Shard(d)
            else:
                p = Replicate()
                shared.append(i)
        placements.append(p)
    return prepare(t, placements, shared)


@rule("linear")
def linear(func, name, args, kwargs):
    """x @ weight.T + bias."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    bias = argument(args, kwargs, 2, "bias")
    if x.ndim < 1 or weight.ndim != 2:
        return NotImplemented
    if x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"linear(): input and weight.T shapes cannot be multiplied ({x.numel() // max(x.shape[-1], 1)}x{x.shape[-1]} and "
                           f"{weight.shape[1]}x{weight.shape[0]})")
    shape = (*x.shape[:-1], weight.shape[0])
    last = x.ndim - 1
    # All dimensions of x but the last are rows: each goes where it was.
    batch = {d: (d, None) for d in range(last)}
    for_x, for_w, target, shared_x, shared_w = _plan(x, weight, (last, 1), (None, last), batch)
    x_part, w_part = prepare(x, for_x, shared_x), prepare(weight, for_w, shared_w)
    b_part = None if bias is None else _added(bias, target, shape)
    return wrap(F.linear(x_part, w_part, b_part), Spec(x.device_mesh, target, shape))


def _product(a, b, multiply, name):
    """Product of two tensors with two dimensions at least, and how it lies."""
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"{name}: shapes cannot be multiplied: {list(a.shape)} and {list(b.shape)}")
    rank = max(a.ndim, b.ndim)
    batch, shape = {}, []
    for d in range(rank - 2):
        da, db = d - (rank - a.ndim), d - (rank - b.ndim)
        na, nb = (a.shape[da] if da >= 0 else 1), (b.shape[db] if db >= 0 else 1)
        if na != nb and 1 not in (na, nb):
            raise RuntimeError(f"{name}: batch dimensions do not fit: {list(a.shape)} and {list(b.shape)}")
        n = nb if na == 1 else na
        shape.append(n)
        batch[d] = (da if na == n and da >= 0 else None, db if nb == n and db >= 0 else None)
    shape += [a.shape[-2], b.shape[-1]]
    lone = {da for d, n in enumerate(shape[:-2]) for da in [d - (rank - a.ndim)] if da >= 0 and batch[d][0] is None}
    lone_b = {db for d, n in enumerate(shape[:-2]) for db in [d - (rank - b.ndim)] if db >= 0 and batch[d][1] is None}
    a, b = _whole_along(a, lone), _whole_along(b, lone_b)
    for_a, for_b, target, shared_a, shared_b = _plan(a, b, (a.ndim - 1, b.ndim - 2), (rank - 2, rank - 1), batch)
    return multiply(prepare(a, for_a, shared_a), prepare(b, for_b, shared_b)), target, shape


def _whole_along(t, dims: set):
    """t with dimensions of one row, which are repeated in the product, whole."""
    placements = [Replicate() if isinstance(p, Shard) and p.dim in dims else p for p in t.placements]
    return t if tuple(placements) == t.placements else t.redistribute(placements=placements)


@rule("matmul", "mm", "bmm", "__matmul__", "__rmatmul__")
def matmul(func, name, args, kwargs):
    """Products of matrices and of batches of them; of vectors the general way."""
    a, b = args[0], argument(args, kwargs, 1, "other", "mat2")
    if name == "__rmatmul__":
        a, b = b, a
    if a.ndim < 2 or b.ndim < 2:
        return NotImplemented
    multiply = func if name in ("mm", "bmm") else lambda x, y: x @ y
    out, target, shape = _product(a, b, multiply, name)
    return wrap(out, Spec(a.device_mesh, target, shape))


@rule("addmm", "baddbmm")
def addmm(func, name, args, kwargs):
    """beta * summand + alpha * (a @ b)."""
    if len(args) != 3 or not set(kwargs) <= {"beta", "alpha"}:
        return NotImplemented
    summand, a, b = args
    found = []

    def multiply(x, y):
        found.append((x, y))
        return None

    _, target, shape = _product(a, b, multiply, name)
    (x, y), = found
    return wrap(func(_added(summand, target, shape), x, y, **kwargs), Spec(a.device_mesh, target, shape))


@rule("embedding")
def embedding(func, name, args, kwargs):
    """Rows of a table that may be cut by columns, or by rows: then each rank gives the rows that it has, and zeros."""
    names = ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    ids, weight = given["input"], given["weight"]
    if not isinstance(ids, DTensor) or weight.ndim != 2:
        return NotImplemented
    padding = given.get("padding_idx")
    if padding is not None and padding < 0:
        padding += weight.shape[0]
    if given.get("max_norm") is not None or given.get("scale_grad_by_freq") or given.get("sparse"):
        if any(p != Replicate() for t in (ids, weight) for p in t.placements):
            raise NotImplementedError("embedding: max_norm, scale_grad_by_freq and sparse are supported for replicated DTensors only: got indices "
                                      f"that lie as {ids.placements} and weights that lie as {weight.placements}\nredistribute them to Replicate")
        return NotImplemented
    if sum(p == Shard(0) for p in weight.placements) > 1:
        return NotImplemented
    for_ids, for_weight, target, shared, rows = [], [], [], [], None
    for i, (p, q) in enumerate(zip(ids.placements, weight.placements, strict=True)):
        p, q = (Replicate() if isinstance(x, Partial) else x for x in (p, q))
        if q == Shard(0):
            p, r, rows = Replicate(), Partial(), i
        elif q == Shard(1):
            p, r = Replicate(), Shard(ids.ndim)
        elif isinstance(p, Shard):
            r = p
            shared.append(i)
        else:
            r = Replicate()
        for_ids.append(p)
        for_weight.append(q)
        target.append(r)
    index, table = prepare(ids, for_ids), prepare(weight, for_weight, shared)
    spec = Spec(ids.device_mesh, target, (*ids.shape, weight.shape[1]))
    if rows is None:
        return wrap(F.embedding(index, table, padding), spec)
    total = weight.shape[0]
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= total):
        raise IndexError(f"embedding: index out of range: expected indices from 0 to {total - 1}: got {int(index.min())} to {int(index.max())}")
    mesh = ids.device_mesh
    first, last = bounds(total, mesh.size(rows), mesh.get_coordinate()[rows])
    if first == last:
        return wrap(table.new_zeros((*index.shape, table.shape[1])) + table.sum(), spec)
    absent = (index < first) | (index >= last)
    mine = padding - first if padding is not None and first <= padding < last else None
    out = F.embedding((index - first).masked_fill(absent, 0), table, mine)
    return wrap(out.masked_fill(absent.unsqueeze(-1), 0), spec)


@rule("scaled_dot_product_attention")
def attention(func, name, args, kwargs):
    """Attention of batches and heads that lie with different ranks."""
    given = {**dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"), args, strict=False)), **kwargs}
    q, k, v, mask = given.pop("query"), given.pop("key"), given.pop("value"), given.pop("attn_mask", None)
    if given.get("dropout_p") or mask is not None or not q.ndim == k.ndim == v.ndim or q.shape[:-2] != k.shape[:-2] or k.shape[:-2] != v.shape[:-2]:
        return NotImplemented
    placements = [p if isinstance(p, Shard) and p.dim < q.ndim - 2 else Replicate() for p in q.placements]
    out = func(*[prepare(t, placements) for t in (q, k, v)], **given)
    return wrap(out, Spec(q.device_mesh, placements, (*q.shape[:-1], v.shape[-1])))
