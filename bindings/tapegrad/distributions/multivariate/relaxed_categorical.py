"""Continuous relaxations of one-hot vectors (Maddison et al., 2017; Jang et al., 2017)."""

import tapegrad

from .. import constraints
from .._probs_or_logits import OfCategorical
from ..discrete.categorical import Categorical
from ..distribution import Distribution
from ..transformed_distribution import TransformedDistribution
from ..transforms import ExpTransform
from ..utils import broadcast_all, clamp_probs, same_as

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OfCategorical, Distribution):
    """The logarithms of RelaxedOneHotCategorical's values."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample, _batched = True, ("_categorical",)
    _kept = ("temperature",)

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape=()):
        u = clamp_probs(tapegrad.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype, device=self.logits.device))
        return ((self.logits - (-u.log()).log()) / self.temperature).log_softmax(-1)

    def log_prob(self, value):
        n = self._categorical._num_events
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        log_scale = tapegrad.full_like(self.temperature, float(n)).lgamma() + (n - 1) * self.temperature.log()
        return (logits - value * self.temperature).log_softmax(-1).sum(-1) + log_scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of the simplex that tend to OneHotCategorical's as the temperature (a tensor) goes to zero."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample, _batched = True, ()

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    temperature = same_as("base_dist.temperature")
    logits = same_as("base_dist.logits")
    probs = same_as("base_dist.probs")
