"""The base of distributions with a covariance matrix."""

import tapegrad

from ..utils import lazy_property

__all__ = ["ByScaleTril", "WithMatrices"]


def _batch_mv(matrix, vector):
    """The product of a matrix and a vector, per vector."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _precision_to_scale_tril(precision):
    """The lower factor of the inverse of a matrix: P = L L^T turned over both diagonals gives it without inverting P."""
    turned = tapegrad.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    identity = tapegrad.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return tapegrad.linalg.solve_triangular(turned, identity.expand(turned.shape), upper=False)


class WithMatrices:
    """Matrices of shape (*batch, d, d) of those without some of the batch's dimensions."""

    def _full(self, matrix):
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))


class ByScaleTril(WithMatrices):
    """The matrix, its lower Cholesky factor and its inverse, of which one is given and the others come from `_unbroadcasted_scale_tril`."""

    def _given_matrix(self, error, **matrices):
        """The name and value of the only matrix that was given; an `error` if there are none or several."""
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise error(f"{type(self).__name__}: Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        if matrix.dim() < 2:
            raise ValueError(f"{type(self).__name__}: {name} must be at least two-dimensional, with optional leading batch dimensions")
        return name, matrix

    def _set_factor(self, name: str, matrix) -> None:
        factor = {"scale_tril": lambda m: m, "covariance_matrix": tapegrad.linalg.cholesky, "precision_matrix": _precision_to_scale_tril}
        self._unbroadcasted_scale_tril = factor[name](matrix)

    def _half_log_det(self):
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @lazy_property
    def scale_tril(self):
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._full(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self):
        return self._full(tapegrad.cholesky_inverse(self._unbroadcasted_scale_tril))
