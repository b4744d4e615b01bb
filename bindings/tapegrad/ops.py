"""Operators by namespace: `ops.aten.add` is tapegrad's add, `ops.mine.f` an operator of `library`.

Libraries of compiled operators for PyTorch cannot be loaded.
"""

from __future__ import annotations

import sys
import types

from ._absent import missing_function

load_library = missing_function("ops.load_library", "libraries of operators that were compiled for PyTorch cannot be loaded", OSError)
loaded_libraries: set = set()


class _Form:
    """A function of tapegrad as an operator: callable, with its overloads, which are all the function."""

    def __init__(self, space: str, name: str, function):
        self._qualified_op_name, self.__name__, self._function = f"{space}::{name}", name, function
        self.__doc__ = function.__doc__

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    def overloads(self) -> list:
        """The names of the overloads."""
        return ["default"]

    def __getattr__(self, overload: str):
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"


class _Namespace(types.ModuleType):
    """ops.aten and other namespaces."""

    def __getattr__(self, name: str):
        from .library import _known

        space = self.__name__.rpartition(".")[2]
        found = _known.get(f"{space}::{name}")
        if found is not None:
            return found
        if space in ("aten", "prims") and not name.startswith("__"):
            root = sys.modules[__package__]
            for place in (root, root.nn.functional, root.special, root.linalg):
                function = getattr(place, name, None)
                if callable(function):
                    form = _Form(space, name, function)
                    setattr(self, name, form)
                    return form
        raise AttributeError(f"'_OpNamespace' '{space}' object has no attribute '{name}'", name=name)


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    space = _Namespace(f"{__name__}.{name}")
    globals()[name] = space
    return space
