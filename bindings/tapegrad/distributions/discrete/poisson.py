"""The Poisson distribution."""

import tapegrad

from .. import constraints
from ..exp_family import ExponentialFamily
from ..utils import broadcast_all, same_as

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """k = 0, 1, ... with probability rate^k exp(-rate) / k!."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _batched = ("rate",)

    def __init__(self, rate, validate_args=None):
        super().__init__(self._set_parameters(rate=rate), validate_args=validate_args)

    mean = same_as("rate")
    mode = property(lambda self: self.rate.floor())
    variance = same_as("rate")

    def sample(self, sample_shape=()):
        with tapegrad.no_grad():
            return tapegrad.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        value = self._checked(value)
        rate, value = broadcast_all(self.rate, value)
        return tapegrad.xlogy(value, rate) - rate - (value + 1).lgamma()

    _natural_params = property(lambda self: (self.rate.log(),))

    def _log_normalizer(self, x):
        return x.exp()
