"""The normal distribution."""

import math

import tapegrad

from ..exp_family import ExponentialFamily
from ..utils import _standard_normal, same_as
from ._location_scale import LocationScale

__all__ = ["Normal"]


class Normal(LocationScale, ExponentialFamily):
    """Density exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi)). loc and scale: numbers or tensors that broadcast."""

    _mean_carrier_measure = 0
    mean = same_as("loc")
    stddev = same_as("scale")
    _batched = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(self._set_parameters(loc=loc, scale=scale), validate_args=validate_args)

    variance = property(lambda self: self.scale.square())

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with tapegrad.no_grad():
            return tapegrad.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape=()):
        return self.loc + _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device) * self.scale

    def log_prob(self, value):
        value = self._checked(value)
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value):
        value = self._checked(value)
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    _natural_params = property(lambda self: (self.loc / self.scale.square(), -0.5 * self.scale.square().reciprocal()))

    def _log_normalizer(self, x, y):
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()


class OfNormal:
    """What distributions of transformed normal numbers have of Normal."""

    arg_constraints = Normal.arg_constraints
    has_rsample = True
