"""Helpers of layers' constructors, which PyTorch keeps in nn/modules/utils.py: numbers to tuples, names of states."""

import collections.abc
from itertools import repeat

from .. import Tensor  # noqa: F401  imported from here, too

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int, name: str = "parse"):
    def parse(x):
        """A tuple of what x holds or, where it is a single value, of n times that."""
        return tuple(x) if isinstance(x, collections.abc.Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t, n: int) -> tuple:
    """From the last to the first, each n times: what F.pad takes."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size, defaults) -> list:
    """The output size with those of the input where it says None."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [default if size is None else size for size, default in zip(out_size, defaults[-len(out_size):], strict=True)]


def consume_prefix_in_state_dict_if_present(state_dict: dict, prefix: str) -> None:
    """Takes `prefix` (such as "module.") off the names in a state, in place; those without it stay."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    for key in list(metadata or ()):
        if key and (key.startswith(prefix) or key == prefix.replace(".", "")):  # "" is the wrapper itself
            metadata[key[len(prefix):]] = metadata.pop(key)
