"""The parts of tapegrad.utils.benchmark under the paths that scripts import them from."""

from . import common, compare, timer

__all__ = ["common", "compare", "timer"]
