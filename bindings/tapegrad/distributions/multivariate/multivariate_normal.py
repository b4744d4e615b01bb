"""The multivariate normal distribution."""

import math

import tapegrad

from .. import constraints
from ..distribution import Distribution
from ..utils import _standard_normal, same_as
from ._covariance import ByScaleTril, _batch_mv, _precision_to_scale_tril  # noqa: F401  PyTorch has it here, too

__all__ = ["MultivariateNormal"]


def _batch_mahalanobis(factor, x):
    """x^T (L L^T)^-1 x per vector; the batch dimensions of L broadcast to those of x."""
    shape = tapegrad.broadcast_shapes(factor.shape[:-2], x.shape[:-1])
    x = x.expand((*shape, x.shape[-1]))
    # As one triangular system per matrix: vectors that share a matrix are its columns.
    extra = len(shape) - (factor.dim() - 2)
    shared = all(s == t for s, t in zip(shape[extra:], factor.shape[:-2]))
    if extra and shared:
        columns = x.reshape((-1,) + tuple(x.shape[extra:])).movedim(0, -1)
        solved = tapegrad.linalg.solve_triangular(factor, columns, upper=False)
        return solved.square().sum(-2).movedim(-1, 0).reshape(shape)
    return tapegrad.linalg.solve_triangular(factor, x.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


class MultivariateNormal(ByScaleTril, Distribution):
    """Vectors of mean loc, and one of: covariance_matrix, precision_matrix (its inverse), scale_tril (its lower Cholesky
    factor)."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample, _batched = True, ("loc", "covariance_matrix", "precision_matrix", "scale_tril")
    _kept = ("_unbroadcasted_scale_tril",)

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("MultivariateNormal: loc must be at least one-dimensional.")
        name, matrix = self._given_matrix(ValueError, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril)
        batch_shape = tapegrad.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._set_factor(name, matrix)

    mean = same_as("loc")
    mode = same_as("loc")

    @property
    def variance(self):
        return self._unbroadcasted_scale_tril.square().sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape=()):
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value):
        value = self._checked(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self):
        entropy = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return entropy.expand(self._batch_shape)
