"""Placements of a tensor along a dimension of a mesh: plain values, which models name while they are imported.

Cutting a tensor by them needs several processes; making, comparing, printing and asking them does not.
"""

import operator

__all__ = ["Partial", "Placement", "Replicate", "Shard", "_StridedShard"]


class Placement:
    """What the kinds of placement share: values that cannot be changed, equal where kind and fields are."""

    __slots__ = ()

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each rank holds a slice, along `dim` if one is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each rank holds the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the ranks' tensors are still to be reduced, with `reduce_op` if one is given."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)

    def _fields(self) -> tuple:
        return tuple(getattr(self, name) for name in type(self).__slots__)

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__}: placements cannot be changed: {name}={value!r}")

    def __eq__(self, other) -> bool:
        return type(self) is type(other) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._fields()))

    def __reduce__(self):
        return type(self), self._fields()


class Replicate(Placement):
    """The whole tensor on each rank."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


class Shard(Placement):
    """A slice of dimension `dim` on each rank."""

    __slots__ = ("dim",)

    def __init__(self, dim: int):
        object.__setattr__(self, "dim", operator.index(dim))

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


class _StridedShard(Placement):
    """Slices of dimension `dim` that later dimensions of the mesh have cut before, into `split_factor` slices: fully_shard over tensor parallel."""

    __slots__ = ("dim", "split_factor")

    def __init__(self, dim: int, split_factor: int = 1):
        object.__setattr__(self, "dim", operator.index(dim))
        object.__setattr__(self, "split_factor", operator.index(split_factor))

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


CUTS = (Shard, _StridedShard)  # placements of which each rank has a slice


class Partial(Placement):
    """On each rank a tensor of the whole shape; `reduce_op` over the ranks gives the tensor."""

    __slots__ = ("reduce_op",)

    def __init__(self, reduce_op: str | None = None):
        if reduce_op is not None and not isinstance(reduce_op, str):
            raise TypeError(f"Partial: reduce_op must be a str: got {type(reduce_op).__name__}")
        object.__setattr__(self, "reduce_op", "sum" if reduce_op is None else reduce_op)

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
