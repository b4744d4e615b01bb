"""Objects of classes in files: which are allowed, how they are taken apart and put together without running anything of a file.

A file can name a class; it is used only if the program has allowed it: with `serialization.add_safe_globals`, or, for layers
(classes derived from nn.Module) with `load(..., weights_only=False)`; under PyTorch's name that also allows classes of the program
whose objects are attributes and nothing else. Nothing is imported because a file names it.
"""

import copyreg
import enum
import inspect
import pathlib
import re
import sys
import types
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from .. import Size, Tensor, dtype
from .._lazy import is_compat
from .errors import FileError, guarded

_safe: dict = {}  # callable, or (callable, name): in the order in which they were added
_NEVER = ("os", "sys", "posix", "nt")  # not even when the program allowed a name in them
_SUSPICIOUS = (*_NEVER, "subprocess", "builtins", "importlib", "shutil", "ctypes", "pickle", "runpy", "socket", "webbrowser", "pty")
_PACKAGE = {"tapegrad", "torch"}  # names of the library, which has the second while compat is installed
_ARRAY_DTYPE = re.compile(r"[<>|=]?[biufcSUmMV?]\d{0,9}(\[[\w]{1,12}\])?")


# Safe globals.
def _named(entry) -> tuple[str, Callable]:
    if isinstance(entry, tuple):
        if len(entry) != 2:
            raise ValueError(f"Expected tuple of length 2 (global, str of callable full path), but got tuple of length: {len(entry)}")
        if type(entry[1]) is not str:
            raise TypeError("Expected second item in tuple to be str of callable full path, but got: " + str(type(entry[1])))
        return entry[1], entry[0]
    return f"{entry.__module__}.{entry.__qualname__}", entry


def add_safe_globals(safe_globals: list) -> None:
    """Allows files to name these functions and classes. An entry is a callable or (callable, "full.name.in.the.file")."""
    _safe.update(dict.fromkeys(safe_globals))


def get_safe_globals() -> list:
    """What add_safe_globals has allowed."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Takes back what add_safe_globals allowed."""
    _safe.clear()


class safe_globals:  # noqa: N801
    """A context in which files may name these functions and classes, too."""

    def __init__(self, safe_globals: list) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        add_safe_globals(self.safe_globals)

    def __exit__(self, *_) -> None:
        for entry in self.safe_globals:
            _safe.pop(entry, None)


def module_class(module: str, name: str):
    """A class derived from nn.Module that the program has imported under this name, or None."""
    from ..nn import Module

    if module.startswith("torch."):
        if name == "NonDynamicallyQuantizableLinear":
            module = "tapegrad.nn.transformer"
        else:
            module = "tapegrad.nn" if module.startswith("torch.nn.modules.") else module.replace("torch", "tapegrad", 1)
    found = sys.modules.get(module)
    for part in name.split("."):
        found = None if found is None or part.startswith("__") else vars(found).get(part)
    return found if isinstance(found, type) and issubclass(found, Module) else None


def holds_attributes_only(cls: type) -> bool:
    """Whether making an object of a class and setting its attributes runs no method of it; or an enumeration, whose members are
    found by Policy.member."""
    if issubclass(cls, enum.Enum):
        return True
    return (cls.__new__ is object.__new__ and cls.__reduce__ is object.__reduce__ and cls.__reduce_ex__ is object.__reduce_ex__
            and not any(name in vars(base) for base in cls.__mro__ for name in ("__setstate__", "__del__", "__getnewargs__", "__getnewargs_ex__")))


def program_class(module: str, name: str):
    """A class of the program's own, already imported; or None. A file may name it, as data, while a program runs under PyTorch's
    name (compat.install), where it expects that."""
    if not is_compat() or module.partition(".")[0] in (*_SUSPICIOUS, *sys.stdlib_module_names):
        return None
    found = sys.modules.get(module) or sys.modules.get(module.replace("torch", "tapegrad", 1))
    for part in name.split("."):
        found = None if found is None or part.startswith("__") else vars(found).get(part)
    if not isinstance(found, type) or found.__module__ != module and not {found.__module__.partition(".")[0], module.partition(".")[0]} <= _PACKAGE:
        return None
    kind = type(found)  # a class of the file may be a key of a dictionary: no method of its metaclass runs then
    return found if kind.__hash__ is type.__hash__ and kind.__eq__ is type.__eq__ else None


