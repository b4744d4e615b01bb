"""Gumbel's distribution."""

import math

import tapegrad

from .. import constraints
from ..interval.uniform import Uniform
from ..transformed_distribution import TransformedDistribution
from ..transforms import AffineTransform, ExpTransform
from ..utils import euler_constant, same_as

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """loc - scale log(-log(u)) for u uniform in (0, 1)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _batched = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        self._set_parameters(loc=loc, scale=scale)
        info = tapegrad.finfo(self.loc.dtype)
        low, high = tapegrad.full_like(self.loc.detach(), info.tiny), tapegrad.full_like(self.loc.detach(), 1 - info.eps)
        if self.loc.dim() == 0:
            low, high = info.tiny, 1 - info.eps
        base = Uniform(low, high, validate_args=validate_args)
        if not isinstance(low, tapegrad.Tensor) and self.loc.dtype != tapegrad.get_default_dtype():
            base.low, base.high = self.loc.new_tensor(low), self.loc.new_tensor(high)
        steps = [ExpTransform().inv, AffineTransform(0, -tapegrad.ones_like(self.scale)), ExpTransform().inv, AffineTransform(loc, -self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    def log_prob(self, value):
        value = self._checked(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    mean = property(lambda self: self.loc + self.scale * euler_constant)
    mode = same_as("loc")
    stddev = property(lambda self: (math.pi / math.sqrt(6)) * self.scale)
    variance = property(lambda self: self.stddev.pow(2))

    def entropy(self):
        return self.scale.log() + (1 + euler_constant)
