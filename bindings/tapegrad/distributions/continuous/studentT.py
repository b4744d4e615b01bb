"""Student's t distribution."""

import math

import tapegrad

from .. import constraints
from ..distribution import Distribution
from ..utils import _standard_normal, same_as
from .chi2 import Chi2

__all__ = ["StudentT"]


class StudentT(Distribution):
    """loc + scale * a standard normal number divided by the root of a Chi2(df) number over df."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample, _batched = True, ("df", "loc", "scale", "_chi2")

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        batch_shape = self._set_parameters(df=df, loc=loc, scale=scale)
        self._chi2 = Chi2(self.df)
        super().__init__(batch_shape, validate_args=validate_args)

    mean = property(lambda self: self.loc.masked_fill(self.df <= 1, float("nan")))
    mode = same_as("loc")

    @property
    def variance(self):
        finite = self.scale.square() * self.df / (self.df - 2)
        some = tapegrad.where(self.df > 2, finite, float("inf"))
        return some.masked_fill(self.df <= 1, float("nan"))

    def rsample(self, sample_shape=()):
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * x * (z / self.df).rsqrt()

    def log_prob(self, value):
        value = self._checked(value)
        y = (value - self.loc) / self.scale
        norm = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + (0.5 * self.df).lgamma() - (0.5 * (self.df + 1)).lgamma()
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - norm

    def entropy(self):
        half = 0.5 * self.df
        log_beta = half.lgamma() + math.lgamma(0.5) - (0.5 + half).lgamma()
        return self.scale.log() + 0.5 * (self.df + 1) * ((0.5 * (self.df + 1)).digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta
