"""PyTorch's inner modules of the loader, under the names that scripts import."""

from . import collate, fetch, pin_memory, worker
