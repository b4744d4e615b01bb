"""Laplace's distribution."""

import tapegrad

from ..utils import same_as
from ._location_scale import LocationScale

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """Density exp(-|x - loc| / scale) / (2 scale)."""

    mean = same_as("loc")
    _batched = ("loc", "scale")

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(self._set_parameters(loc=loc, scale=scale), validate_args=validate_args)

    variance = property(lambda self: 2 * self.scale.square())
    stddev = property(lambda self: 2**0.5 * self.scale)

    def rsample(self, sample_shape=()):
        # u in (-1, 1): its sign is the side, -log(1 - |u|) the distance.
        eps = tapegrad.finfo(self.loc.dtype).eps
        u = self.loc.detach().new_empty(self._extended_shape(sample_shape)).uniform_(eps - 1, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value):
        value = self._checked(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        value = self._checked(value)
        d = value - self.loc
        return 0.5 - 0.5 * d.sign() * (-d.abs() / self.scale).expm1()

    def icdf(self, value):
        d = value - 0.5
        return self.loc - self.scale * d.sign() * (-2 * d.abs()).log1p()

    def entropy(self):
        return 1 + (2 * self.scale).log()
