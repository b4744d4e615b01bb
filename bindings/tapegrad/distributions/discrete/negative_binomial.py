"""The negative binomial distribution."""

import tapegrad

from .. import constraints
from .._probs_or_logits import BinaryParameters
from ..continuous.gamma import Gamma
from ..distribution import Distribution
from ..utils import lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryParameters, Distribution):
    """The number of successes, each of probability probs = sigmoid(logits), before total_count (> 0, not only whole)
    failures."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer
    _batched = ("total_count", "probs", "logits")

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        super().__init__(self._set_counted(total_count, probs, logits), validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    @lazy_property
    def _gamma(self):
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape=()):
        with tapegrad.no_grad():
            return tapegrad.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value):
        value = self._checked(value)
        n = self.total_count
        unnormalized = n * tapegrad.nn.functional.logsigmoid(-self.logits) + value * tapegrad.nn.functional.logsigmoid(self.logits)
        choose = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        return unnormalized + choose.masked_fill(n + value == 0, 0)
