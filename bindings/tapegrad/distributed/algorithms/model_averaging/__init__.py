"""Periodic averaging of models whose ranks train independently in between."""

from . import averagers, utils

__all__ = ["averagers", "utils"]
