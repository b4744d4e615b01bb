"""What a recorded function reads of Python's state: found while it runs, compared before each replay.

The observer is a profile function: it notes which functions outside of the package run, and calls of native functions that may have
an effect or read what changes by itself. `watch` walks from the function over what the code names (globals, variables of enclosing
functions, attributes), and puts dictionaries, lists, tensors and classes into a native `_Watch`."""

from __future__ import annotations

import builtins
import contextvars
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

from .. import _C, Tensor, _tensor
from ..nn import module as _modules
from . import _sizes

_PACKAGE = tuple({str(path.parents[1]) + os.sep for path in (Path(__file__), Path(__file__).resolve())})
_INSTALLED = tuple({str(Path(p)) + os.sep for p in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"],
                                                    sysconfig.get_paths()["platlib"], *site.getsitepackages())})
_MOST_OBJECTS = 20_000
_VALUES = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), slice, range, type(NotImplemented))  # not what is derived of them
_VIEWS = (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))

# Native functions that neither have an effect outside of their arguments nor read what changes by itself.
_KNOWN_BUILTINS = frozenset(
    "abs all any ascii bin bool callable chr delattr dir divmod enumerate filter format getattr hasattr hash hex id isinstance issubclass iter len "
    "locals max min next oct ord pow repr reversed round setattr sorted sum vars zip __build_class__ __import__".split())
_KNOWN_MODULES = frozenset(["math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "collections", "_collections", "copy",
                            "_abc", "_struct", "_weakref", "types", "numpy"])
_CONTAINERS = (str, bytes, list, dict, tuple, set, frozenset, int, float, complex, bool, type, types.FunctionType, property)
_NATIVE_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# Methods that change nothing, of containers whose class is the program's own.
_READS = frozenset("get keys values items copy index count __contains__ __getitem__ __len__ __iter__ __eq__ __hash__ union intersection difference".split())
# Where native calls of the package itself would have an effect.
_EFFECTS = frozenset(["time", "_io", "io", "random", "_random", "posix", "socket", "_socket", "select", "_posixsubprocess"])


_NO_VALUE = object()  # of a context variable


def _of_package(file: str) -> bool:
    return file.startswith(_PACKAGE)


def _is(value, kinds) -> bool:
    """isinstance by the type alone: a __class__ of the program's own does not run."""
    return issubclass(type(value), kinds)


def _is_ours(module: str) -> bool:
    """Whether a module's name is one of the package's, which are PyTorch's while compat is installed."""
    return module.partition(".")[0] in ("tapegrad", _tensor._root_name)


