"""PyTorch's compiler of byte code, as scripts steer it. Nothing is compiled: switches are kept, decorators give their function back."""

from __future__ import annotations

import importlib

from .._absent import missing_function
from ..compiler import allow_in_graph, assume_constant_result, disable, is_compiling, list_backends, reset
from . import config

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "explain", "graph_break", "is_compiling",
           "list_backends", "mark_dynamic", "mark_static", "maybe_mark_dynamic", "optimize", "reset", "run"]


def optimize(backend="inductor", *args, **options):
    """A decorator that gives its function or module back."""
    return lambda fn: fn


def run(fn=None):
    """The function itself."""
    return (lambda f: f) if fn is None else fn


def disallow_in_graph(fn):
    """The function itself."""
    return fn


def graph_break(*args, **kwargs) -> None:
    """There is no graph to break."""


def mark_dynamic(t, index=None, *args, **kwargs) -> None:
    """Accepted: any size may differ from call to call."""


mark_static = maybe_mark_dynamic = mark_dynamic


def mark_static_address(t, guard=False) -> None:
    """Accepted: nothing is recorded whose memory would have to stay."""



def __getattr__(name: str):
    if name in ("OptimizedModule", "eval_frame"):  # tapegrad.nn comes with it
        eval_frame = importlib.import_module(f"{__name__}.eval_frame")
        return eval_frame if name == "eval_frame" else eval_frame.OptimizedModule
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)


explain = missing_function("_dynamo.explain", "nothing is compiled: tapegrad runs eagerly")
