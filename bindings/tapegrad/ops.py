"""Operators by namespace: `ops.aten.add` is tapegrad's add, `ops.mine.f` an operator of `library`.

Libraries of compiled operators for PyTorch cannot be loaded.
"""

import sys
import types

from . import _C
from .compat.absent import missing_function

load_library = missing_function("ops.load_library", "libraries of operators that were compiled for PyTorch cannot be loaded", OSError)
loaded_libraries: set = set()


class _Schema:
    """Name and overload of an operator, and whether it writes to its first argument."""

    def __init__(self, name: str, overload: str):
        self.name, self.overload_name = name, "" if overload == "default" else overload
        self.is_mutable = name.endswith("_") and not name.endswith("__")

    def __str__(self) -> str:
        return self.name + ("." + self.overload_name if self.overload_name else "")


class Overload:
    """One form of an operator, `ops.aten.add.Tensor`: what `__torch_dispatch__` is given. Calls the operator."""

    def __init__(self, packet, overload: str):
        self.overloadpacket = self._overloadpacket = packet
        self._overloadname, self._opname, self.namespace = overload, packet.__name__, packet._qualified_op_name.partition("::")[0]
        self.__name__, self.__doc__ = f"{packet.__name__}.{overload}", packet.__doc__
        self._schema = _Schema(packet._qualified_op_name, overload)

    def __call__(self, *args, **kwargs):
        given = (*args, *kwargs.values()) if kwargs else args
        if _C._has_torch_function_variadic(*given):
            return _C._handle_torch_function(self, given, *args, **kwargs)
        return self.overloadpacket(*args, **kwargs)

    def name(self) -> str:
        """aten::add.Tensor; of the form that is called default without it."""
        return str(self._schema)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"


class _Form:
    """A function of tapegrad as an operator: callable, with its overloads, each of which calls the function."""

    def __init__(self, space: str, name: str, function):
        self._qualified_op_name, self.__name__, self._function = f"{space}::{name}", name, function
        self.__doc__ = function.__doc__

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    def overloads(self) -> list:
        """The names of the overloads."""
        return ["default"]

    def __getattr__(self, overload: str):
        if overload.startswith("_"):
            raise AttributeError(overload)
        form = Overload(self, overload)
        setattr(self, overload, form)
        return form

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".")


def _to_copy(x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    """A copy of another dtype or on another device."""
    return x.to(dtype=dtype, device=device, copy=True, memory_format=memory_format)


def _slice(x, dim=0, start=None, end=None, step=1):
    """Part of a dimension, as a view."""
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


# PyTorch's names for what Python writes otherwise, and operators that are only named here: libraries key tables with them.
_WRITTEN_OTHERWISE = {"_to_copy": _to_copy, "slice": _slice, "index": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
                      "alias": lambda x: x.view_as(x), "sym_size": lambda x, dim=None: x.size() if dim is None else x.size(dim),
                      "_local_scalar_dense": lambda x: x.item(), "_unsafe_view": lambda x, size: x.reshape(size)}
# Ranges of the profiler: begin(name, args=None) gives what end takes.
_RANGES = {"_record_function_enter": lambda name, args=None: _C._profiler_begin(name), "_record_function_exit": lambda handle: _C._profiler_end(handle)}
_RANGES["_record_function_enter_new"] = _RANGES["_record_function_enter"]
_ONLY_NAMED = frozenset("_pin_memory _sparse_addmm _sparse_mm_reduce_impl _scaled_dot_product_flash_attention _scaled_dot_product_cudnn_attention "
                        "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention_backward "
                        "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention_backward _assert_scalar".split())


class _Namespace(types.ModuleType):
    """ops.aten and other namespaces."""

    def __getattr__(self, name: str):
        from .library import _known

        space = self.__name__.rpartition(".")[2]
        found = _known.get(f"{space}::{name}")
        if found is not None:
            return found
        if space == "profiler" and name in _RANGES:
            return _Form(space, name, _RANGES[name])
        if space in ("aten", "prims") and not name.startswith("__"):
            root = sys.modules[__package__]
            for place in (_WRITTEN_OTHERWISE, root, root.nn.functional, root.special, root.linalg, root.Tensor, _C._functions["_C._ops"]):
                function = place.get(name) if isinstance(place, dict) else getattr(place, name, None)
                if name in _ONLY_NAMED:
                    function = missing_function(f"ops.{space}.{name}", "an operator of PyTorch's own kernels, which tapegrad has under other names")
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
