"""The layout of a tensor on a mesh: its placements, its whole shape, and which part of it a rank has."""

from __future__ import annotations

from ... import Size
from .._placements import CUTS, Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["Spec", "bounds", "compute_local_shape_and_global_offset", "contiguous_stride", "cut_order", "normalized", "settled"]


def bounds(n: int, size: int, index: int) -> tuple[int, int]:
    """First and last row (exclusive) of part `index` of `n` rows among `size`, as torch.chunk cuts them; late parts may be empty."""
    step = -(-n // size)
    return min(index * step, n), min((index + 1) * step, n)


def normalized(placements, mesh, dims: int, who: str) -> tuple:
    """The placements with dimensions counted from the front, one for each dimension of the mesh.

    Raises ValueError for another number of placements or mixed reductions, IndexError for a dimension that is not there.
    """
    if placements is None:
        placements = [Replicate()] * mesh.ndim
    placements = list(placements)
    if len(placements) != mesh.ndim:
        raise ValueError(f"{who}: `placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(placements)}, "
                         f"and device_mesh.ndim: {mesh.ndim}.")
    reductions = {p.reduce_op for p in placements if isinstance(p, Partial)}
    if len(reductions) > 1 and not reductions <= {"sum", "avg"}:
        raise ValueError(f"{who}: Mixing different Partial reduce types is not supported: got {placements}")
    for i, p in enumerate(placements):
        if not isinstance(p, Placement):
            raise TypeError(f"{who}: expected placements: got {type(p).__name__}")
        if isinstance(p, CUTS):
            if not -dims <= p.dim < dims:
                raise IndexError(f"{who}: {p!r} of a tensor of {dims} dimensions")
            d, *factor = p._fields()
            placements[i] = Shard(d % dims) if factor in ([], [1]) else _StridedShard(d % dims, *factor)
    for p, q in zip(placements, settled(placements, mesh), strict=True):
        if p != q:
            raise NotImplementedError(f"{who}: {p!r} is not supported where the later dimensions of {mesh} make it {q!r}")
    return tuple(placements)


def settled(placements, mesh) -> tuple:
    """The placements with the number of slices that each _StridedShard is inside of: Shard where that is one."""
    result = list(placements)
    for i, p in enumerate(result):
        if isinstance(p, _StridedShard):
            factor = 1
            for j in range(i + 1, len(result)):
                factor *= mesh.size(j) if isinstance(result[j], CUTS) and result[j].dim == p.dim else 1
            result[i] = _StridedShard(p.dim, factor) if factor > 1 else Shard(p.dim)
    return tuple(result)


def cut_order(placements) -> list:
    """The dimensions of the mesh in the order in which they cut: from the first on, those of a _StridedShard after all others, from the last on."""
    late = [i for i, p in enumerate(placements) if isinstance(p, _StridedShard)]
    return [i for i in range(len(placements)) if i not in late] + late[::-1]


def contiguous_stride(shape) -> tuple:
    """Strides of a tensor of a shape that lies without gaps, row by row."""
    result, step = [], 1
    for n in reversed(shape):
        result.append(step)
        step *= max(n, 1)
    return tuple(reversed(result))


class Spec:
    """A mesh, a placement for each of its dimensions, and the shape of the whole tensor."""

    __slots__ = ("mesh", "placements", "shape")

    def __init__(self, mesh, placements: tuple, shape):
        self.mesh, self.placements, self.shape = mesh, tuple(placements), Size(shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def with_placements(self, placements) -> Spec:
        """The same tensor, lying otherwise."""
        return Spec(self.mesh, placements, self.shape)

    def local_shape(self) -> tuple:
        """The shape of this rank's part."""
        return local_shape_and_offset(self.shape, self.mesh, self.placements)[0]

    def __repr__(self) -> str:
        return f"Spec({tuple(self.shape)}, {self.mesh}, {self.placements})"

    def __deepcopy__(self, memo) -> Spec:
        return self  # nothing of it changes, and a mesh's groups cannot be copied


def local_shape_and_offset(shape, mesh, placements) -> tuple[tuple, tuple]:
    """Shape and place of this rank's part; a rank that is not in the mesh has none of it."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    local, offset = list(shape), [0] * len(shape)
    for i in cut_order(placements):
        p = placements[i]
        if isinstance(p, CUTS):
            first, last = bounds(local[p.dim], mesh.size(i), coordinate[i])
            offset[p.dim] = offset[p.dim] + first if last > first else shape[p.dim]
            local[p.dim] = last - first
    return tuple(local), tuple(offset)


def compute_local_shape_and_global_offset(global_shape, mesh, placements) -> tuple[tuple, tuple]:
    """The shape of this rank's part of a tensor, and where in the whole it begins.

    An empty part begins at the end of the dimension that is cut. Raises ValueError, IndexError where placements do not fit.
    """
    shape = tuple(global_shape)
    return local_shape_and_offset(shape, mesh, normalized(placements, mesh, len(shape), "compute_local_shape_and_global_offset"))
