"""Cholesky factors of random correlation matrices (Lewandowski, Kurowicka and Joe, 2009)."""

import math

import tapegrad

from .. import constraints
from ..distribution import Distribution
from ..interval.beta import Beta

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower factors L of dim x dim correlation matrices with density proportional to det(L L^T)^(concentration - 1)."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _batched = ("concentration", "_beta")
    _kept = ("dim",)

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"LKJCholesky: Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        batch_shape = self._set_parameters(concentration=concentration)
        # Row i of the factor: the square of its length left of the diagonal (the onion method, section 3.2).
        row = tapegrad.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        row = tapegrad.cat([row.new_zeros((1,)), row])
        above = (self.concentration + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * row
        self._beta = Beta(row + 0.5, above, validate_args=False)
        super().__init__(batch_shape, tapegrad.Size((dim, dim)), validate_args=validate_args)

    def sample(self, sample_shape=()):
        with tapegrad.no_grad():
            square = self._beta.sample(sample_shape).unsqueeze(-1)
            direction = tapegrad.randn(self._extended_shape(sample_shape), dtype=square.dtype, device=square.device).tril(-1)
            direction = direction / direction.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0  # nothing is left of the first diagonal entry
            w = square.sqrt() * direction
            diagonal = (1 - w.square().sum(-1)).clamp(min=tapegrad.finfo(w.dtype).tiny).sqrt()
            return w + diagonal.diag_embed()

    def log_prob(self, value):
        value = self._checked(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        row = tapegrad.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - row
        # The normaliser of page 1999; mvlgamma holds (n - 1) (n - 2) / 4 log(pi) of its n (n - 1) / 4.
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        log_norm = 0.5 * n * math.log(math.pi) + (alpha - 0.5).mvlgamma(n) - alpha.lgamma() * n
        return (order * diagonal.log()).sum(-1) - log_norm
