"""Norms of tensors that are distributed over ranks: each part counts once, however many ranks have it."""

import functools
import math

from ... import as_tensor, float32, float64, no_grad, promote_types, tensor
from ...linalg import vector_norm
from .. import distributed_c10d as c10d
from .._placements import CUTS, Partial, Replicate
from ._dtensor import local_of

__all__ = ["largest_over", "total_norm"]


def total_norm(tensors: list, norm_type: float):
    """The norm of all tensors taken as one vector, a plain number on each rank; every rank of their meshes must call it.

    Raises ValueError for norms that parts do not add up to: of order 0 and of -infinity, and of other orders below 0.
    """
    if norm_type < 0 or norm_type == 0:
        raise ValueError(f"the norm of order {norm_type} of tensors that several processes hold is not supported: expected one above 0")
    groups: dict = {}  # tensors that the same ranks share are added up together
    dtypes: dict = {}
    with no_grad():
        for t in tensors:
            spec = t._spec
            if any(isinstance(p, Partial) for p in spec.placements):
                t = t.redistribute(placements=[Replicate() if isinstance(p, Partial) else p for p in spec.placements])
            cut = tuple(i for i, p in enumerate(spec.placements) if isinstance(p, CUTS))
            part = local_of(t).detach()
            dtypes[part.dtype] = None
            groups.setdefault((spec.mesh, cut), []).append(part)
        totals = [_of_parts(mesh, cut, parts, norm_type) for (mesh, cut), parts in groups.items()]
        dtype = functools.reduce(promote_types, dtypes)
        total = max(totals, key=lambda x: math.inf if math.isnan(x) else x) if norm_type == math.inf else sum(totals) ** (1.0 / norm_type)
        return tensor(total, dtype=float64).to(dtype if dtype.is_floating_point else float32).to(tensors[0].device)


def _of_parts(mesh, cut: tuple, parts: list, norm_type: float) -> float:
    parts = [p for p in parts if p.numel()]
    if norm_type == math.inf:
        mine = [float(p.abs().max()) for p in parts]
        # A maximum of numbers over ranks may pass over NaN: it goes as infinity's own mark.
        value = as_tensor([max(mine, default=0.0) if not any(map(math.isnan, mine)) else 0.0, float(any(map(math.isnan, mine)))], dtype=float64)
        op = c10d.ReduceOp.MAX
    else:
        value = as_tensor([sum(float(vector_norm(p, norm_type, dtype=promote_types(p.dtype, float32))) ** norm_type for p in parts), 0.0],
                          dtype=float64)
        op = c10d.ReduceOp.SUM
    for i in cut:
        if mesh.size(i) > 1:
            c10d.all_reduce(value, op, group=mesh.get_group(i))
    found, is_nan = value.tolist()
    return math.nan if is_nan else found


def largest_over(meshes, value) -> None:
    """A plain tensor becomes, in place, the largest of all ranks of some meshes; every one of these must call it."""
    for mesh in meshes:
        for i in range(mesh.ndim):
            if mesh.size(i) > 1:
                c10d.all_reduce(value, c10d.ReduceOp.MAX, group=mesh.get_group(i))
