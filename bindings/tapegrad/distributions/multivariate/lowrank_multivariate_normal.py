"""The multivariate normal distribution with a covariance of low rank plus a diagonal."""

import math

import tapegrad

from .. import constraints
from ..distribution import Distribution
from ..utils import _standard_normal, lazy_property, same_as
from ._covariance import WithMatrices, _batch_mv
from .multivariate_normal import _batch_mahalanobis

__all__ = ["LowRankMultivariateNormal"]


def _batch_capacitance_tril(w, d):
    """The lower factor of I + W^T D^-1 W."""
    k = (w.mT / d.unsqueeze(-2)) @ w
    return tapegrad.linalg.cholesky(k + tapegrad.eye(w.shape[-1], dtype=w.dtype, device=w.device))


def _batch_lowrank_logdet(w, d, capacitance_tril):
    """log det(W W^T + D), by the matrix determinant lemma."""
    return 2 * capacitance_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) + d.log().sum(-1)


def _batch_lowrank_mahalanobis(w, d, x, capacitance_tril):
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    projected = _batch_mv(w.mT / d.unsqueeze(-2), x)
    return (x.square() / d).sum(-1) - _batch_mahalanobis(capacitance_tril, projected)


class LowRankMultivariateNormal(WithMatrices, Distribution):
    """Vectors of mean loc and covariance cov_factor cov_factor^T + diag(cov_diag); work is linear in their length."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample, _batched = True, ("loc", "cov_diag", "cov_factor")
    _kept = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("LowRankMultivariateNormal: loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("LowRankMultivariateNormal: cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"LowRankMultivariateNormal: cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"LowRankMultivariateNormal: cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            batch_shape = tapegrad.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(f"LowRankMultivariateNormal: Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                             f"cov_diag {cov_diag.shape}") from error
        self.loc = loc.expand((*batch_shape, -1))
        self.cov_diag = cov_diag.expand((*batch_shape, -1))
        self.cov_factor = cov_factor.expand((*batch_shape, -1, -1))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)

    mean = same_as("loc")
    mode = same_as("loc")

    @lazy_property
    def variance(self):
        total = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return total.expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self):
        # W W^T + D = D^1/2 (I + D^-1/2 W (D^-1/2 W)^T) D^1/2, whose middle is well conditioned.
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        middle = scaled @ scaled.mT
        middle = middle + tapegrad.eye(middle.shape[-1], dtype=middle.dtype, device=middle.device)
        return self._full(root * tapegrad.linalg.cholesky(middle))

    @lazy_property
    def covariance_matrix(self):
        w = self._unbroadcasted_cov_factor
        return self._full(w @ w.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self):
        # (W W^T + D)^-1 = D^-1 - A^T A with A = C^-1 W^T D^-1, C the capacitance's factor (Woodbury).
        d = self._unbroadcasted_cov_diag
        a = tapegrad.linalg.solve_triangular(self._capacitance_tril, self._unbroadcasted_cov_factor.mT / d.unsqueeze(-2), upper=False)
        return self._full(d.reciprocal().diag_embed() - a.mT @ a)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        eps_w = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc.dtype, self.loc.device)
        eps_d = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_cov_factor, eps_w) + self._unbroadcasted_cov_diag.sqrt() * eps_d

    def _log_det(self):
        return _batch_lowrank_logdet(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril)

    def log_prob(self, value):
        value = self._checked(value)
        distance = _batch_lowrank_mahalanobis(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, value - self.loc,
                                              self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self):
        return (0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())).expand(self._batch_shape)
