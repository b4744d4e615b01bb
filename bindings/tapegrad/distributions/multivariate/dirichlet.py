"""The Dirichlet distribution."""

import tapegrad

from .. import constraints
from ..exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


def _Dirichlet_backward(x, concentration, grad_output):  # noqa: N802  PyTorch's name
    """The gradient of a sample x with respect to the concentration."""
    grad = tapegrad._dirichlet_grad(x, concentration, concentration.sum(-1, True).expand_as(concentration))
    return grad * (grad_output - (x * grad_output).sum(-1, True))


class Dirichlet(ExponentialFamily):
    """Points of the simplex with density proportional to the product of x_k^(concentration_k - 1); k goes along the last
    dimension."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample, _batched = True, ("concentration",)

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("Dirichlet: `concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, keepdim=True))

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        flat = (self.concentration < 1).all(dim=-1)  # the density has its peaks in the corners: the first one stands for them
        corner = tapegrad.zeros_like(mode)
        corner[..., 0] = 1
        return tapegrad.where(flat.unsqueeze(-1), corner, mode)

    @property
    def variance(self):
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape=()):
        return tapegrad._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        value = self._checked(value)
        a = self.concentration
        return tapegrad.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        a = self.concentration
        n, total = a.size(-1), a.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (n - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)

    _natural_params = property(lambda self: (self.concentration,))

    def _log_normalizer(self, x):
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
