"""The categorical distribution over one-hot vectors."""

import tapegrad

from .. import constraints
from .._probs_or_logits import OfCategorical
from ..distribution import Distribution
from ..utils import same_as
from .categorical import Categorical

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(OfCategorical, Distribution):
    """Vectors of size K with a 1 at the place that Categorical(probs, logits) draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support, _batched = True, ("_categorical",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    _param = same_as("_categorical._param")
    mean = same_as("probs")

    @property
    def mode(self):
        return tapegrad.nn.functional.one_hot(self.probs.argmax(-1), self.event_shape[0]).to(self.probs)

    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        return tapegrad.nn.functional.one_hot(self._categorical.sample(sample_shape), self.event_shape[0]).to(self.probs)

    def log_prob(self, value):
        value = self._checked(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True):
        n = self.event_shape[0]
        values = tapegrad.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose samples carry the gradient of the probabilities (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        samples, probs = self.sample(sample_shape), self.probs
        return samples + (probs - probs.detach())
