"""What rows of names.py can say of names. Each function gives {name: Row}; a row makes the object for the module that asks.

Names come as text, "load save"; where another module has them under another name, "load_url=load_state_dict_from_url".
"""

import enum
import re
from collections.abc import Callable
from typing import NamedTuple

from .._lazy import load
from .absent import missing_class, missing_function

_ROOT = __package__.partition(".")[0]


class Row(NamedTuple):
    """How a name is made for a module ("tapegrad.fx"): with the module, or `later`, at its first use, where that imports much."""

    make: Callable[[str], object]
    later: bool = False


class Module(NamedTuple):
    """The rows of a module. `doc` is None where the module is a file of its own, and only some of its names stand here.

    `unknown`, if any, is the RuntimeError for all other names.
    """

    doc: str | None
    rows: dict[str, Row]
    unknown: str = ""


def module(doc: str | None, *rows: dict[str, Row], unknown: str = "") -> Module:
    """A module by its rows."""
    return Module(doc, {name: row for group in rows for name, row in group.items()}, unknown)


def place_of(path: str) -> object:
    """What "" (the root), "nn" or "nn.Module" is in tapegrad."""
    try:
        return load(f"{_ROOT}.{path}" if path else _ROOT)
    except ModuleNotFoundError as error:
        parent, _, name = path.rpartition(".")
        if error.name != f"{_ROOT}.{path}":
            raise
        return getattr(place_of(parent), name)


def functions(result: str, names: str, doc: str) -> dict[str, Row]:
    """Functions whose body is one expression, such as "False" or a parameter. "f(x, y=1)" has those parameters, "f" takes any."""
    def make(owner: str, name: str, parameters: str):
        function = eval(f"lambda {parameters}: {result}", {})  # as namedtuple makes its own: the signature is a real one
        function.__name__ = function.__qualname__ = name
        function.__module__, function.__doc__ = owner, doc
        return function

    found = re.findall(r"(\w+)(\((?:[^()]|\(\))*\))?", names)
    return {name: Row(lambda owner, name=name, given=given[1:-1] if given else "*args, **kwargs": make(owner, name, given)) for name, given in found}


def values(**named) -> dict[str, Row]:
    """Constants."""
    return {name: Row(lambda owner, value=value: value) for name, value in named.items()}


def refused(names: str, why: str, error: type = NotImplementedError) -> dict[str, Row]:
    """Functions that raise `error` with their name and one sentence."""
    def row(name: str) -> Row:
        def make(owner: str):
            function = missing_function(f"{owner.partition('.')[2]}.{name}", why, error)
            function.__module__ = owner
            return function

        return Row(make)

    return {name: row(name) for name in names.split()}


def classes(names: str, why: str, error: type = NotImplementedError, bases: tuple[type, ...] | str = ()) -> dict[str, Row]:
    """Classes that can be named, subclassed and asked for with isinstance; making one raises `error`. A base may be a path in tapegrad; {} in it is the name."""
    def make(owner: str, name: str):
        return missing_class(f"{owner.partition('.')[2]}.{name}", why, error, (place_of(bases.format(name)),) if isinstance(bases, str) else bases)

    return {name: Row(lambda owner, name=name: make(owner, name), isinstance(bases, str)) for name in names.split()}


def subclasses(names: str, base: type | str, doc: str) -> dict[str, Row]:
    """Classes that are as their base, which may be a path in tapegrad."""
    def make(owner: str, name: str):
        return type(name, (place_of(base) if isinstance(base, str) else base,), {"__module__": owner, "__doc__": doc})

    return {name: Row(lambda owner, name=name: make(owner, name)) for name in names.split()}


def enumeration(name: str, members: dict, doc: str, type: type | None = None) -> dict[str, Row]:
    """An enum."""
    def make(owner: str):
        made = enum.Enum(name, members, module=owner, type=type)
        made.__doc__ = doc
        return made

    return {name: Row(make)}


def dataclass(name: str, fields: list[tuple], doc: str) -> dict[str, Row]:
    """A frozen dataclass of fields (name, type) or (name, type, default)."""
    def make(owner: str):
        from dataclasses import make_dataclass

        made = make_dataclass(name, fields, namespace={"__module__": owner, "__doc__": doc}, frozen=True)
        made.__module__ = owner  # from Python 3.12 on it is that of the caller otherwise
        return made

    return {name: Row(make)}


def borrowed(place: str, names: str) -> dict[str, Row]:
    """What another module of tapegrad has, or a class of it."""
    pairs = (name.partition("=") for name in names.split())
    return {here: Row(lambda owner, there=there or here: getattr(place_of(place), there)) for here, _, there in pairs}


def defined(names: str) -> dict[str, Row]:
    """What definitions.py has; its objects are taken for the module's own."""
    def make(owner: str, name: str):
        value = getattr(place_of("compat.definitions"), name)
        value.__module__ = owner
        return value

    return {name: Row(lambda owner, name=name: make(owner, name)) for name in names.split()}


class SecondPath(NamedTuple):
    """A second path of a whole module, which is loaded when a name is asked of it."""

    of: str
