"""The normal distribution of vectors."""

from __future__ import annotations

import math

import tapegrad

from . import constraints
from ._scale_tril import ByScaleTril
from .distribution import Distribution
from .utils import _standard_normal

__all__ = ["MultivariateNormal"]


def _batch_mv(matrix, vector):
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


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


def _precision_to_scale_tril(precision):
    """The lower factor of the inverse of a matrix: P = L L^T turned over both diagonals gives it without inverting P."""
    turned = tapegrad.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    identity = tapegrad.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return tapegrad.linalg.solve_triangular(turned, identity.expand(turned.shape), upper=False)


class MultivariateNormal(ByScaleTril, Distribution):
    """Vectors of mean loc, and one of: covariance_matrix, precision_matrix (its inverse), scale_tril (its lower Cholesky
    factor)."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("MultivariateNormal: loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError("MultivariateNormal: Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(f"MultivariateNormal: {name} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = tapegrad.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = tapegrad.linalg.cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(precision_matrix)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MultivariateNormal, _instance)
        batch_shape = tapegrad.Size(batch_shape)
        new.loc = self.loc.expand((*batch_shape, *self.event_shape))
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand((*batch_shape, *self.event_shape, *self.event_shape)))
        super(MultivariateNormal, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self._unbroadcasted_scale_tril.square().sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape=()):
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def _half_log_det(self):
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self):
        entropy = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return entropy.expand(self._batch_shape)
