"""The base of location-scale families on the real line."""

from .. import constraints
from ..distribution import Distribution
from ..utils import same_as

__all__ = ["LocationScale"]


class LocationScale(Distribution):
    """The base of those whose densities depend on (x - loc) / scale; their mode is at loc. Numbers or tensors that broadcast."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    mode = same_as("loc")