def plain_class(module: str, name: str):
    """The same of a class whose objects are attributes and nothing else: files may hold its objects, too."""
    found = program_class(module, name)
    return found if found is not None and holds_attributes_only(found) else None


def class_named(value) -> list | None:
    """[module, class] of a class that stands in data itself, or None."""
    if not isinstance(value, type) or not isinstance(value.__module__, str) or "<" in value.__qualname__:
        return None
    named = [value.__module__, value.__qualname__]
    allowed = dict(map(_named, _safe)).get(".".join(named)) is value
    return named if allowed or module_class(*named) is value or program_class(*named) is value else None


_FUNCTIONS = {"torch.nn.functional": "nn.functional", "torch._C._nn": "nn.functional", "torch": "", "tapegrad.nn.functional": "nn.functional",
              "tapegrad": ""}


def _module_of(place: str):
    import tapegrad

    return tapegrad.nn.functional if place == "nn.functional" else tapegrad


def activation(module: str, name: str):
    """A function of nn.functional or of tapegrad itself, as layers keep one; or None. It is never called for a file."""
    if module not in _FUNCTIONS or name.startswith("_"):
        return None
    found = vars(_module_of(_FUNCTIONS[module])).get(name)
    return found if callable(found) and not isinstance(found, type) else None


def function_named(value) -> str | None:
    """Where a function of tapegrad is found again: "nn.functional.relu"."""
    name = getattr(value, "__name__", None)
    if isinstance(value, type) or not isinstance(name, str):
        return None
    for place in ("nn.functional", ""):
        if vars(_module_of(place)).get(name) is value:
            return f"{place}.{name}" if place else name
    return None


class Policy:
    """What the files that one call reads may name. `weights_only`: no layers, as PyTorch's argument of this name."""

    def __init__(self, weights_only: bool = True) -> None:
        self.weights_only = weights_only
        self.allowed = dict(map(_named, _safe))

    def find(self, module: str, name: str):
        """The class or function that the file means, or an error that says what to do."""
        full = f"{module}.{name}"
        top = module.split(".")[0]
        if full in self.allowed and top not in _NEVER:
            return self.allowed[full]
        if top in _SUSPICIOUS:
            raise FileError(f"load: the file names {full[:200]}, and only tensors and plain data are read: nothing of the module "
                            f"{top} is called for a file\nthis is what a file does that wants to run code: do not use it")
        layer = module_class(module, name) or activation(module, name)
        if layer is not None and (not self.weights_only or self.is_own(layer)):
            return layer  # allowed by the caller, or by the class itself: PyTorch's files name it by another path
        plain = plain_class(module, name) if layer is None else None
        if plain is not None and not self.weights_only:
            return plain
        do = [f"where you trust this class, allow it: tapegrad.serialization.add_safe_globals([{name[:100]}])"]
        if layer is not None:
            do.append("or load with weights_only=False, which allows layers that the program has imported")
        if plain is not None:
            do.append("or load with weights_only=False, which allows classes of the program whose objects hold attributes only")
        do.append("or save a state_dict() and plain data instead of objects")
        raise FileError(f"load: the file needs {full[:200]}, and only tensors and plain data are read\n" + "\n".join(do))

    def put_together(self, named, state):
        """An object of the container format."""
        if not (isinstance(named, list) and len(named) == 2 and all(isinstance(n, str) for n in named)):
            raise FileError("load: an object has no class")
        cls = self.find(*named)
        if isinstance(cls, type) and issubclass(cls, enum.Enum):
            return self.member(cls, state)
        if not isinstance(cls, type):
            raise FileError(f"load: {'.'.join(named)[:200]} is no class")
        return self.set_state(self.new(cls), state)

    def named_class(self, named):
        """A class of the container format that stands in data itself; no object is made of it here."""
        if not (isinstance(named, list) and len(named) == 2 and all(isinstance(n, str) for n in named)):
            raise FileError("load: a class has no name")
        found = (None if self.weights_only else program_class(*named)) or self.find(*named)
        if not isinstance(found, type):
            raise FileError(f"load: {'.'.join(named)[:200]} is no class")
        return found

    def member(self, cls, *args):
        """The member of an enumeration with a value. No method of a class that was not allowed runs for a file: neither the
        _missing_ of a value that no member has, nor what a metaclass makes of the call."""
        own = cls._missing_.__func__ not in (enum.Enum._missing_.__func__, enum.Flag._missing_.__func__)
        if self.is_own(cls) or not own and type(cls).__call__ is enum.EnumMeta.__call__:
            return guarded(cls, *args)
        for one in cls._member_map_.values():
            if len(args) == 1 and type(args[0]) is type(one._value_) and args[0] == one._value_:
                return one
        raise FileError(f"load: no {cls.__name__} has the value {repr(args)[:100]}")

    def function(self, name):
        """A function of the container format."""
        place, _, last = name.rpartition(".")
        found = self.find(f"tapegrad.{place}" if place else "tapegrad", last)
        if isinstance(found, type):
            raise FileError(f"load: {name[:100]} is no function")
        return found

    def is_own(self, found) -> bool:
        """Whether the caller allowed it: only that is called."""
        return any(found is allowed for allowed in self.allowed.values())

    def new(self, cls, *args):
        """An object of an allowed class, without its __init__."""
        if self.is_own(cls):
            return guarded(cls.__new__, cls, *args)
        if args:
            raise FileError(f"load: the file makes a {cls.__name__} in a way that is not read")
        return cls.__new__(cls)

    def set_state(self, instance, state):
        """What pickle's BUILD does: __setstate__ of an allowed class, or its attributes."""
        if self.is_own(type(instance)) and hasattr(instance, "__setstate__"):
            guarded(instance.__setstate__, state)
            return instance
        if hasattr(instance, "__setstate__"):
            if not isinstance(state, dict) or not all(type(name) is str for name in state):
                raise FileError(f"load: the state of a {type(instance).__name__} is damaged")
            instance.__setstate__(state)
            return instance
        return set_attributes(instance, state)


