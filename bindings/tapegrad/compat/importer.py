"""Makes the modules of names.py when they are imported, and finds what is asked of them and of modules that have some of their names there.

_lazy.py is how the library comes here: by a finder at the end of sys.meta_path, and by `__getattr__` of modules.
"""

from __future__ import annotations

import importlib.machinery
import sys

from .._hints import no_attribute
from .._lazy import is_compat, load, more_names
from . import names, native, places
from .kinds import Module, SecondPath, place_of

_ROOT = __package__.partition(".")[0]


def _path(module: str) -> str:
    return module.partition(".")[2]


class _Loader:
    """Fills a new module with its rows."""

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module) -> None:
        full, entry = module.__name__, names.MODULES[_path(module.__name__)]
        space = vars(module)
        if isinstance(entry, Module):
            space["__doc__"] = entry.doc
            space.update((name, row.make(full)) for name, row in entry.rows.items() if not row.later)
            space["__all__"] = sorted(name for name in names_of(full) if not name.startswith("_"))
        else:
            space["__doc__"] = f"{_ROOT}.{entry.of}, by a second path that PyTorch has for it."
        space["__getattr__"], space["__dir__"] = more_names(full)


def spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module of the table, for the finder of _lazy.py."""
    entry = names.MODULES.get(_path(name))
    if entry is None or isinstance(entry, Module) and entry.doc is None:
        return None
    made = importlib.machinery.ModuleSpec(name, _Loader, origin=names.__file__, is_package=True)
    made.has_location = True
    return made


def names_of(module: str) -> set[str]:
    """The names that the table has of a module: its rows and the modules below it."""
    path = _path(module)
    entry = names.MODULES.get(path)
    below = f"{path}." if path else ""
    children = {name[len(below):] for name in names.MODULES if name.startswith(below) and "." not in name[len(below):]}
    if isinstance(entry, SecondPath):
        return children | {name for name in dir(place_of(entry.of)) if not name.startswith("__")}
    return children | set(entry.rows if entry else ())


def get(module: str, name: str):
    """What the table has of a module under a name. Raises AttributeError with the most similar name."""
    path, owner = _path(module), sys.modules[module]
    below, entry = f"{path}.{name}" if path else name, names.MODULES.get(path)
    if below in names.MODULES:
        return load(f"{_ROOT}.{below}")
    if isinstance(entry, SecondPath):
        return getattr(place_of(entry.of), name)
    if entry and name in entry.rows:
        return places.renamed(vars(owner).setdefault(name, entry.rows[name].make(module)))
    if not path and is_compat() and name in native.ROWS:
        return native.name(name)  # PyTorch's package has them, too
    if entry and entry.unknown:
        raise RuntimeError(entry.unknown.format(name=name))
    raise no_attribute(module, name, dir(owner))
