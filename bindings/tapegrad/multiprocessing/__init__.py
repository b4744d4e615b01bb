"""Processes that share tensors: the API of Python's multiprocessing, and of torch.multiprocessing.

A tensor that goes through a Queue, a Pipe, a Pool or the arguments of a Process is moved into shared memory once; what
travels is a handle of some hundred bytes, and both sides look at the same memory from then on. Views, dtypes,
requires_grad and ties between tensors are kept; Parameters and modules stay what they are. Tensors on CUDA devices are shared
in the same way; the receiver's stream goes on behind the sender's work. Tensors of another kind (sparse, meta) travel as
values. A sender has to live until its tensors have been received; after that they live
as long as any process holds them.
"""

import multiprocessing as _mp
from multiprocessing import *  # noqa: F403
from multiprocessing import (
    active_children,
    allow_connection_pickling,
    cpu_count,
    current_process,
    freeze_support,
    get_all_start_methods,
    get_start_method,
    log_to_stderr,
    parent_process,
    set_executable,
    set_forkserver_preload,
    set_start_method,
)

from . import reductions
from ._lingering import orphans
from .context import (
    JoinableQueue,
    Manager,
    Pipe,
    Pool,
    Process,
    Queue,
    SimpleQueue,
    get_context,
)
from .spawn import (
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [*_mp.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "share_read_only",
           "shared_memory_stats", "spawn", "SpawnContext", "start_processes", "ProcessContext", "ProcessException",
           "ProcessRaisedException", "ProcessExitedException"]

_STRATEGIES = ("file_descriptor", "file_system")
_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """The names that set_sharing_strategy takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The name last given to set_sharing_strategy; "file_descriptor" at first."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for PyTorch's sake: there is one way of sharing here, with one descriptor per 64 MB and no names."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise AssertionError(f"set_sharing_strategy: expected one of {', '.join(_STRATEGIES)}: got {new_strategy!r}")
    _strategy = new_strategy


def share_read_only(tensor):
    """A copy of a CPU tensor in shared memory that other processes can only read; this process may go on writing it.

    Writing to it elsewhere raises a RuntimeError, as it does for any tensor over read-only memory.
    """
    return reductions.share_read_only(tensor)


def shared_memory_stats() -> dict[str, int]:
    """Counts of this process: own arenas and bytes in them, blocks held by any process, handles in transit, memory received."""
    from .. import _C

    orphans.check()
    return _C._shared_stats()


def _shutdown_everything() -> None:
    """For tests: ends what this module runs in the background."""
    orphans.clear()
