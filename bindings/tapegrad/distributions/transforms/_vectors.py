"""Transforms of vectors and matrices."""

import math

import tapegrad

from .. import constraints
from ..utils import _softplus, tril_matrix_to_vec, vec_to_tril_matrix
from ._transform import Transform, _Stateless


class SoftmaxTransform(_Stateless):
    """Vectors to the simplex by softmax; inv gives the logarithms, so this is not bijective."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):
        return x.softmax(-1)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("SoftmaxTransform: Too few dimensions on input")
        return shape

    inverse_shape = forward_shape


def _resized(name: str, shape, n: int, by: int):
    if len(shape) < n:
        raise ValueError(f"{name}: Too few dimensions on input")
    return tapegrad.Size((*shape[:-1], shape[-1] + by))


class StickBreakingTransform(_Stateless):
    """Vectors of n - 1 numbers to points of the simplex with n parts: the sigmoid of each number, shifted so that zeros
    become equal parts, is the share that is broken off the rest of the stick."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    @staticmethod
    def _offset(x):
        n = x.shape[-1]
        return tapegrad.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()  # of x.shape[-1] ... 1 further parts

    def _call(self, x):
        z = (x - self._offset(x)).sigmoid()
        rest = (1 - z).cumprod(-1)
        one = x.new_ones(x.shape[:-1] + (1,))
        return tapegrad.cat([z, one], -1) * tapegrad.cat([one, rest], -1)

    def _inverse(self, y):
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=tapegrad.finfo(y.dtype).tiny)
        return parts.log() - rest.log() + self._offset(parts)

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x)
        return (-x + tapegrad.nn.functional.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        return _resized("StickBreakingTransform", shape, 1, 1)

    def inverse_shape(self, shape):
        return _resized("StickBreakingTransform", shape, 1, -1)


class CorrCholeskyTransform(Transform):
    """Vectors of n (n - 1) / 2 numbers to Cholesky factors of n x n correlation matrices: row by row the hyperbolic tangents
    are partial correlations, each of which takes its share of the row's length 1 (Lewandowski et al., 2009)."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    @staticmethod
    def _before(lengths):
        """What stands left of each entry of a row; 1 at its beginning."""
        return tapegrad.nn.functional.pad(lengths[..., :-1], [1, 0], value=1)

    def _call(self, x):
        limit = 1 - tapegrad.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-limit, max=limit), diag=-1)
        left = (1 - partial.square()).sqrt().cumprod(-1)
        identity = tapegrad.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + identity) * self._before(left)

    def _inverse(self, y):
        left = self._before(1 - y.square().cumsum(-1)).sqrt()
        return (tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1)).atanh()

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        # Of the entries below the diagonal: each is its tangent times the root of what the squares before it leave of 1.
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), diag=-2)
        return 0.5 * left.log().sum(-1) - 2 * (x + _softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("CorrCholeskyTransform: Too few dimensions on input")
        count = shape[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ValueError("CorrCholeskyTransform: Input is not a flattened lower-diagonal number")
        return tapegrad.Size((*shape[:-1], n, n))

    def inverse_shape(self, shape):
        if len(shape) < 2:
            raise ValueError("CorrCholeskyTransform: Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("CorrCholeskyTransform: Input is not square")
        n = shape[-1]
        return tapegrad.Size((*shape[:-2], n * (n - 1) // 2))


class LowerCholeskyTransform(_Stateless):
    """Square matrices to lower triangles with a positive diagonal, by exp of the diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Stateless):
    """Square matrices to positive definite ones, through LowerCholeskyTransform."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(tapegrad.linalg.cholesky(y))
