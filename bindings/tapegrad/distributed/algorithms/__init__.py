"""Uneven inputs, hooks of gradients, means of models."""

from . import ddp_comm_hooks, join, model_averaging
from .join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable", "ddp_comm_hooks", "join", "model_averaging"]
