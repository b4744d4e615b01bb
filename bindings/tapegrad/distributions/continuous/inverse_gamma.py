"""The inverse gamma distribution: 1 / X of a gamma variable X."""

import tapegrad

from .. import constraints
from ..transformed_distribution import TransformedDistribution
from ..transforms import PowerTransform
from ..utils import same_as
from .gamma import Gamma

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """1 / x for x of Gamma(concentration, rate)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample, _batched = True, ()

    def __init__(self, concentration, rate, validate_args=None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(base.rate.new_tensor(-1)), validate_args=validate_args)

    concentration = same_as("base_dist.concentration")
    rate = same_as("base_dist.rate")

    @property
    def mean(self):
        finite = self.rate / (self.concentration - 1)
        return tapegrad.where(self.concentration > 1, finite, float("inf"))

    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def variance(self):
        finite = self.rate.square() / ((self.concentration - 1).square() * (self.concentration - 2))
        return tapegrad.where(self.concentration > 2, finite, float("inf"))

    def entropy(self):
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
