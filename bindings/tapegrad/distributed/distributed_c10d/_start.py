"""init_process_group and destroy_process_group: start and end of the default group."""

import io
import sys

from ..elastic.multiprocessing.errors import record_uncaught
from ._groups import _check_timeout, _group_name, _make_group
from ._rendezvous import find_world
from ._stores import PrefixStore
from ._types import Backend, GroupMember
from ._world import _group_or_default_group, _world

__all__ = ["destroy_process_group", "init_process_group"]


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="",
                       pg_options=None, device_id=None, _ranks=None) -> None:
    """Makes the world of all processes. Rank and size come from the arguments, the URL or the environment, as PyTorch's.

    Waits for all processes. Raises ValueError when called twice or where rank or size are missing, DistStoreError where processes do not
    come within `timeout` (a timedelta, 30 minutes).
    """
    if _world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None and (rank < 0 or world_size <= 0):
        raise AssertionError(f"init_process_group: with a store, rank and world_size must be given: got {rank} and {world_size}")
    if backend is None and getattr(device_id, "type", None) in Backend.default_device_backend_map:
        backend = Backend.default_device_backend_map[device_id.type]
    record_uncaught()
    name = Backend(backend) if backend is not None else Backend(Backend.UNDEFINED)
    timeout = _check_timeout(timeout, name)
    if store is None:
        store, rank, world_size = find_world(init_method or "env://", rank, world_size, timeout)
    if not 0 <= rank < world_size:
        raise ValueError(f"init_process_group: rank must be within the world: got rank={rank} and world_size={world_size}")
    if world_size == 1:
        prefix = "world"
    else:
        # Worlds that are made one after the other on one store have different keys; every rank counts its own.
        prefix = f"world{store.add(f'worlds_of/{rank}', 1)}"
    ranks = range(world_size)
    try:
        pg = _make_group(PrefixStore(prefix, store), rank, world_size, Backend(Backend.GLOO) if name == Backend.UNDEFINED else name,
                         _group_name(), "default_pg", timeout, ranks, pg_options)
    except BaseException:
        _world.group_count = 0
        raise
    pg.bound_device_id = device_id if getattr(device_id, "type", "cpu") != "cpu" else None
    _world.default_pg = pg
    _world.store = PrefixStore(prefix, store)
    if world_size > 1:
        _show_rank(rank)


def _show_rank(rank: int) -> None:
    """The traceback that ends this process shows its rank in every line."""
    before = _world.excepthook = sys.excepthook

    def hook(kind, value, traceback):
        stderr, sys.stderr = sys.stderr, io.StringIO()
        try:
            before(kind, value, traceback)
        finally:
            shown, sys.stderr = sys.stderr.getvalue(), stderr
        stderr.write("\n".join(f"[rank{rank}]: {line}" if line else "" for line in shown.split("\n")))
        stderr.flush()

    hook.of_world = _world
    sys.excepthook = hook


def destroy_process_group(group=None) -> None:
    """Leaves a group, or the world and all groups, once the calls that are under way have ended."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    _leave(group, lambda pg: pg.shutdown())


def _abort_process_group(group=None) -> None:
    """Leaves a group, or all: calls that wait in it, on all ranks, raise."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return

    def abort(pg):
        pg.abort()
        pg.shutdown()

    _leave(group, abort)


def _leave(group, leave) -> None:
    pg = _group_or_default_group(group)
    if pg not in _world.pg_map:
        raise ValueError("Invalid process group specified")
    if pg is not _world.default_pg:
        leave(pg)
        _world.forget(pg)
        return
    try:
        for other in reversed(list(_world.pg_map)):
            leave(other)
    finally:
        hook = _world.excepthook
        if hook is not None and getattr(sys.excepthook, "of_world", None) is _world:
            sys.excepthook = hook
        _world.__init__()
