"""The log-normal distribution."""

from .. import constraints
from ..transformed_distribution import TransformedDistribution
from ..transforms import ExpTransform
from ..utils import same_as
from .normal import Normal, OfNormal

__all__ = ["LogNormal"]


class LogNormal(OfNormal, TransformedDistribution):
    """exp(x) for x of Normal(loc, scale)."""

    support = constraints.positive
    _batched = ()

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    loc = same_as("base_dist.loc")
    scale = same_as("base_dist.scale")
    mean = property(lambda self: (self.loc + self.scale.square() / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.square()).exp())

    @property
    def variance(self):
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self):
        return self.base_dist.entropy() + self.loc
