"""Cauchy's distribution."""

import math

from ._location_scale import LocationScale

__all__ = ["Cauchy"]


class Cauchy(LocationScale):
    """Density 1 / (pi scale (1 + ((x - loc) / scale)^2)); it has neither mean (nan) nor variance (inf)."""

    _batched = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(self._set_parameters(loc=loc, scale=scale), validate_args=validate_args)

    mean = property(lambda self: self.loc.new_full(self._extended_shape(), float("nan")))
    variance = property(lambda self: self.loc.new_full(self._extended_shape(), float("inf")))

    def rsample(self, sample_shape=()):
        return self.loc + self.loc.detach().new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value):
        value = self._checked(value)
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).square().log1p()

    def cdf(self, value):
        value = self._checked(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value):
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()
