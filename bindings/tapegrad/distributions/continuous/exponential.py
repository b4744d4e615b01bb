"""The exponential distribution."""

from .. import constraints
from ..exp_family import ExponentialFamily

__all__ = ["Exponential"]


class Exponential(ExponentialFamily):
    """Density rate exp(-rate x) for x >= 0."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample, _mean_carrier_measure = True, 0
    _batched = ("rate",)

    def __init__(self, rate, validate_args=None):
        super().__init__(self._set_parameters(rate=rate), validate_args=validate_args)

    mean = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: self.rate * 0)
    stddev = property(lambda self: self.rate.reciprocal())
    variance = property(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape=()):
        return self.rate.detach().new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value):
        value = self._checked(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        value = self._checked(value)
        return 1 - (-self.rate * value).exp()

    def icdf(self, value):
        return -(-value).log1p() / self.rate

    def entropy(self):
        return 1 - self.rate.log()

    _natural_params = property(lambda self: (-self.rate,))

    def _log_normalizer(self, x):
        return -(-x).log()
