"""`Pool` under PyTorch's module name."""

import multiprocessing.pool

from .context import get_context

__all__ = ["Pool"]


class Pool(multiprocessing.pool.Pool):
    """Processes that work through calls; tensors pass as shared memory."""

    def __init__(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None):
        super().__init__(processes, initializer, initargs, maxtasksperchild, context=context or get_context())
