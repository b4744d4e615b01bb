"""The uniform distribution."""

import tapegrad

from .. import constraints
from ..distribution import Distribution

__all__ = ["Uniform"]


class Uniform(Distribution):
    """Numbers in [low, high), all alike."""

    has_rsample = True

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}
    _batched = ("low", "high")

    def __init__(self, low, high, validate_args=None):
        super().__init__(self._set_parameters(low=low, high=high), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: self.high * float("nan"))
    stddev = property(lambda self: (self.high - self.low) / 12**0.5)
    variance = property(lambda self: (self.high - self.low).square() / 12)

    def rsample(self, sample_shape=()):
        u = tapegrad.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        value = self._checked(value)
        inside = (self.low.le(value) & self.high.gt(value)).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value):
        value = self._checked(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()
