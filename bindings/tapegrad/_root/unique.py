"""unique and unique_consecutive, whose number of results depends on the arguments."""

from .. import _C
from .overloads import overridable

__all__ = ["unique", "unique_consecutive"]

_private = _C._functions["_C._ops"]


def _wanted(results, return_inverse, return_counts):
    values, inverse, counts = results
    if not (return_inverse or return_counts):
        return values
    return (values, *((inverse,) if return_inverse else ()), *((counts,) if return_counts else ()))


@overridable
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different values in rising order; on request also each element's place among them and how often each occurs.

    With `dim`, slices along it count as values.
    """
    return _wanted(_private["_unique"](input, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


@overridable
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The first of each run of equal values; on request also each element's run and the lengths of the runs."""
    return _wanted(_private["_unique_consecutive"](input, return_inverse, return_counts, dim), return_inverse, return_counts)


_C.Tensor.unique = unique
_C.Tensor.unique_consecutive = unique_consecutive
