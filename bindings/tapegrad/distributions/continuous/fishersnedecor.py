"""The F distribution of Fisher and Snedecor."""

from .. import constraints
from ..distribution import Distribution
from ..utils import clamp_tiny
from .gamma import Gamma

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The quotient of two chi-squared numbers of df1 and df2, each divided by its df."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample, _batched = True, ("df1", "df2", "_gamma1", "_gamma2")

    def __init__(self, df1, df2, validate_args=None):
        batch_shape = self._set_parameters(df1=df1, df2=df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(batch_shape, validate_args=validate_args)

    mean = property(lambda self: (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, float("nan")))

    @property
    def mode(self):
        return ((self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)).masked_fill(self.df1 <= 2, float("nan"))

    @property
    def variance(self):
        finite = 2 * self.df2.square() * (self.df1 + self.df2 - 2) / (self.df1 * (self.df2 - 2).square() * (self.df2 - 4))
        return finite.masked_fill(self.df2 <= 4, float("nan"))

    def rsample(self, sample_shape=()):
        return clamp_tiny(self._gamma1.rsample(sample_shape) / clamp_tiny(self._gamma2.rsample(sample_shape)))

    def log_prob(self, value):
        value = self._checked(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - log_beta
