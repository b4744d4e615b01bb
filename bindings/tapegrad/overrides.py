"""PyTorch's hooks for types that are not tensors. tapegrad's operators take tensors and subclasses of Tensor only.

Subclasses go through operators as tensors do; `__torch_function__` is not called.
"""

from __future__ import annotations

from . import _C
from ._absent import missing_class

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode", "get_ignored_functions", "get_overridable_functions", "handle_torch_function",
           "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "is_tensor_like",
           "is_tensor_method_or_property", "resolve_name", "wrap_torch_function"]


def has_torch_function(relevant_args) -> bool:
    """Always false: `__torch_function__` is not called."""
    return False


def has_torch_function_unary(obj) -> bool:
    """Always false."""
    return False


def has_torch_function_variadic(*args) -> bool:
    """Always false."""
    return False


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Calls the function: nobody takes its place."""
    return public_api(*args, **kwargs)


def wrap_torch_function(dispatcher):
    """A decorator that gives its function back."""
    return lambda function: function


def is_tensor_like(inp) -> bool:
    """Whether an object is a tensor or has `__torch_function__`."""
    return isinstance(inp, _C.Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func) -> bool:
    """Whether a function is a method or property of Tensor."""
    return func in vars(_C.Tensor).values()


def resolve_name(f) -> str | None:
    """The full name of a function."""
    module, name = getattr(f, "__module__", None), getattr(f, "__qualname__", getattr(f, "__name__", None))
    return name if not module else f"{module}.{name}"


def get_ignored_functions() -> set:
    """The functions that `__torch_function__` would not see: all."""
    return set()


def get_overridable_functions() -> dict:
    """The functions that `__torch_function__` would see: none."""
    return {}


_WHY = "operators take tensors only, and `__torch_function__` is not called"
TorchFunctionMode = missing_class("overrides.TorchFunctionMode", _WHY)
BaseTorchFunctionMode = missing_class("overrides.BaseTorchFunctionMode", _WHY)
