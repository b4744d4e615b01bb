"""`collate` with a map from types to functions, and the functions of the standard map."""

import collections.abc
import re

import numpy as np

from .... import Tensor
from ..collate import _like, default_collate, default_convert

__all__ = ["collate", "collate_float_fn", "collate_int_fn", "collate_numpy_array_fn", "collate_numpy_scalar_fn", "collate_str_fn",
           "collate_tensor_fn", "default_collate", "default_collate_err_msg_format", "default_collate_fn_map", "default_convert"]

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # letters of NumPy's dtypes that make no tensors
default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def collate_tensor_fn(batch, *, collate_fn_map=None):
    """Tensors of one shape, stacked."""
    return default_collate(batch)


collate_numpy_array_fn = collate_numpy_scalar_fn = collate_float_fn = collate_int_fn = collate_tensor_fn


def collate_str_fn(batch, *, collate_fn_map=None):
    """Texts stay a list."""
    return batch


default_collate_fn_map = {Tensor: collate_tensor_fn, np.ndarray: collate_numpy_array_fn, (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
                          float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn}


def collate(batch, *, collate_fn_map=None):
    """One batch of a list of samples. collate_fn_map: from a type, or a tuple of types, to f(batch, *, collate_fn_map).

    The sample's own type is looked up first, then its bases in the order of the map; containers are gone into.
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for types, function in collate_fn_map.items():
            if isinstance(first, types):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        return _like(first, {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(values, collate_fn_map=collate_fn_map) for values in zip(*batch, strict=True)))
    if isinstance(first, collections.abc.Sequence) and not isinstance(first, (str, bytes)):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(values, collate_fn_map=collate_fn_map) for values in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _like(first, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))
