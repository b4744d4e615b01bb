"""`while_loop`: a function of its own results, while a predicate of them holds."""

from __future__ import annotations

from .. import _C, Tensor
from .. import bool as bool_dtype
from .._lazy import load
from .._root.recording import is_recording
from ..utils._pytree import tree_flatten, tree_unflatten
from .trees import check_alike, describe

__all__ = ["while_loop"]


def predicate(pred):
    """The result of cond_fn. Raises RuntimeError for another thing than a bool or a tensor of bool without dimensions."""
    if isinstance(pred, bool) or isinstance(pred, Tensor) and pred.ndim == 0 and pred.dtype is bool_dtype:
        return pred
    raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {describe(pred)}")


def _loop(pred, cond_fn, body_fn, carried_inputs, holds=bool):
    leaves, structure = tree_flatten(carried_inputs)
    if not holds(pred):
        return tree_unflatten([leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure)
    values = carried_inputs
    while True:
        result = body_fn(*values)
        found = tree_flatten(result)[0]
        check_alike(found, leaves, "body_fn_output", "carried_inputs")
        values = result if isinstance(result, (tuple, list)) and len(result) == len(carried_inputs) else tree_unflatten(found, structure)
        if not holds(predicate(cond_fn(*values))):
            return result


def while_loop(cond_fn, body_fn, carried_inputs):
    """Calls body_fn on its own results, first on `carried_inputs`, while cond_fn of them is true; returns the last ones.

    `carried_inputs` is a tuple or list of tensors and ints, also in nested tuples, lists and dictionaries; body_fn returns as many, of
    the same shapes and dtypes. cond_fn returns a tensor of bool without dimensions, or a bool. Without a call of body_fn the result is a
    copy. Gradients pass through all calls. Raises RuntimeError for functions and results that do not fit.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"carried_inputs must be a tuple or list, got {type(carried_inputs)}")
    leaves, structure = tree_flatten(carried_inputs)
    if not all(isinstance(leaf, (Tensor, int)) for leaf in leaves):
        raise RuntimeError("Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of tensor or int "
                           f"leaves, but got {carried_inputs}.")
    only_tensors = all(isinstance(leaf, Tensor) for leaf in leaves)
    if only_tensors and _C._is_tracing():
        pred, result = load(f"{__package__}.exported").while_loop(cond_fn, body_fn, carried_inputs)
        return result if pred is None else _loop(pred, cond_fn, body_fn, carried_inputs)
    pred = predicate(cond_fn(*carried_inputs))
    if is_recording() and isinstance(pred, Tensor):
        return load(f"{__package__}.recorded").while_loop(pred, cond_fn, body_fn, carried_inputs,
                                                          lambda holds: _loop(pred, cond_fn, body_fn, carried_inputs, holds))
    return _loop(pred, cond_fn, body_fn, carried_inputs)
