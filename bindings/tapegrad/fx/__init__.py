"""PyTorch's graphs of Python programs. tapegrad runs eagerly and records none: names can be imported, using them says so."""

from __future__ import annotations

import sys
import types

from .._absent import missing_class, missing_function

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "replace_pattern", "symbolic_trace", "wrap"]

_WHY = "programs are not recorded as graphs: tapegrad runs eagerly"

Graph = missing_class("fx.Graph", _WHY)
GraphModule = missing_class("fx.GraphModule", _WHY)
Interpreter = missing_class("fx.Interpreter", _WHY)
Node = missing_class("fx.Node", _WHY)
Proxy = missing_class("fx.Proxy", _WHY)
Tracer = missing_class("fx.Tracer", _WHY)
Transformer = missing_class("fx.Transformer", _WHY)
replace_pattern = missing_function("fx.replace_pattern", _WHY)
symbolic_trace = missing_function("fx.symbolic_trace", _WHY)


def wrap(fn_or_name):
    """Accepted, as a call or a decorator: functions that a tracer would leave alone."""
    return fn_or_name


def has_side_effect(fn):
    """Accepted: the function itself."""
    return fn


def _room(name: str, **members) -> None:
    """One of the paths that PyTorch's source keeps these names under."""
    module = types.ModuleType(f"{__name__}.{name}", f"What PyTorch keeps in fx/{name.replace('.', '/')}.py.")
    vars(module).update(members)
    sys.modules[module.__name__] = module
    parent, _, last = module.__name__.rpartition(".")
    setattr(sys.modules[parent], last, module)


_room("graph_module", GraphModule=GraphModule, _copy_attr=missing_function("fx.graph_module._copy_attr", _WHY))
_room("graph", Graph=Graph)
_room("node", Node=Node, Target=object, Argument=object, map_arg=missing_function("fx.node.map_arg", _WHY))
_room("proxy", Proxy=Proxy, TracerBase=Tracer, GraphAppendingTracer=missing_class("fx.proxy.GraphAppendingTracer", _WHY))
_room("interpreter", Interpreter=Interpreter, Transformer=Transformer)
_room("_symbolic_trace", Tracer=Tracer, symbolic_trace=symbolic_trace, wrap=wrap, is_fx_tracing=lambda: False)
_room("experimental", __path__=[])
_room("experimental.proxy_tensor", get_proxy_mode=lambda: None, make_fx=missing_function("fx.experimental.proxy_tensor.make_fx", _WHY))
# Sizes are numbers here: what is asked of symbols is asked of them.
_room("experimental.symbolic_shapes", guard_or_false=bool, guard_or_true=bool, guard_size_oblivious=bool, statically_known_true=bool,
      is_symbolic=lambda value: False, free_symbols=lambda value: set(), free_unbacked_symbols=lambda value: set(), hint_int=int,
      GuardOnDataDependentSymNode=missing_class("fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", _WHY, bases=(RuntimeError,)))
