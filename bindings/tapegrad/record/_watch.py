"""What a recorded function reads of Python's state: found while it runs, compared before each replay.

Observer is a profile function: it notes which functions outside of the package run, and calls of native functions that may have
an effect or read what changes by itself. `watch` walks from the function over what the code names (globals, variables of enclosing
functions, attributes), and puts dictionaries, lists, tensors and classes into a native `_Watch`."""

from __future__ import annotations

import enum
import functools
import gc
import os
import random
import site
import sys
import sysconfig
import threading
import types
from pathlib import Path

from .. import _C, Tensor
from ..nn import module as _modules
from . import _sizes

_PACKAGE = tuple({str(path.parents[1]) + os.sep for path in (Path(__file__), Path(__file__).resolve())})
_INSTALLED = tuple({str(Path(p)) + os.sep for p in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"],
                                                    sysconfig.get_paths()["platlib"], *site.getsitepackages())})
_MOST_OBJECTS = 20_000
_VALUES = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), slice, range, enum.Enum, type(NotImplemented))

# Native functions that neither have an effect outside of their arguments nor read what changes by itself.
_KNOWN_BUILTINS = frozenset(
    "abs all any ascii bin bool callable chr delattr dir divmod enumerate filter format getattr hasattr hash hex id isinstance issubclass iter len "
    "locals max min next oct ord pow repr reversed round setattr sorted sum vars zip __build_class__ __import__".split())
_KNOWN_MODULES = frozenset(["math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "collections", "_collections", "copy",
                            "_abc", "_struct", "_weakref", "types", "numpy"])
_CONTAINERS = (str, bytes, list, dict, tuple, set, frozenset, int, float, complex, bool, type, types.FunctionType, property)
# Methods that change nothing, of containers whose class is the program's own.
_READS = frozenset("get keys values items copy index count __contains__ __getitem__ __len__ __iter__ __eq__ __hash__ union intersection difference".split())
# Where native calls of the package itself would have an effect.
_EFFECTS = frozenset(["time", "_io", "io", "random", "_random", "posix", "socket", "_socket", "select", "_posixsubprocess"])


_OWN = (_sizes.__file__, _sizes.__file__.replace("_sizes", "_reads"))  # what is asked while sizes are read and used


def _of_package(file: str) -> bool:
    return file.startswith(_PACKAGE)


def _is_native(function) -> bool:
    """Whether it is one of the package's."""
    owner = getattr(function, "__self__", None)
    module = owner.__name__ if isinstance(owner, types.ModuleType) else getattr(function, "__module__", None) or ""
    return isinstance(owner, Tensor) or module.split(".")[0] == "tapegrad"


class Observer:
    """A profile function (sys.setprofile), in a `with` statement. It rests while garbage is collected: what is called then, the program's
    gc.callbacks and the finalizers of what happened to be garbage, is no part of the step."""

    rests_while_loading = True  # of parts of the package: _lazy.load

    def __init__(self, pure: bool, sizes) -> None:
        self.pure = pure
        self._sizes = sizes
        self.codes: dict = {}  # code -> its globals
        self.reason = ""

    def __enter__(self) -> Observer:
        self._thread, self._rests = threading.get_ident(), False
        gc.callbacks.insert(0, self._rest)
        gc.callbacks.append(self._go_on)
        sys.setprofile(self)
        return self

    def __exit__(self, *_) -> None:
        sys.setprofile(None)
        gc.callbacks.remove(self._rest)
        gc.callbacks.remove(self._go_on)

    def _rest(self, phase: str, _) -> None:
        if phase == "start" and threading.get_ident() == self._thread:
            self._rests = sys.getprofile() is self
            if self._rests:
                sys.setprofile(None)

    def _go_on(self, phase: str, _) -> None:
        if phase == "stop" and threading.get_ident() == self._thread and self._rests:
            sys.setprofile(self)

    def __call__(self, frame, event: str, arg) -> None:
        if event == "call":
            code = frame.f_code
            if self._sizes.active and code.co_filename not in _OWN:
                self._sizes.called(frame.f_back, False)
            if code not in self.codes and not _of_package(code.co_filename):
                self.codes[code] = frame.f_globals
        elif event in ("c_return", "c_exception"):
            if self._sizes.active and _is_native(arg):
                _C._pin_sizes(None)
        elif event == "c_call":
            if self._sizes.active:
                self._sizes.called(frame, _is_native(arg))
            if not self.reason and not self.pure:
                self._native(frame, arg)

    def _native(self, frame, function) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None) or ""
        name = getattr(function, "__qualname__", repr(function))
        if owner is sys and name in ("setprofile", "getprofile", "_getframe", "exc_info", "exception", "getrecursionlimit"):
            return
        if isinstance(owner, types.ModuleType):
            module = owner.__name__
        if _of_package(frame.f_code.co_filename):
            effect = module in _EFFECTS or isinstance(owner, random.Random) or (module == "builtins" and name in ("print", "open", "input"))
            if effect or type(owner).__module__ in ("_io", "socket"):
                self._refuse(frame, name)
            return
        if module.startswith("tapegrad") or isinstance(owner, Tensor) or type(owner).__module__.startswith("tapegrad"):
            return
        if module == "builtins" and name in _KNOWN_BUILTINS or module in _KNOWN_MODULES:
            return
        if owner is not None and not isinstance(owner, types.ModuleType) and (
                type(owner).__module__ in ("builtins", "collections") or isinstance(owner, type)
                or isinstance(owner, _CONTAINERS) and name.rpartition(".")[2] in _READS):
            return
        self._refuse(frame, f"{module}.{name}" if module not in ("", "builtins") else name)

    def _refuse(self, frame, name: str) -> None:
        while frame.f_back is not None and _of_package(frame.f_code.co_filename):
            frame = frame.f_back
        self.reason = f"it calls {name} at {frame.f_code.co_filename}:{frame.f_lineno}, which may have an effect or read what changes"


