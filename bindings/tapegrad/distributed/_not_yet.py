"""The parts of torch.distributed that are not there yet, by PyTorch's paths: importing works, using says why not.

Each path is a module object made here and entered into sys.modules, so that `import` of it works.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types

from .._absent import missing_class, missing_function

_WHY = "remote calls are not there yet"

# Classes and functions by path.
_PATHS = {
    "_composable.replicate": ("", "replicate"),
}
# Paths that hold what another one holds.
_ALSO = {"algorithms.ddp_comm_hooks.default": None}
# Older paths of what is there and is loaded when it is asked for.
_LOADED_LATER = {"_composable.fsdp": "fsdp", "_tensor": "tensor", "_tensor.experimental": "tensor.experimental",
                 "_tensor.placement_types": "tensor.placement_types"}


_PARENT = __package__


def _module(path: str) -> types.ModuleType:
    """The module of a path, made with its parents if need be."""
    full = f"{_PARENT}.{path}"
    if full not in sys.modules:
        made = types.ModuleType(full, f"Names of PyTorch's distributed.{path}, which are not there yet.")
        made.__path__ = []
        sys.modules[full] = made
        parent, _, name = path.rpartition(".")
        setattr(_module(parent) if parent else sys.modules[_PARENT], name, made)
    return sys.modules[full]


def make_all() -> None:
    """Makes every path."""
    known: dict[str, type] = {}  # one class for a name at several paths
    for path, (classes, functions) in _PATHS.items():
        members: dict = {}
        for name in classes.split():
            members[name] = known.setdefault(name, missing_class(f"distributed.{path}.{name}", _WHY))
        members.update({name: missing_function(f"distributed.{path}.{name}", _WHY) for name in functions.split()})
        vars(_module(path)).update(members, __all__=sorted(members))
    from . import device_mesh
    from .algorithms.ddp_comm_hooks import default_hooks

    for path, same in _ALSO.items():
        source = default_hooks if same is None else _module(same)
        vars(_module(path)).update({name: getattr(source, name) for name in source.__all__})
    _module("_tensor").device_mesh = device_mesh
    sys.modules[f"{_PARENT}._tensor.device_mesh"] = device_mesh
    for path, later in _LOADED_LATER.items():
        _module(path).__getattr__ = functools.partial(_later, f"{_PARENT}.{later}")


def _later(module: str, name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module(module), name)
