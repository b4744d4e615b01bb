"""The multinomial distribution."""

import tapegrad

from .. import constraints
from .._probs_or_logits import OfCategorical
from ..distribution import Distribution
from ..utils import broadcast_all
from .binomial import Binomial
from .categorical import Categorical

__all__ = ["Multinomial"]


class Multinomial(OfCategorical, Distribution):
    """How often each category came up in total_count (an int, for the whole batch) draws of Categorical(probs, logits)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _batched = ("_categorical", "_binomial")
    _kept = ("total_count",)

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        drawn = self._categorical.sample((self.total_count, *tapegrad.Size(sample_shape))).movedim(0, -1)
        counts = drawn.new_zeros(self._extended_shape(sample_shape))
        counts.scatter_add_(-1, drawn, tapegrad.ones_like(drawn))
        return counts.type_as(self.probs)

    def log_prob(self, value):
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        log_ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return log_ways + (value * logits.masked_fill((value == 0) & (logits == -float("inf")), 0)).sum(-1)

    def entropy(self):
        n = tapegrad.tensor(self.total_count)
        entropy = self._categorical.entropy()
        counts = self._binomial.enumerate_support(expand=False)[1:]
        expected = (self._binomial.log_prob(counts).exp() * (counts + 1).lgamma()).sum([0, -1])
        return n * entropy - (n + 1).lgamma() + expected
