"""The half-Cauchy distribution: |X| of a Cauchy variable X."""

import math

import tapegrad

from ..utils import same_as
from ._folded import Folded
from .cauchy import Cauchy

__all__ = ["HalfCauchy"]


class HalfCauchy(Folded):
    """|x| for x of Cauchy(0, scale)."""
    _batched = ()

    def __init__(self, scale, validate_args=None):
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args=validate_args)

    mean = property(lambda self: self.scale.new_full(self._extended_shape(), math.inf))
    variance = same_as("base_dist.variance")

    def _log_prob(self, value):
        return super()._log_prob(tapegrad.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device))
