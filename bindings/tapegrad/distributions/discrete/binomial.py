"""The binomial distribution."""

import tapegrad

from .. import constraints
from .._probs_or_logits import BinaryParameters
from ..distribution import Distribution

__all__ = ["Binomial"]


def _log1p_exp(x):
    """log(1 + exp(x)) without overflow, and with the gradient 1/2 at 0, which clamp and abs do not have."""
    return -tapegrad.nn.functional.logsigmoid(-x)


class Binomial(BinaryParameters, Distribution):
    """The number of successes in total_count trials, each with probability probs = sigmoid(logits)."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real}
    has_enumerate_support, _batched = True, ("total_count", "probs", "logits")

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        super().__init__(self._set_counted(total_count, probs, logits), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with tapegrad.no_grad():
            return tapegrad.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        value = self._checked(value)
        n = self.total_count
        choose = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return choose + value * self.logits - n * _log1p_exp(self.logits)

    def entropy(self):
        n = int(self.total_count.max())
        if not self.total_count.min() == n:
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True):
        n = int(self.total_count.max())
        if not self.total_count.min() == n:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return self._enumerated(tapegrad.arange(1 + n, dtype=self._param.dtype, device=self._param.device), expand)
