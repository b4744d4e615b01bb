"""The chi-squared distribution."""

from .. import constraints
from .gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of df squared standard normal numbers: Gamma(df / 2, 1/2)."""

    arg_constraints = {"df": constraints.positive}
    _batched = Gamma._batched

    def __init__(self, df, validate_args=None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    df = property(lambda self: self.concentration * 2)
