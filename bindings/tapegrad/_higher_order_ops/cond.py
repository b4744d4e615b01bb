"""`cond`: one of two functions, as a predicate says."""

from __future__ import annotations

from .. import _C, Tensor, where
from .._lazy import load
from .._root.recording import is_exporting, is_recording
from .._warn import warn
from ..utils._pytree import tree_flatten, tree_unflatten
from .trees import check_alike

__all__ = ["cond"]


def _check(pred, true_fn, false_fn, operands) -> None:
    if not isinstance(pred, Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(isinstance(leaf, Tensor) for leaf in tree_flatten(operands)[0]):
        raise RuntimeError("Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but got "
                           f"{operands}.")


def checked_branches(on_true, on_false) -> tuple[list, list, object]:
    """The leaves of what both branches gave, and their structure. Raises RuntimeError where they do not match."""
    (trues, structure), (falses, other) = tree_flatten(on_true), tree_flatten(on_false)
    if structure != other:
        raise RuntimeError(f"Unmatched output spec from torch.cond branches: true branch tree_spec {structure} vs false branch tree_spec {other}.")
    check_alike(trues, falses, "true_fn_output", "false_fn_output")
    return trues, falses, structure


def _per_sample(pred, true_fn, false_fn, operands):
    """Under vmap: both branches for all samples, of which each takes what its predicate says."""
    trues, falses, structure = checked_branches(true_fn(*operands), false_fn(*operands))
    pred = pred.reshape(()) != 0
    for a, b in zip(trues, falses, strict=True):
        if not isinstance(a, Tensor) and a != b:
            raise RuntimeError(f"cond: under vmap a result that is no tensor must be the same in both branches: got {a} and {b}")
    return tree_unflatten([where(pred, a, b) if isinstance(a, Tensor) else a for a, b in zip(trues, falses, strict=True)], structure)


def cond(pred, true_fn, false_fn, operands=()):
    """true_fn(*operands) or false_fn(*operands), as an if statement chooses.

    `pred`: a number, which chooses at once, or a tensor of one element. Operands are tensors, in nested tuples, lists and dictionaries.
    Only the function that is chosen runs, but under vmap with a predicate per sample, where both run and each sample takes its own.
    Both must give tensors of the same shapes and dtypes where both run. Raises RuntimeError for arguments that do not fit.
    """
    if isinstance(pred, (bool, int, float)):
        if is_exporting():
            warn("Pred is a Python constant. When used with torch.cond, it specializes on one of the branches. If you want torch.cond to "
                 "preserve two branches, please make the predicate a boolean tensor or a SymBool.", UserWarning)
        return true_fn(*operands) if pred else false_fn(*operands)
    _check(pred, true_fn, false_fn, operands)
    if _C._vmap_level(pred):
        return _per_sample(pred, true_fn, false_fn, operands)
    if _C._is_tracing():
        return load(f"{__package__}.exported").cond(pred, true_fn, false_fn, operands)
    if is_recording():
        return load(f"{__package__}.recorded").cond(pred, true_fn, false_fn, operands)
    return true_fn(*operands) if bool(pred) else false_fn(*operands)
