"""Mixtures of distributions of one family."""

import tapegrad

from . import constraints
from .constraints import MixtureSameFamilyConstraint
from .discrete.categorical import Categorical
from .distribution import Distribution
from .utils import same_as

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A value of the component, the last dimension of component_distribution's batch, that mixture_distribution (a
    Categorical) draws."""

    arg_constraints = {}
    has_rsample = False
    _batched = ("_component_distribution",)
    _kept = ("_num_component", "_event_ndims")

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("MixtureSameFamily: The Mixture distribution needs to be an instance of tapegrad.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("MixtureSameFamily: The Component distribution need to be an instance of tapegrad.distributions.Distribution")
        mixture, components = mixture_distribution.batch_shape, component_distribution.batch_shape
        for size1, size2 in zip(reversed(mixture), reversed(components[:-1])):
            if size1 != 1 and size2 != 1 and size1 != size2:
                raise ValueError(f"`mixture_distribution.batch_shape` ({mixture}) is not compatible with "
                                 f"`component_distribution.batch_shape` ({components})")
        count = mixture_distribution.logits.shape[-1]
        if count != components[-1]:
            raise ValueError(f"`mixture_distribution component` ({count}) does not equal `component_distribution.batch_shape[-1]` ({components[-1]})")
        self._num_component = count
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(components[:-1], event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._mixture_distribution = self._mixture_distribution.expand(new.batch_shape)  # which had dimensions of its own, maybe fewer
        return new

    @constraints.dependent_property
    def support(self):
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = same_as("_mixture_distribution")
    component_distribution = same_as("_component_distribution")

    def _weights(self):
        probs = self._mixture_distribution.probs
        return probs.reshape(probs.shape + (1,) * self._event_ndims)

    mean = property(lambda self: (self._weights() * self._component_distribution.mean).sum(-1 - self._event_ndims))

    @property
    def variance(self):
        # The mean of the variances and the variance of the means.
        weights, dim = self._weights(), -1 - self._event_ndims
        inside = (weights * self._component_distribution.variance).sum(dim)
        between = (weights * (self._component_distribution.mean - self.mean.unsqueeze(dim)).square()).sum(dim)
        return inside + between

    def cdf(self, x):
        cdf = self._component_distribution.cdf(x.unsqueeze(-1 - self._event_ndims))
        return (cdf * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        x = self._checked(x)
        log_prob = self._component_distribution.log_prob(x.unsqueeze(-1 - self._event_ndims))
        return (log_prob + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape=()):
        with tapegrad.no_grad():
            which = self._mixture_distribution.sample(sample_shape)
            values = self._component_distribution.sample(sample_shape)
            dim = values.dim() - 1 - self._event_ndims
            at = which.reshape(which.shape + (1,) * (self._event_ndims + 1))
            at = at.expand(values.shape[:dim] + (1,) + tuple(self.event_shape))
            return values.gather(dim, at).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
