"""The modules `mps`, `xpu` and `mtia`: devices of PyTorch that tapegrad has not. They say that there are none."""

from __future__ import annotations

import sys
import types

from ._absent import missing_class, missing_function

_TITLES = {"mps": "Apple's GPUs", "xpu": "Intel's GPUs", "mtia": "Meta's accelerators"}
_FALSE = ("is_available", "is_current_stream_capturing", "is_initialized", "is_bf16_supported", "is_built")
_NOTHING = ("manual_seed", "manual_seed_all", "seed", "seed_all", "empty_cache", "reset_peak_memory_stats", "clear_graph_cache")
_ZERO = ("device_count", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_allocated_memory",
         "driver_allocated_memory", "recommended_max_memory")
_REFUSED = ("synchronize", "current_device", "current_stream", "set_device", "set_stream", "stream", "get_rng_state", "set_rng_state",
            "get_device_name", "get_device_capability", "get_device_properties", "mem_get_info")


def _answer(name: str, value, doc: str):
    def function(*args, **kwargs):
        return value

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def make(name: str) -> types.ModuleType:
    """The module of such devices, entered into sys.modules."""
    full, title = f"{__package__}.{name}", _TITLES[name]
    why = f"{title} are not supported\nuse device='cpu', or ask tapegrad.{name}.is_available() first"
    module = types.ModuleType(full, f"{title}, which are not supported: there are none, and using them says so.")
    members = {f: _answer(f, False, "False.") for f in _FALSE}
    members.update({f: _answer(f, None, "Accepted: there is no such device.") for f in _NOTHING})
    members.update({f: _answer(f, 0, "0.") for f in _ZERO})
    members.update({f: missing_function(f"{name}.{f}", why, RuntimeError) for f in _REFUSED})
    members.update({c: missing_class(f"{name}.{c}", why, RuntimeError) for c in ("Stream", "Event", "device")})

    def __getattr__(attribute: str):
        from ._hints import no_attribute

        raise no_attribute(full, attribute, members)

    vars(module).update(members, __all__=sorted(members), __getattr__=__getattr__, __package__=full, __file__=__file__)
    sys.modules[full] = module
    return module
