"""The base of distributions of absolute values of variables symmetric about zero."""

import math

import tapegrad

from .. import constraints
from ..transformed_distribution import TransformedDistribution
from ..transforms import AbsTransform
from ..utils import same_as

__all__ = ["Folded"]


class Folded(TransformedDistribution):
    """|x| for x of a distribution that is symmetric around zero and has a scale."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, base, validate_args=None):
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    scale = same_as("base_dist.scale")
    mode = property(lambda self: tapegrad.zeros_like(self.scale))

    def log_prob(self, value):
        return self._log_prob(self._checked(value))

    def _log_prob(self, value):
        return tapegrad.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -float("inf"))

    def cdf(self, value):
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)
