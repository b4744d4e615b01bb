"""Types of the native part of the tape: what tapegrad.autograd hands on."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

_F = TypeVar("_F", bound=Callable[..., Any])

class _GradMode:
    def __call__(self, function: _F) -> _F: ...
    def __enter__(self) -> None: ...
    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None: ...
    def clone(self) -> Self: ...

class no_grad(_GradMode):
    """Nothing inside is recorded on the tape."""

class enable_grad(_GradMode):
    """Operators are recorded on the tape, inside of no_grad, too."""

class inference_mode(_GradMode):
    """Nothing is recorded, and what is made inside can never be."""
    def __init__(self, mode: bool = True) -> None: ...

class set_grad_enabled(_GradMode):
    """Recording on or off, from here on or inside a `with`."""
    def __init__(self, mode: bool) -> None: ...

class Node:
    """A recorded operator."""
    next_functions: tuple[tuple[Node | None, int], ...]
    metadata: dict[str, Any]
    def name(self) -> str: ...
    def register_hook(self, hook: Callable[..., Any]) -> Any: ...
    def register_prehook(self, hook: Callable[..., Any]) -> Any: ...

def is_grad_enabled() -> bool: ...
def is_inference_mode_enabled() -> bool: ...
def __getattr__(name: str) -> Any: ...
