"""Tensors spread over several GPUs."""

from __future__ import annotations

from . import _missing

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]

broadcast = _missing("cuda.comm.broadcast")
broadcast_coalesced = _missing("cuda.comm.broadcast_coalesced")
reduce_add = _missing("cuda.comm.reduce_add")
reduce_add_coalesced = _missing("cuda.comm.reduce_add_coalesced")
scatter = _missing("cuda.comm.scatter")
gather = _missing("cuda.comm.gather")
