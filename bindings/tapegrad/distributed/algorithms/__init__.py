"""Uneven inputs (join), communication hooks, model averaging."""

from . import ddp_comm_hooks, join, model_averaging
from .join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable", "ddp_comm_hooks", "join", "model_averaging"]
