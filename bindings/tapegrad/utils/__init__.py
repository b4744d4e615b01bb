"""Utilities: data loading, hooks; loaded when used: measuring, counting, TensorBoard, the environment."""

from .._lazy import more_names as _more_names
from . import data, hooks
from ._swap import swap_tensors

__all__ = ["data", "hooks", "swap_tensors"]
__getattr__, __dir__ = _more_names(__name__, ("_pytree", "_foreach_utils", "benchmark", "checkpoint", "collect_env", "deterministic", "flop_counter", "tensorboard"))
