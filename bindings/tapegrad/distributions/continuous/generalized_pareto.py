"""The generalised Pareto distribution."""

import tapegrad

from .. import constraints
from ..distribution import Distribution
from ..utils import same_as

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Tails beyond loc: 1 - (1 + concentration (x - loc) / scale)^(-1 / concentration), and the exponential distribution's
    where the concentration is zero."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample, _batched = True, ("loc", "scale", "concentration")

    def __init__(self, loc, scale, concentration, validate_args=None):
        super().__init__(self._set_parameters(loc=loc, scale=scale, concentration=concentration), validate_args=validate_args)

    def _flat(self):
        """Where the concentration counts as zero, and the concentration with 1 there."""
        flat = tapegrad.isclose(self.concentration, tapegrad.zeros_like(self.concentration))
        return flat, self.concentration.masked_fill(flat, 1)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        flat, k = self._flat()
        upper = tapegrad.where((k < 0) & ~flat, self.loc - self.scale / k, float("inf"))
        return constraints.interval(self.loc, upper)

    def rsample(self, sample_shape=()):
        u = tapegrad.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u)

    def log_prob(self, value):
        value = self._checked(value)
        z = (value - self.loc) / self.scale
        flat, k = self._flat()
        inside = tapegrad.where(flat, -z, -(1 + 1 / k) * (k * z).log1p())
        return inside - self.scale.log()

    def log_survival_function(self, value):
        """log(1 - cdf)."""
        value = self._checked(value)
        z = (value - self.loc) / self.scale
        flat, k = self._flat()
        return tapegrad.where(flat, -z, -(k * z).log1p() / k)

    def log_cdf(self, value):
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value):
        return self.log_cdf(value).exp()

    def icdf(self, value):
        flat, k = self._flat()
        rest = (-value).log1p()
        return self.loc + self.scale * tapegrad.where(flat, -rest, (-k * rest).expm1() / k)

    @property
    def mean(self):
        return tapegrad.where(self.concentration < 1, self.loc + self.scale / (1 - self.concentration), float("nan"))

    @property
    def variance(self):
        k = self.concentration
        finite = self.scale.square() / ((1 - k).square() * (1 - 2 * k))
        return tapegrad.where(k < 0.5, finite, float("nan"))

    def entropy(self):
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)

    mode = same_as("loc")