class _Refused(Exception):
    """Why the state cannot be watched."""


def _variables(value) -> dict | None:
    """The instance's dictionary, by no code of the program."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


class _Walk:
    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.dicts: list = []
        self.cells: list = []
        self.lists: list = []
        self.tensors: list = []
        self.types: list = []
        self.seen: dict[int, object] = {}  # by id, kept alive
        self.waiting: list = []

    def run(self) -> None:
        while self.waiting:
            self._visit(*self.waiting.pop())

    def add(self, value, path: str) -> None:
        if isinstance(value, _VALUES) or id(value) in self.seen:
            return
        if len(self.seen) >= _MOST_OBJECTS:
            raise _Refused(f"it reads more than {_MOST_OBJECTS} objects of the program")
        self.seen[id(value)] = value
        self.waiting.append((value, path))

    def add_dict(self, values: dict, path: str, keys=None, may_grow: bool = False) -> None:
        """Watches entries: all, or those under `keys`. In an instance a new attribute may hide one of the class, so none may be added."""
        present = None if keys is None else tuple(k for k in keys if k in values)
        self.dicts.append((values, present, may_grow))
        for key in values if present is None else present:
            self.add(values[key], f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]")

    def add_class(self, cls: type, path: str) -> None:
        for base in cls.__mro__:
            if base.__module__ == "builtins" or base.__module__.split(".")[0] == "tapegrad" or id(base) in self.seen:
                continue
            self.seen[id(base)] = base
            self.types.append(base)
            for name, value in vars(base).items():
                if name in self.names and not name.startswith("__"):
                    self.add(value, f"{path}.{name}")

    def _visit(self, value, path: str) -> None:
        cls = type(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            if _variables(value) and cls.__module__.split(".")[0] != "tapegrad":
                self.add_dict(_variables(value), path, self.names)
        elif isinstance(value, types.ModuleType):
            file = getattr(value, "__file__", None)
            if file and not _of_package(file) and not file.startswith(_INSTALLED):
                self.add_dict(vars(value), path, self.names, may_grow=True)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, staticmethod, classmethod, property)):
            self._function(value, path)
        elif isinstance(value, type):
            self.add_class(value, path)
        elif isinstance(value, dict):
            self.add_dict(value, path)
        elif isinstance(value, list):
            self.lists.append(value)
            for i, item in enumerate(value):
                self.add(item, f"{path}[{i}]")
        elif isinstance(value, set):
            self.lists.append(value)
            for item in value:
                self.add(item, f"an item of {path}")
        elif isinstance(value, (tuple, frozenset)):
            for i, item in enumerate(value):
                self.add(item, f"{path}[{i}]")
        elif isinstance(value, types.BuiltinFunctionType):
            if not isinstance(value.__self__, (types.ModuleType, type(None))):
                self.add(value.__self__, path)
        else:
            self._object(value, cls, path)

    def _function(self, value, path: str) -> None:
        if isinstance(value, types.MethodType):
            self.add(value.__self__, path)
            self.add(value.__func__, path)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.add(part, path)
        elif isinstance(value, property):
            for part in (value.fget, value.fset):
                self.add(part, path)
        elif isinstance(value, (staticmethod, classmethod)):
            self.add(value.__func__, path)
        elif not _of_package(value.__code__.co_filename):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    content = cell.cell_contents
                except ValueError:
                    continue
                self.cells.append(cell)
                self.add(content, name)
            for default in [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]:
                self.add(default, path)

    def _object(self, value, cls: type, path: str) -> None:
        # Not by hasattr: a program's own __getattr__ must not run.
        variables = _variables(value)
        if isinstance(value, _modules.Module):
            self.add_class(cls, path)
            self.add_dict(variables, path)
            return
        own = cls.__module__.split(".")[0]
        if own == "tapegrad":
            if variables and "param_groups" in variables:  # of an optimizer each replay reads the groups anew, if the function itself does not
                self.add_dict(variables, path, ("step", "zero_grad", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))
                self.dicts.append((variables, ("state", "param_groups"), False))  # load_state_dict exchanges them
                if "param_groups" in self.names:
                    self.add(variables["param_groups"], path + ".param_groups")
            elif variables:
                self.add_dict(variables, path, self.names)
            return
        if own == "numpy" and hasattr(cls, "item") and not hasattr(cls, "__setitem__"):
            return  # one number
        if variables is None:
            if any(hasattr(cls, name) for name in ("__setitem__", "add", "__next__", "write")) or getattr(cls, "__slots__", None):
                raise _Refused(f"{path} is a {cls.__name__}, whose changes cannot be seen")
            return
        self.add_class(cls, path)
        self.add_dict(variables, path, self.names)


def _names_of(code) -> set[str]:
    """The names in a function's code and in those that it defines."""
    names = {*code.co_names, *code.co_freevars}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _names_of(const)
        elif isinstance(const, str) and const.isidentifier():
            names.add(const)
    return names


