"""The mean of the ranks' models, now and then, for ranks that train apart in between."""

from . import averagers, utils

__all__ = ["averagers", "utils"]