def _effect_of(frame, function) -> str | None:
    """Why a native function that the frame calls is nothing to replay, or None. The native observer asks where it does not know by itself."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", repr(function))
    if owner is sys and name in ("setprofile", "getprofile", "_getframe", "exc_info", "exception", "getrecursionlimit"):
        return None
    if _is(owner, types.ModuleType):
        module = owner.__name__
    if _of_package(frame.f_code.co_filename):
        effect = module in _EFFECTS or _is(owner, random.Random) or (module == "builtins" and name in ("print", "open", "input"))
        return _refusal(frame, name) if effect or type(owner).__module__ in ("_io", "socket") else None
    if _is_ours(module) or _is(owner, Tensor) or _is_ours(type(owner).__module__):
        return None
    if module == "builtins" and name in _KNOWN_BUILTINS or module in _KNOWN_MODULES:
        return None
    if owner is not None and not _is(owner, types.ModuleType) and (
            type(owner).__module__ in ("builtins", "collections") or _is(owner, type)
            or _is(owner, _CONTAINERS) and name.rpartition(".")[2] in _READS):
        return None
    method = name.rpartition(".")[2]
    native = next((base for base in type(owner).__mro__ if _is(vars(base).get(method), _NATIVE_METHODS)), None)
    if native is object or native is not None and _is_ours(native.__module__):  # of an object whose class derives of ours
        return None
    return _refusal(frame, f"{module}.{name}" if module not in ("", "builtins") else name)


def _refusal(frame, name: str) -> str:
    while frame.f_back is not None and _of_package(frame.f_code.co_filename):
        frame = frame.f_back
    return f"it calls {name} at {frame.f_code.co_filename}:{frame.f_lineno}, which may have an effect or read what changes"


def observer(pure: bool, sizes):
    """Notes which code runs in a `with` statement (`codes`, with its globals), and whether it calls what may have an effect (`reason`): a native
    profile function; and the context variables that are read or set, with their values before. It rests while garbage is collected: what is called then, the program's gc.callbacks and the finalizers of what happened
    to be garbage, is no part of the step."""
    contexts: dict[contextvars.ContextVar, object] = {}

    def effect_of(frame, function):
        owner = getattr(function, "__self__", None)
        if type(owner) is not contextvars.ContextVar:
            return _effect_of(frame, function)
        contexts.setdefault(owner, owner.get(_NO_VALUE))
        return None

    return _C._Observer(sizes, effect_of, _sizes.Followed.__new__.__code__.co_filename, _PACKAGE, pure), contexts


# Of an optimizer: what is visited, and what load_state_dict exchanges.
_OF_OPTIMIZERS = frozenset(("step", "zero_grad", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))
_EXCHANGED = frozenset(("state", "param_groups"))


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that can be changed
_ALL_ATTRIBUTES = {"__dict__", "vars"}  # who names these may read any


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
    """From a function over what the names of its code reach. Dictionaries, lists, tensors, classes and modules of layers are visited natively,
    what is left here."""

    methods: frozenset = frozenset()  # of classes, to be visited though nobody names them

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.native = _C._Walk(names, _modules.Module, _VALUES, self.methods, _MOST_OBJECTS)
        self.add, self.add_dict = self.native.add, self.native.add_dict

    def run(self) -> None:
        if not self.native.run(self._visit):
            raise _Refused(f"it reads more than {_MOST_OBJECTS} objects of the program")

    def _visit(self, value, path: str) -> None:
        if _is(value, types.ModuleType):
            file = getattr(value, "__file__", None)
            if value.__name__ not in sys.builtin_module_names and not (file and (_of_package(file) or file.startswith(_INSTALLED))):
                self.add_dict(vars(value), path, self.names, True)
        elif _is(value, (types.FunctionType, types.MethodType, functools.partial, staticmethod, classmethod, property)):
            self._function(value, path)
        elif _is(value, types.BuiltinFunctionType):
            if not _is(value.__self__, (types.ModuleType, type(None))):
                self.add(value.__self__, path)
        else:
            self._object(value, type(value), path)

    def _function(self, value, path: str) -> None:
        if _is(value, types.MethodType):
            self.add(value.__self__, path)
            self.add(value.__func__, path)
        elif _is(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.add(part, path)
        elif _is(value, property):
            for part in (value.fget, value.fset):
                self.add(part, path)
        elif _is(value, (staticmethod, classmethod)):
            self.add(value.__func__, path)
        elif not _of_package(value.__code__.co_filename):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    content = cell.cell_contents
                except ValueError:
                    continue
                self.native.add_cell(cell)
                self.add(content, name)
            self.native.add_function(value)
            self.add(value.__defaults__, path)
            self.add(value.__kwdefaults__, path)
            if value.__dict__:
                self.add_dict(value.__dict__, path, self.names)

    def _object(self, value, cls: type, path: str) -> None:
        # Not by hasattr: a program's own __getattr__ must not run.
        variables = _variables(value)
        own = cls.__module__.partition(".")[0]
        if variables and "last_epoch" in variables:  # a schedule of the learning rate, whose step() counts in code of the package
            self.add_dict(variables, path, None)
        if _is_ours(own):
            if variables and "param_groups" in variables:  # of an optimizer each replay reads the groups anew, if the function itself does not
                self.add_dict(variables, path, _OF_OPTIMIZERS)
                self.native.watch_dict(variables, _EXCHANGED)
                if "param_groups" in self.names:
                    self.add(variables["param_groups"], path + ".param_groups")
            elif variables:
                self.add_dict(variables, path, self.names)
            return
        if own == "typing":  # annotations
            return
        if own == "numpy" and hasattr(cls, "item") and not hasattr(cls, "__setitem__"):
            return  # one number
        if _is(value, _VIEWS):
            for part in gc.get_referents(value):
                self.add(part, path)
            return
        slots = any(_is(vars(base).get(name), types.MemberDescriptorType)
                    for base in cls.__mro__ if base.__flags__ & _HEAP_TYPE for name in self.names & vars(base).keys())
        unseen = not _is(value, (list, dict, set)) and any(hasattr(cls, name) for name in ("__setitem__", "add", "__next__", "write"))
        if slots or _is(value, threading.local) or variables is None and (unseen or getattr(cls, "__slots__", None)):
            raise _Refused(f"{path} is a {cls.__name__}, whose changes cannot be seen")
        self.native.add_object(value)
        if cls.__flags__ & _HEAP_TYPE:
            self.native.add_class(cls)
        if variables is not None:
            self.add_dict(variables, path, None if self.names & _ALL_ATTRIBUTES else self.names)


def _texts_of(constants) -> set[str]:
    """What may be names of attributes, also in `for name in ("a", "b")`."""
    found = {c for c in constants if isinstance(c, str) and c.isidentifier()}
    return found.union(*(_texts_of(c) for c in constants if isinstance(c, (tuple, frozenset))))


def _names_of(code) -> set[str]:
    """The names in a function's code and in those that it defines."""
    names = {*code.co_names, *code.co_freevars, *_texts_of(code.co_consts)}
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _names_of(const)
    return names


