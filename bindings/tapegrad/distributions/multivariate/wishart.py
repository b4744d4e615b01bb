"""The Wishart distribution of matrices."""

import math
from numbers import Number

import tapegrad

from ..._warn import warn
from .. import constraints
from ..continuous.chi2 import Chi2
from ..exp_family import ExponentialFamily
from ._covariance import ByScaleTril

__all__ = ["Wishart"]


def _mvdigamma(x, p: int):
    return (x.unsqueeze(-1) - tapegrad.arange(p, dtype=x.dtype, device=x.device) / 2).digamma().sum(-1)


class Wishart(ByScaleTril, ExponentialFamily):
    """The sum of outer products of df normal vectors of mean zero (df may be fractional, more than the dimension less one).
    Exactly one of covariance_matrix, precision_matrix and scale_tril describes the vectors."""

    support = constraints.positive_definite
    has_rsample, _mean_carrier_measure = True, 0

    @property
    def arg_constraints(self):
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1)}
    _batched = ("df", "covariance_matrix", "precision_matrix", "scale_tril")

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        name, matrix = self._given_matrix(AssertionError, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril)
        if isinstance(df, Number):
            batch_shape = tapegrad.Size(matrix.shape[:-2])
            self.df = tapegrad.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = tapegrad.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
        p = matrix.shape[-1]
        if self.df.le(p - 1).any():
            raise ValueError(f"Wishart: Value of df={df} expected to be greater than ndim - 1 = {p - 1}.")
        if self.df.lt(p).any():
            warn("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.")
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        self._set_factor(name, matrix)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._unbroadcasted_scale_tril = new._full(self._unbroadcasted_scale_tril)
        return new

    def _df_of_matrices(self):
        return self.df.expand(self._batch_shape).reshape((*self._batch_shape, 1, 1))

    mean = property(lambda self: self._df_of_matrices() * self.covariance_matrix)

    @property
    def mode(self):
        factor = self._df_of_matrices() - self._event_shape[-1] - 1
        return factor.masked_fill(factor <= 0, float("nan")) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df_of_matrices() * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett(self, sample_shape):
        """L A A^T L^T with A lower: roots of chi-squared numbers on the diagonal, normal ones below it."""
        p = self._event_shape[-1]
        like = self._unbroadcasted_scale_tril
        df = self.df.expand(self._batch_shape).unsqueeze(-1) - tapegrad.arange(p, dtype=like.dtype, device=like.device)
        roots = Chi2(df, validate_args=False).rsample(sample_shape).sqrt().clamp(min=tapegrad.finfo(like.dtype).eps)
        below = tapegrad.randn((*roots.shape, p), dtype=like.dtype, device=like.device).tril(-1)
        factor = like @ (roots.diag_embed() + below)
        return factor @ factor.mT

    def rsample(self, sample_shape=(), max_try_correction=None):
        """Samples that rounding made singular are drawn again, max_try_correction times (default 10) at most."""
        sample_shape = tapegrad.Size(sample_shape)
        sample = self._bartlett(sample_shape)
        for _ in range(10 if max_try_correction is None else max_try_correction):
            singular = tapegrad.linalg.cholesky_ex(sample.detach()).info.ne(0)
            if not singular.any():
                break
            warn("Singular sample detected.")
            sample = tapegrad.where(singular[..., None, None], self._bartlett(sample_shape), sample)
        return sample

    def log_prob(self, value):
        value = self._checked(value)
        df, p = self.df, self._event_shape[-1]
        trace = tapegrad.cholesky_solve(value, self._unbroadcasted_scale_tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (-df * (p * math.log(2) / 2 + self._half_log_det()) - (df / 2).mvlgamma(p)
                + (df - p - 1) / 2 * tapegrad.linalg.slogdet(value).logabsdet - trace / 2)

    def entropy(self):
        df, p = self.df, self._event_shape[-1]
        return ((p + 1) * (p * math.log(2) / 2 + self._half_log_det()) + (df / 2).mvlgamma(p)
                - (df - p - 1) / 2 * _mvdigamma(df / 2, p) + df * p / 2)

    _natural_params = property(lambda self: (-self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2))

    def _log_normalizer(self, x, y):
        p = self._event_shape[-1]
        return (y + (p + 1) / 2) * (-tapegrad.linalg.slogdet(-2 * x).logabsdet + math.log(2) * p) + (y + (p + 1) / 2).mvlgamma(p)
