"""Cross entropy of logits whose classes are split over ranks: the maximum, the sum and the target's logit are reduced, not gathered."""

from .... import Tensor, no_grad, where
from ..._placements import Partial, Replicate, Shard
from .._dtensor import DTensor, Switch, wrap
from .._moves import move, move_plainly
from .._spec import Spec, bounds
from .._table import prepare, replicated

__all__ = ["loss_parallel"]

_parallel = Switch()


def loss_parallel():
    """Inside, nn.functional.cross_entropy keeps logits cut along the classes as they are. Targets are class indices, whole on each rank."""
    return _parallel.scope()


def parallel_cross_entropy(x: DTensor, target: DTensor, weight, ignored: int, reduction: str, smoothing: float):
    """The loss, or NotImplemented where the scope is off or classes are not cut."""
    dim = 1 if x.ndim > 1 else 0
    cut = [i for i, p in enumerate(x.placements) if p == Shard(dim)]
    if not _parallel.on or not cut:
        return NotImplemented
    if len(cut) > 1 or target.dtype.is_floating_point or smoothing or reduction not in ("mean", "sum", "none"):
        raise NotImplementedError("cross_entropy: in loss_parallel() classes may be cut along one dimension of the mesh, targets must be class indices, "
                                  f"without label smoothing: got logits that lie as {x.placements}, targets of {target.dtype}, label_smoothing="
                                  f"{smoothing}")
    (i,) = cut
    mesh, classes = x.device_mesh, x.shape[dim]
    placements = [p if isinstance(p, Shard) else Replicate() for p in x.placements]
    rows = [Replicate() if j == i else Shard(p.dim - (p.dim > dim)) if isinstance(p, Shard) else p for j, p in enumerate(placements)]
    local, index = prepare(x, placements), prepare(target, rows)
    first, last = bounds(classes, mesh.size(i), mesh.get_coordinate()[i])
    # What each rank knows of a row; of the mesh's other dimensions the ranks have rows of their own.
    one = Spec(mesh, [Partial("max") if j == i else p for j, p in enumerate(rows)], target.shape)
    with no_grad():
        most = local.detach().amax(dim) if last > first else local.new_full(index.shape, float("-inf"))
        most = move_plainly(most, one, rows)
    parts = Spec(mesh, [Partial() if j == i else p for j, p in enumerate(rows)], target.shape)
    total = move((local - most.unsqueeze(dim)).exp().sum(dim), parts, rows)
    used = index != ignored
    if bool((used & ((index < 0) | (index >= classes))).any()):
        raise IndexError(f"cross_entropy: targets must be from 0 to {classes - 1} or {ignored}: got {index.min().item()} to {index.max().item()}")
    mine = used & (index >= first) & (index < last)
    if last > first:
        picked = local.gather(dim, (index - first).masked_fill(~mine, 0).unsqueeze(dim)).squeeze(dim)
        picked = where(mine, picked, picked.new_zeros(()))
    else:
        picked = local.sum(dim)
    loss = total.log() + most - move(picked, parts, rows)
    scale = used.to(loss.dtype)
    if weight is not None:
        table = replicated(weight) if isinstance(weight, DTensor) else weight
        if not isinstance(table, Tensor) or table.numel() != classes:
            raise RuntimeError(f"cross_entropy: expected a weight for each of {classes} classes: got {list(table.shape)}")
        scale = table.detach()[index.masked_fill(~used, 0)] * scale
    loss = where(used, loss * scale, loss.new_zeros(()))
    if reduction == "none":
        return wrap(loss, Spec(mesh, rows, target.shape))
    reduced = Spec(mesh, [Partial() if isinstance(p, Shard) else p for p in rows], ())
    loss = loss.sum()
    if reduction == "mean":
        loss = loss / move_plainly(scale.sum(), reduced, [Replicate()] * mesh.ndim)
    return wrap(loss, reduced)
