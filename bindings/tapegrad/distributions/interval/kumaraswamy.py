"""Kumaraswamy's distribution."""

import tapegrad

from .. import constraints
from ..transformed_distribution import TransformedDistribution
from ..transforms import AffineTransform, PowerTransform
from ..utils import euler_constant
from .uniform import Uniform

__all__ = ["Kumaraswamy"]


def _moment(a, b, n: int):
    """The mean of x^n: b B(1 + n / a, b)."""
    first = 1 + n / a
    return (first.lgamma() + b.lgamma() - (first + b).lgamma()).exp() * b


class Kumaraswamy(TransformedDistribution):
    """Density a b x^(a - 1) (1 - x^a)^(b - 1) on [0, 1], a = concentration1, b = concentration0."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample, _batched = True, ("concentration1", "concentration0")

    def __init__(self, concentration1, concentration0, validate_args=None):
        self._set_parameters(concentration1=concentration1, concentration0=concentration0)
        base = Uniform(tapegrad.full_like(self.concentration0, 0), tapegrad.full_like(self.concentration0, 1), validate_args=validate_args)
        steps = [PowerTransform(exponent=self.concentration0.reciprocal()), AffineTransform(loc=1.0, scale=-1.0),
                 PowerTransform(exponent=self.concentration1.reciprocal())]
        super().__init__(base, steps, validate_args=validate_args)

    mean = property(lambda self: _moment(self.concentration1, self.concentration0, 1))

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        log_mode = ((a - 1) / (a * b - 1)).log() / a
        return log_mode.exp().masked_fill((a < 1) | (b < 1), float("nan"))

    variance = property(lambda self: _moment(self.concentration1, self.concentration0, 2) - self.mean.pow(2))

    def entropy(self):
        ra, rb = self.concentration1.reciprocal(), self.concentration0.reciprocal()
        harmonic = (self.concentration0 + 1).digamma() + euler_constant
        return (1 - rb) + (1 - ra) * harmonic + ra.log() + rb.log()
