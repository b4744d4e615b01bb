"""What distributions that keep a matrix by its Cholesky factor have in common."""

from __future__ import annotations

import tapegrad

from .utils import lazy_property

__all__ = ["ByScaleTril"]


class ByScaleTril:
    """The matrix, its factor and its inverse, of shape (*batch, d, d), from `_unbroadcasted_scale_tril`."""

    def _full(self, matrix):
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @lazy_property
    def scale_tril(self):
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._full(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self):
        return self._full(tapegrad.cholesky_inverse(self._unbroadcasted_scale_tril))
