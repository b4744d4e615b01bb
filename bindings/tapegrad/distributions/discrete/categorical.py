"""The categorical distribution."""

import tapegrad

from .. import constraints
from .._probs_or_logits import CategoricalParameters
from ..distribution import Distribution
from ..utils import same_as

__all__ = ["Categorical"]


class Categorical(CategoricalParameters, Distribution):
    """Integers from 0 to K - 1, with probabilities along the last dimension (of size K) of `probs`, which need not be
    normalised, or of exp(`logits`). Exactly one of the two is given."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support, _batched = True, ("probs", "logits")
    _kept = ("_num_events",)

    def __init__(self, probs=None, logits=None, validate_args=None):
        ((name, given),) = self._given(probs, logits).items()
        if given.dim() < 1:
            raise ValueError(f"Categorical: `{name}` parameter must be at least one-dimensional.")
        setattr(self, name, given / given.sum(-1, keepdim=True) if name == "probs" else given - given.logsumexp(-1, keepdim=True))
        self._num_events = self._param.size(-1)
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self):
        return tapegrad.full(self._extended_shape(), float("nan"), dtype=self.probs.dtype, device=self.probs.device)

    variance = same_as("mean")
    mode = property(lambda self: self.probs.argmax(dim=-1))

    def sample(self, sample_shape=()):
        shape = tapegrad.Size(sample_shape)
        with tapegrad.no_grad():
            drawn = tapegrad.multinomial(self.probs.reshape(-1, self._num_events), shape.numel(), True) if shape.numel() else \
                tapegrad.empty((self._batch_shape.numel(), 0), dtype=tapegrad.int64)
        return drawn.t().reshape(self._extended_shape(shape))

    def log_prob(self, value):
        value = self._checked(value)
        value, logits = tapegrad.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        logits = self.logits.clamp(min=tapegrad.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True):
        return self._enumerated(tapegrad.arange(self._num_events, dtype=tapegrad.long, device=self._param.device), expand)
