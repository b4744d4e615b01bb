"""Weibull's distribution."""

import tapegrad

from .. import constraints
from ..transformed_distribution import TransformedDistribution
from ..transforms import AffineTransform, PowerTransform
from ..utils import euler_constant
from .exponential import Exponential

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """scale x^(1 / concentration) for x of Exponential(1)."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _batched = ("scale", "concentration", "base_dist")

    def __init__(self, scale, concentration, validate_args=None):
        self._set_parameters(scale=scale, concentration=concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(tapegrad.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._steps(), validate_args=validate_args)

    def _steps(self):
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape, _instance=None):
        new = super(TransformedDistribution, self).expand(batch_shape, _instance)  # the transforms are new ones
        new.concentration_reciprocal = new.concentration.reciprocal()
        new.transforms = new._steps()
        return new

    mean = property(lambda self: self.scale * (1 + self.concentration_reciprocal).lgamma().exp())

    @property
    def mode(self):
        k = self.concentration
        return self.scale * ((k - 1) / k) ** self.concentration_reciprocal

    @property
    def variance(self):
        r = self.concentration_reciprocal
        return self.scale.pow(2) * ((1 + 2 * r).lgamma().exp() - (2 * (1 + r).lgamma()).exp())

    def entropy(self):
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + (self.scale * r).log() + 1
