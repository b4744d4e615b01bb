"""The geometric distribution."""

import tapegrad

from .. import constraints
from .._probs_or_logits import BinaryParameters
from ..distribution import Distribution
from ..utils import broadcast_all, open_uniform

__all__ = ["Geometric"]


class Geometric(BinaryParameters, Distribution):
    """The number of failures before the first success: k = 0, 1, ... with probability probs (1 - probs)^k."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _batched = ("probs", "logits")

    def __init__(self, probs=None, logits=None, validate_args=None):
        super().__init__(self._set_outcome(probs, logits), validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(f"Geometric: Expected parameter probs of distribution {self!r} to be positive but found invalid values:\n{self.probs}")

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: tapegrad.zeros_like(self.probs))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape=()):
        with tapegrad.no_grad():
            u = open_uniform(self._extended_shape(sample_shape), self.probs)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        value = self._checked(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.masked_fill((probs == 1) & (value == 0), 0)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return tapegrad.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
