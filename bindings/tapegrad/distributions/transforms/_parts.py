"""Transforms of parts of a tensor."""

import tapegrad

from .. import constraints
from ..utils import _sum_rightmost
from ._transform import Transform


class _Parts(Transform):
    """Transforms of parts of a tensor along `dim`."""

    def _fits(self, x) -> None:
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(f"{type(self).__name__}: dim {self.dim} is out of range for a tensor with {x.dim()} dimensions")
        if x.size(self.dim) != self._length():
            raise AssertionError(f"{type(self).__name__}: expected size {self._length()} along dim {self.dim}: got {x.size(self.dim)}")

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _call(self, x):
        self._fits(x)
        return self._join([t(part) for t, part in zip(self.transforms, self._parts(x))])

    def _inverse(self, y):
        self._fits(y)
        return self._join([t.inv(part) for t, part in zip(self.transforms, self._parts(y))])


class CatTransform(_Parts):
    """Each transform takes the next `lengths` (1 each) along `dim`."""
    _arguments = ("transforms", "dim", "lengths")

    def __init__(self, tseq, dim: int = 0, lengths=None, cache_size: int = 0):
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("CatTransform: All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"CatTransform: got {len(self.lengths)} lengths for {len(self.transforms)} transforms")
        self.dim = dim

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))

    def _length(self) -> int:
        return self.length

    def _parts(self, x):
        return x.split(self.lengths, self.dim)

    def _join(self, parts):
        return tapegrad.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        self._fits(x)
        self._fits(y)
        terms = []
        for t, part_x, part_y in zip(self.transforms, self._parts(x), self._parts(y)):
            term = t.log_abs_det_jacobian(part_x, part_y)
            terms.append(_sum_rightmost(term, self.event_dim - t.event_dim) if t.event_dim < self.event_dim else term)
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        if dim < 0:
            return tapegrad.cat(terms, dim)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    @constraints.dependent_property
    def domain(self):
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self):
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """Each transform takes one slice along `dim`."""
    _arguments = ("transforms", "dim")

    def __init__(self, tseq, dim: int = 0, cache_size: int = 0):
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("StackTransform: All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _length(self) -> int:
        return len(self.transforms)

    def _parts(self, x):
        return x.unbind(self.dim)

    def _join(self, parts):
        return tapegrad.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        self._fits(x)
        self._fits(y)
        return self._join([t.log_abs_det_jacobian(a, b) for t, a, b in zip(self.transforms, self._parts(x), self._parts(y))])

    @constraints.dependent_property
    def domain(self):
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self):
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
