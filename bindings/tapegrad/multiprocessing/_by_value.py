"""Functions and classes of a notebook, pickled by value.

A process that starts afresh imports the main program to find what is defined in it. A notebook or an interactive session
cannot be imported, so what it defines travels as code: functions with the globals they name, classes with their members.
Objects from modules are pickled by name as usual. Only for one's own processes: unpickling runs the code.
"""

import io
import marshal
import sys
import types
from multiprocessing.reduction import ForkingPickler

__all__ = ["main_is_interactive", "wrap"]

_LEFT_OUT = {"__dict__", "__weakref__", "__module__", "__name__", "__qualname__", "__doc__", "__abstractmethods__", "_abc_impl"}


def main_is_interactive() -> bool:
    """Whether a fresh process could not import the main program."""
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is None and getattr(main, "__file__", None) is None


def _names(code) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _make_function(code: bytes, name: str, cells: int):
    closure = tuple(types.CellType() for _ in range(cells)) or None
    return types.FunctionType(marshal.loads(code), sys.modules["__main__"].__dict__, name, None, closure)


def _fill_function(function, state):
    for name, value in state["globals"].items():
        function.__globals__.setdefault(name, value)
    for cell, content in zip(function.__closure__ or (), state["cells"]):
        if content:
            cell.cell_contents = content[0]
    function.__defaults__, function.__kwdefaults__ = state["defaults"], state["kwdefaults"]
    function.__dict__.update(state["dict"])
    function.__qualname__, function.__module__, function.__doc__ = state["qualname"], "__main__", state["doc"]


def _make_class(meta, name: str, bases: tuple, qualname: str, doc):
    cls = types.new_class(name, bases, {"metaclass": meta}, lambda members: members.update(__module__="__main__", __doc__=doc))
    cls.__qualname__ = qualname
    return cls


def _fill_class(cls, members):
    for name, value in members.items():
        setattr(cls, name, value)
    if hasattr(cls, "__abstractmethods__"):
        import abc

        abc.update_abstractmethods(cls)


def _make_module(name: str):
    import importlib

    return importlib.import_module(name)


def _content(cell):
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty
        return ()


class _Pickler(ForkingPickler):
    def reducer_override(self, obj):
        if isinstance(obj, types.FunctionType) and obj.__module__ == "__main__":
            code = obj.__code__
            used = {n: obj.__globals__[n] for n in sorted(_names(code)) if n in obj.__globals__}
            state = {"globals": used, "cells": [_content(c) for c in obj.__closure__ or ()], "defaults": obj.__defaults__,
                     "kwdefaults": obj.__kwdefaults__, "dict": obj.__dict__, "qualname": obj.__qualname__, "doc": obj.__doc__}
            return _make_function, (marshal.dumps(code), obj.__name__, len(obj.__closure__ or ())), state, None, None, _fill_function
        if isinstance(obj, type) and obj.__module__ == "__main__":
            if "__slots__" in obj.__dict__ or any(b.__name__ == "Enum" for b in obj.__mro__):
                raise TypeError(f"multiprocessing: {obj.__name__} is defined in a notebook and has __slots__ or is an Enum\n"
                                "put it into a module, or use the start method \"fork\"")
            members = {n: v for n, v in obj.__dict__.items() if n not in _LEFT_OUT}
            return (_make_class, (type(obj), obj.__name__, obj.__bases__, obj.__qualname__, obj.__doc__), members, None, None,
                    _fill_class)
        if isinstance(obj, types.ModuleType):
            return _make_module, (obj.__name__,)
        return super().reducer_override(obj) if hasattr(super(), "reducer_override") else NotImplemented


class _Wrapped:
    """An object whose pickle is that of `_Pickler`."""

    def __init__(self, obj) -> None:
        self.obj = obj

    def __reduce__(self):
        buffer = io.BytesIO()
        _Pickler(buffer, 5).dump(self.obj)
        return ForkingPickler.loads, (buffer.getvalue(),)


def wrap(obj):
    """The object, so that it can travel to a fresh process even out of a notebook."""
    return _Wrapped(obj) if main_is_interactive() else obj
