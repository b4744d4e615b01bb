"""Control flow as operators, under PyTorch's names: `cond`, `while_loop`, `scan`, `associative_scan`, `map`.

Called eagerly they are loops and branches of Python, and gradients pass through them as through any other calls. Recorded steps and
programs keep them as one call each: see docs/recorded.md."""

from .associative_scan import associative_scan
from .cond import cond
from .map import map
from .scan import scan
from .while_loop import while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
