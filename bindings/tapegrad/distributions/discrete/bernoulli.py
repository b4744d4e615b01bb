"""The Bernoulli distribution."""

import tapegrad

from .. import constraints
from .._probs_or_logits import BinaryParameters
from ..exp_family import ExponentialFamily
from ..utils import same_as

__all__ = ["Bernoulli"]


class Bernoulli(BinaryParameters, ExponentialFamily):
    """1 with probability probs = sigmoid(logits), else 0. Exactly one of the two is given."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0
    _batched = ("probs", "logits")

    def __init__(self, probs=None, logits=None, validate_args=None):
        super().__init__(self._set_outcome(probs, logits), validate_args=validate_args)

    mean = same_as("probs")
    mode = property(lambda self: (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, float("nan")))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        with tapegrad.no_grad():
            return tapegrad.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        value = self._checked(value)
        logits, value = tapegrad.broadcast_tensors(self.logits, value)
        return -tapegrad.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        return tapegrad.nn.functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True):
        return self._enumerated(tapegrad.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    _natural_params = property(lambda self: (tapegrad.logit(self.probs),))

    def _log_normalizer(self, x):
        return x.exp().log1p()
