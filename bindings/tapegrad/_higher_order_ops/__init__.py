"""Loops and scans that PyTorch has for its compiler, run eagerly. Gradients pass through them as through any other calls."""

from __future__ import annotations

from .._root.deferred import cond, while_loop
from .associative_scan import associative_scan
from .loops import map, scan

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
