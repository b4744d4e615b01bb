"""Utilities: data loading, hooks; loaded when used: measuring, counting, TensorBoard, the environment."""

from . import data, hooks
from ._swap import swap_tensors

__all__ = ["data", "hooks", "swap_tensors"]
_LAZY = ("_pytree", "benchmark", "checkpoint", "collect_env", "cpp_extension", "dlpack", "flop_counter", "model_zoo", "tensorboard")


def __getattr__(name: str):
    if name in _LAZY:
        from .._lazy import load

        return load(f"{__name__}.{name}")
    from .._hints import no_attribute

    raise no_attribute(__name__, name, [*__all__, *_LAZY])
