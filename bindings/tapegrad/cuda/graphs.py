"""Graphs of CUDA: work that is recorded once and replayed."""

from __future__ import annotations

from .._absent import missing_class as _missing_class
from . import _WHY, _missing

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

CUDAGraph = _missing_class("cuda.CUDAGraph", _WHY, RuntimeError, doc="Recorded work of a GPU.")
graph = _missing_class("cuda.graph", _WHY, RuntimeError, doc="A context that records a CUDAGraph.")
graph_pool_handle = _missing("graph_pool_handle")
make_graphed_callables = _missing("make_graphed_callables")


def is_current_stream_capturing() -> bool:
    """Whether a graph is being captured; without a GPU never."""
    return False