def set_attributes(instance, state):
    """Attributes by name, and those in slots."""
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        if not isinstance(part, (dict, type(None))):
            raise FileError(f"load: the state of a {type(instance).__name__} is damaged")
    for name, value in (state or {}).items():
        check_attribute(name)
        guarded(vars, instance)[name] = value
    for name, value in (slots or {}).items():
        check_attribute(name)
        # Not a property, whose setter is code that runs.
        if not isinstance(inspect.getattr_static(type(instance), name, None), types.MemberDescriptorType):
            raise FileError(f"load: a {type(instance).__name__} has no slot {name[:50]!r}")
        object.__setattr__(instance, name, value)
    return instance


# Taking apart.
class Refused(TypeError):
    """Of an object that files do not hold: a TypeError for whoever sees it."""


Refused.__module__, Refused.__name__, Refused.__qualname__ = "builtins", "TypeError", "TypeError"


def refusal(value, path: str) -> TypeError:
    kind, at = type(value), f" at {path!r}" if path else ""
    if hasattr(value, "state_dict"):
        hint = f"\nsave its state_dict() instead: save({{'{path or 'model'}': x.state_dict()}}, ...)"
    elif callable(value):
        hint = "\nfunctions and classes are not data: keep them in the program"
    else:
        hint = f"\nsave its plain values, or allow its class: tapegrad.serialization.add_safe_globals([{kind.__qualname__}])"
    return Refused(f"save: cannot save an object of class {kind.__module__}.{kind.__qualname__}{at}: "
                     f"files hold tensors and plain data only{hint}")


def _may_be_taken_apart(value) -> bool:
    from ..nn import Module

    cls = type(value)
    allowed = (isinstance(value, Module) or dict(map(_named, _safe)).get(f"{cls.__module__}.{cls.__qualname__}") is cls
               or plain_class(cls.__module__, cls.__qualname__) is cls)
    return allowed and "<" not in cls.__qualname__


def take_apart(value, path: str) -> tuple[list, object]:
    """[module, class] and the state of an object, where its class is allowed."""
    cls = type(value)
    if not _may_be_taken_apart(value):
        raise refusal(value, path)
    named = [cls.__module__, cls.__qualname__]
    if isinstance(value, enum.Enum):
        return named, value.value
    state = value.__getstate__() if hasattr(value, "__getstate__") else dict(vars(value))
    return named, state


