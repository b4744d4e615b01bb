"""The gamma distribution."""

import tapegrad

from .. import constraints
from ..exp_family import ExponentialFamily
from ..utils import clamp_tiny

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """Density rate^a x^(a - 1) exp(-rate x) / Gamma(a), a = concentration. Samples are differentiable in both parameters
    (Figurnov et al., 2018)."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample, _mean_carrier_measure = True, 0
    _batched = ("concentration", "rate")

    def __init__(self, concentration, rate, validate_args=None):
        super().__init__(self._set_parameters(concentration=concentration, rate=rate), validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.square())

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        return clamp_tiny(tapegrad._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape))

    def log_prob(self, value):
        value = tapegrad.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        value = self._checked(value)
        return (tapegrad.xlogy(self.concentration, self.rate) + tapegrad.xlogy(self.concentration - 1, value) - self.rate * value
                - self.concentration.lgamma())

    def cdf(self, value):
        value = self._checked(value)
        return tapegrad.special.gammainc(self.concentration, self.rate * value)

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    _natural_params = property(lambda self: (self.concentration - 1, -self.rate))

    def _log_normalizer(self, x, y):
        return (x + 1).lgamma() + (x + 1) * (-y.reciprocal()).log()
