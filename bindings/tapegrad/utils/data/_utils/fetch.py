"""How batches are made."""

from ..fetch import Fetcher

__all__ = ["Fetcher"]
