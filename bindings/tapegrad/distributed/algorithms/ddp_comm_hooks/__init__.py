"""Hooks that pass gradients on in a shorter form."""

from . import default_hooks

__all__ = ["default_hooks"]
