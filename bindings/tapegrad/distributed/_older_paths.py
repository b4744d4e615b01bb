"""PyTorch's older paths of parts of this package: module objects made here and entered into sys.modules, so that `import` of them works."""

from __future__ import annotations

import functools
import importlib
import sys
import types

# The parts are loaded when something is asked of them.
_PATHS = {"_composable.fsdp": "fsdp", "_tensor": "tensor", "_tensor.experimental": "tensor.experimental",
          "_tensor.placement_types": "tensor.placement_types", "algorithms.ddp_comm_hooks.default": "algorithms.ddp_comm_hooks.default_hooks"}
_PARENT = __package__


def _module(path: str) -> types.ModuleType:
    full = f"{_PARENT}.{path}"
    made = types.ModuleType(full, f"PyTorch's distributed.{path}.")
    made.__path__ = []
    sys.modules[full] = made
    parent, _, name = path.rpartition(".")
    holder = sys.modules.get(f"{_PARENT}.{parent}" if parent else _PARENT)
    if holder is not None:
        setattr(holder, name, made)
    return made


def make_all() -> None:
    """Makes every path."""
    from . import device_mesh

    for path, place in _PATHS.items():
        _module(path).__getattr__ = functools.partial(_later, f"{_PARENT}.{place}")
    sys.modules[f"{_PARENT}._tensor.device_mesh"] = sys.modules[f"{_PARENT}._tensor"].device_mesh = device_mesh


def _later(module: str, name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module(module), name)