def global_named(value) -> list | None:
    """[module, name] by which a function of the program is found again while it runs under PyTorch's name, or None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (callable(value) and isinstance(module, str) and isinstance(name, str) and is_compat()) or module.partition(".")[0] in _SUSPICIOUS:
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = None if found is None else getattr(found, part, None)
    return [module, name] if found is value else None


def reduced(value, path: str) -> tuple | None:
    """What pickle makes of an object of the program's own, as PyTorch's files have it: (function, arguments, state, elements, pairs).
    Only the program's own methods run, and only for saving; loading wants the names allowed. None where take_apart does it."""
    if _may_be_taken_apart(value) or not is_compat():
        return None
    own = copyreg.dispatch_table.get(type(value))
    try:
        parts = own(value) if own else value.__reduce_ex__(2)
    except TypeError as error:  # "cannot pickle ..."
        raise refusal(value, path) from error
    if not isinstance(parts, tuple) or not 2 <= len(parts) <= 5 or parts[0] is copyreg.__newobj_ex__:
        raise refusal(value, path)
    if parts[0] is not copyreg.__newobj__ and global_named(parts[0]) is None:
        raise refusal(value, path)
    return parts + (None,) * (5 - len(parts))


# Bounds of what a file may make.
def check_attribute(name) -> None:
    if not isinstance(name, str) or name.startswith("__"):
        raise FileError(f"load: an object has an attribute that cannot be set: {str(name)[:50]!r}")


_UNHASHABLE = (list, dict, set, bytearray, np.ndarray, deque, Namespace, SimpleNamespace, slice)


def check_key(key, left: int = 1000) -> int:
    """Refuses what has no fast hash: tuples that hold themselves many times over, numbers of thousands of digits."""
    left -= 1
    if left <= 0:
        raise FileError("load: a dictionary's key is too large")
    if isinstance(key, (tuple, frozenset)):
        for part in key:
            left = check_key(part, left)
    elif isinstance(key, int) and key.bit_length() > 4096:
        raise FileError("load: a dictionary's key is too large")
    elif isinstance(key, _UNHASHABLE):
        raise FileError(f"load: a {type(key).__name__} stands where a dictionary or a set needs a key")
    elif not isinstance(key, (str, bytes, int, float, complex, type(None), dtype, np.generic, type, Tensor, Size)):
        guarded(hash, key)
    return left


def numpy_dtype(text) -> np.dtype:
    """A dtype of numbers, texts or times from its short name."""
    if not isinstance(text, str) or not _ARRAY_DTYPE.fullmatch(text):
        raise FileError("load: an array has a dtype that is not one of numbers, texts or times")
    kind = np.dtype(text)
    if kind.hasobject:
        raise FileError("load: an array has a dtype that is not one of numbers, texts or times")
    return kind


def numpy_array(kind: np.dtype, shape, data, order: str = "C") -> np.ndarray:
    shape = tuple(shape)
    if kind.itemsize == 0 or len(shape) > 32 or any(type(n) is not int or n < 0 for n in shape):
        raise FileError("load: an array has a shape that does not exist")
    count = 1
    for n in shape:
        count *= n
    if count * kind.itemsize != len(data):
        raise FileError(f"load: an array of shape {shape} and dtype {kind} has {len(data)} bytes")
    return np.frombuffer(bytearray(data), dtype=kind, count=count).reshape(shape, order=order)


def numpy_scalar(kind: np.dtype, data) -> np.generic:
    if not isinstance(data, (bytes, bytearray)) or kind.itemsize == 0 or len(data) != kind.itemsize:
        raise FileError("load: a NumPy number has the wrong size")
    return np.frombuffer(bytes(data), dtype=kind)[0]


def dtype_named(name) -> dtype:
    import tapegrad

    found = vars(tapegrad).get(name) if isinstance(name, str) else None  # getattr would import what a file names
    if not isinstance(found, dtype):
        raise FileError(f"load: the file names a dtype that does not exist here: {str(name)[:50]!r}")
    return found


def path(text) -> pathlib.PurePath:
    return pathlib.Path(text)