class _Reach(_Walk):
    """A walk over functions that have not run: by all names that their code has."""

    def _function(self, value, path: str) -> None:
        super()._function(value, path)
        if isinstance(value, types.FunctionType) and not _of_package(value.__code__.co_filename):
            names = _names_of(value.__code__)
            self.names.update(names)
            for name in names & value.__globals__.keys():
                self.add(value.__globals__[name], name)

    def add_class(self, cls: type, path: str) -> None:
        super().add_class(cls, path)
        for base in cls.__mro__:  # what a call of an object runs
            for name in ("__call__", "forward", "__getattr__", "__getitem__"):
                if base.__module__.split(".")[0] not in ("tapegrad", "builtins") and name in vars(base):
                    self.add(vars(base)[name], f"{path}.{name}")


def reachable(functions):
    """The tensors that these functions may read, by the names in their code and in that of what they call; or a text: why it cannot be said."""
    names: set[str] = set()
    while True:
        before = len(names)
        walk = _Reach(names)
        try:
            for function in functions:
                walk.add(function, getattr(function, "__name__", "function"))
            walk.run()
        except _Refused as refused:
            return str(refused)
        except Exception as error:  # of a program's own __eq__ or __getattr__
            return f"what its functions read cannot be seen: {type(error).__name__}: {error}"
        if len(names) == before:
            return walk.tensors


def watch(function, observer: Observer, objects: list):
    """A `_Watch` over what the function and the code that it ran read, or a text that says why there can be none."""
    names: set[str] = set()
    for code in observer.codes:
        names.update(code.co_names, code.co_freevars, (c for c in code.co_consts if isinstance(c, str) and c.isidentifier()))
    walk = _Walk(names)
    try:
        for name, hooks in vars(_modules).items():
            if name.startswith("_global_") and isinstance(hooks, dict):
                walk.add_dict(hooks, name)
        walk.add(function, getattr(function, "__name__", "function"))
        for value in objects:
            walk.add(value, "an argument")
        read: dict[int, tuple] = {}
        for code, variables in observer.codes.items():
            _, known = read.setdefault(id(variables), (variables, set()))
            known.update(code.co_names)
        for variables, known in read.values():
            file = variables.get("__file__") or ""
            if file.startswith(_INSTALLED):
                continue
            walk.add_dict(variables, variables.get("__name__", "globals"), sorted(known), may_grow=True)
        walk.run()
    except _Refused as refused:
        return str(refused)
    except Exception as error:  # of a program's own __eq__ or __getattr__; the call itself has succeeded
        return f"what it reads cannot be watched: {type(error).__name__}: {error}"
    return _C._Watch(walk.dicts, walk.cells, walk.lists, walk.tensors, walk.types)
