"""Modules below PyTorch's private native module, `torch._C._linalg`: each has the names of modules here, some behind a prefix."""

import sys
import types

from .. import _C
from ..func import _vmap
from .kinds import place_of

# PyTorch's module: the prefix of its names, and where they are here.
_PLACES = {
    "_VariableFunctions": ("", ("",)),
    "_autograd": ("", ("_C._autograd", "profiler", "autograd")),
    "_distributed_c10d": ("", ("distributed", "distributed.distributed_c10d")),
    "_distributed_rpc": ("", ("distributed.rpc",)),
    "_fft": ("fft_", ("fft",)),
    "_functorch": ("", ()),
    "_linalg": ("linalg_", ("linalg",)),
    "_nn": ("", ("nn.functional", "nn.module")),
    "_profiler": ("", ("profiler",)),
    "_special": ("special_", ("special",)),
}


def is_batchedtensor(tensor) -> bool:
    """Whether vmap has made the tensor of the samples of another one."""
    return _C._vmap_level(tensor) > 0


def maybe_get_level(tensor) -> int:
    """The level of vmap that a tensor belongs to; -1 where it belongs to none."""
    return _C._vmap_level(tensor) or -1


def get_unwrapped(tensor):
    """The tensor of all samples."""
    if not is_batchedtensor(tensor):
        raise RuntimeError("_functorch.get_unwrapped: expected a tensor of vmap's samples")
    return _C._vmap_physical(tensor)


_FUNCTIONS = {"_functorch": {"is_batchedtensor": is_batchedtensor, "is_functorch_wrapped_tensor": is_batchedtensor, "maybe_get_level": maybe_get_level,
                             "is_gradtrackingtensor": lambda tensor: False, "get_unwrapped": get_unwrapped, "_add_batch_dim": _vmap._to_level,
                             "_remove_batch_dim": lambda tensor, level, size, dim: _vmap._from_level("vmap", tensor, dim, level, size)}}


class _Module(types.ModuleType):
    """One of them."""

    def __getattr__(self, name: str):
        module = self.__name__.rpartition(".")[2]
        prefix, places = _PLACES[module]
        if name in _FUNCTIONS.get(module, ()):
            return _FUNCTIONS[module][name]
        if not name.startswith("__") and name.startswith(prefix):
            for place in places:
                try:
                    return getattr(place_of(place), name.removeprefix(prefix))
                except (AttributeError, ImportError):  # the second where an import asks
                    continue
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'\nit is a part of PyTorch's native module, of which public names are here", name=name)


_modules = {name: _Module(f"torch._C.{name}", "Names of a part of PyTorch's native module.") for name in _PLACES}


def get(name: str):
    """One of them; None for other names."""
    return _modules.get(name)


def put() -> set[str]:
    """Makes them importable, and gives their names: the native module is no package, so that no finder is asked for what is below it."""
    for module in _modules.values():
        sys.modules.setdefault(module.__name__, module)
    return {module.__name__ for module in _modules.values()}
