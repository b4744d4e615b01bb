"""Checkpoints of a job with several ranks, by the names of torch.distributed.checkpoint: sharded, atomic, and loaded by any number of ranks.

    state = {"model": model.state_dict(), "step": 100}
    checkpoint.save(state, checkpoint_id="runs/a/step-100")
    checkpoint.load(state, checkpoint_id="runs/a/step-100")     # into the tensors of state

checkpoint.Checkpoints does it every so many steps, keeps the last ones and goes on from the newest that is whole.
"""

import sys
import threading
from concurrent.futures import Future

from ..._lazy import more_names as _more_names
from .. import distributed_c10d as dist
from . import _sharded
from ._periodic import Checkpoints
from .state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)

__all__ = ["CheckpointException", "Checkpoints", "DefaultLoadPlanner", "DefaultSavePlanner", "FileSystemReader", "FileSystemWriter", "StateDictOptions", "Stateful", "async_save", "get_model_state_dict",
           "get_optimizer_state_dict", "get_state_dict", "load", "load_state_dict", "save", "save_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]

CheckpointException = _sharded.FileError


class Stateful:
    """Anything with state_dict() and load_state_dict(); classes need not derive from it."""

    def state_dict(self) -> dict:
        """The state."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes a state."""
        raise NotImplementedError


class FileSystemWriter:
    """Where a checkpoint is written: a folder that all ranks see. Other options of PyTorch's make no difference."""

    def __init__(self, path, *args, **kwargs):
        self.path = path


class FileSystemReader:
    """Where a checkpoint is read."""

    def __init__(self, path, *args, **kwargs):
        self.path = path


class DefaultSavePlanner:
    """The way in which checkpoints are written; PyTorch's options make no difference."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, dedup_replicated_tensors=None,
                 dedup_save_to_lowest_rank: bool = False, enable_plan_caching: bool = False):
        pass


class DefaultLoadPlanner:
    """The way in which checkpoints are read. allow_partial_load: entries that were not saved stay as they are."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False):
        self.allow_partial_load = allow_partial_load


def _check_planner(planner, kind: type, what: str) -> None:
    """Raises NotImplementedError for planners of the program's own, which would not be asked."""
    if planner is not None and type(planner) is not kind:
        raise NotImplementedError(f"checkpoint.{what}: planners of one's own are not supported: expected None or a {kind.__name__}: got "
                                  f"{type(planner).__name__}")


def save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist: bool = False,
         use_collectives: bool = True) -> None:
    """Saves a nested dictionary of tensors, plain values and objects with state_dict(). Every rank must call it.

    When it returns, the checkpoint is complete on the disk; until then the folder's former one stays.
    Raises FileError on all ranks where one cannot write.
    """
    _check_planner(planner, DefaultSavePlanner, "save")
    _sharded.write(state_dict, _sharded._path(checkpoint_id, storage_writer), process_group)


def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist: bool = False) -> None:
    """Loads into the tensors and objects of a nested dictionary, in place. Every rank must call it.

    Raises RuntimeError for entries that were not saved (but with DefaultLoadPlanner(allow_partial_load=True)), ValueError for other shapes,
    FileError where nothing complete is there.
    """
    _check_planner(planner, DefaultLoadPlanner, "load")
    _sharded.read(state_dict, _sharded._path(checkpoint_id, storage_reader), process_group, not getattr(planner, "allow_partial_load", False))


def save_state_dict(state_dict, storage_writer, process_group=None, coordinator_rank: int = 0, no_dist: bool = False, planner=None) -> None:
    """save by its old name."""
    save(state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group)


def load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank: int = 0, no_dist: bool = False, planner=None) -> None:
    """load by its old name."""
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group)


_groups: dict = {}  # of saves in the background, by the group whose ranks they are


def _own_group(process_group):
    """A group for the thread that saves: its calls must not mix with the program's."""
    if not dist.is_initialized() or dist.get_world_size(process_group) == 1:
        return process_group
    key = id(process_group if process_group is not None else dist._get_default_group())
    if key not in _groups:
        _groups[key] = dist.new_group(dist.get_process_group_ranks(process_group), use_local_synchronization=True)
    return _groups[key]


def async_save(state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, async_checkpointer_type=None,
               async_stager=None, **kwargs):
    """save on a thread, of a copy that is made first. Gives a future: result() waits and raises what went wrong.

    One at a time: wait for the last one before the next begins.
    """
    path, group = _sharded._path(checkpoint_id, storage_writer), _own_group(process_group)
    copy = _sharded.snapshot(state_dict)
    future: Future = Future()

    def run():
        try:
            _sharded.write(copy, path, group)
        except BaseException as e:
            future.set_exception(e)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="tapegrad checkpoint").start()
    return future


__getattr__, __dir__ = _more_names(__name__)
