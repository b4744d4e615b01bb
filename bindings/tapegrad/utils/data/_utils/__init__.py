"""PyTorch's inner modules of the loader, under the names that scripts import."""

from ...._lazy import more_names as _more_names
from . import collate, pin_memory

__getattr__, __dir__ = _more_names(__name__)
