"""The logistic-normal distribution on the simplex."""

from .. import constraints
from ..continuous.normal import Normal, OfNormal
from ..independent import Independent
from ..transformed_distribution import TransformedDistribution
from ..transforms import StickBreakingTransform
from ..utils import same_as

__all__ = ["LogisticNormal"]


class LogisticNormal(OfNormal, TransformedDistribution):
    """StickBreakingTransform of vectors whose parts are Normal(loc, scale): one part more than loc has."""

    support = constraints.simplex
    _batched = ()

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def _normal(self):
        return self.base_dist.base_dist if isinstance(self.base_dist, Independent) else self.base_dist

    loc = same_as("_normal.loc")
    scale = same_as("_normal.scale")