class _Reach(_Walk):
    """A walk over functions that have not run: by all names that their code has."""

    methods = frozenset(("__call__", "forward", "__getattr__", "__getitem__"))  # what a call of an object runs

    def _function(self, value, path: str) -> None:
        super()._function(value, path)
        if _is(value, types.FunctionType) and not _of_package(value.__code__.co_filename):
            names = _names_of(value.__code__)
            self.names.update(names)
            for name in names & value.__globals__.keys():
                self.add(value.__globals__[name], name)


def reachable(functions):
    """The tensors that these functions may read, by the names in their code and in that of what they call; or a text: why it cannot be said."""
    names: set[str] = set()
    while True:
        before = len(names)
        walk = _Reach(names)
        try:
            for function in functions:
                walk.add(function, str(getattr(function, "__name__", "function")))
            walk.run()
        except _Refused as refused:
            return str(refused)
        except Exception as error:  # of a program's own __eq__ or __getattr__
            return f"what its functions read cannot be seen: {type(error).__name__}: {error}"
        if len(names) == before:
            return walk.native.tensors


def watch(function, observer, objects: list, contexts: dict):
    """A `_Watch` over what the function and the code that it ran read, or a text that says why there can be none. Context variables
    have to be again what they were before."""
    for variable, before in contexts.items():
        if variable.get(_NO_VALUE) is not before:
            return f"it leaves the context variable {variable.name} with another value"
    names: set[str] = set()
    for code in observer.codes:
        names.update(code.co_names, code.co_freevars, _texts_of(code.co_consts))
    walk = _Walk(names)
    try:
        for name, hooks in vars(_modules).items():
            if name.startswith("_global_") and isinstance(hooks, dict):
                walk.add_dict(hooks, name)
        for variable in contexts:
            walk.native.add_context(variable)
            walk.add(variable.get(None), variable.name)
        walk.add(function, str(getattr(function, "__name__", "function")))
        for value in objects:
            walk.add(value, "an argument")
        read: dict[int, tuple] = {}
        for code, variables in observer.codes.items():
            _, known = read.setdefault(id(variables), (variables, set()))
            known.update(code.co_names)
        walk.add_dict(vars(builtins), "builtins", set().union(*(known for _, known in read.values())), True)
        for variables, known in read.values():
            if variables is vars(os):
                walk.add_dict(os.environ._data, "os.environ")
            file = variables.get("__file__") or ""
            if file.startswith(_INSTALLED):
                continue
            walk.add_dict(variables, str(variables.get("__name__", "globals")), known, True)
        walk.run()
    except _Refused as refused:
        return str(refused)
    except Exception as error:  # of a program's own __eq__ or __getattr__; the call itself has succeeded
        return f"what it reads cannot be watched: {type(error).__name__}: {error}"
    return walk.native.watch()
