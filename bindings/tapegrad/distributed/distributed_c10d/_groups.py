"""Making groups: the engine or the Python backend of a name, and groups of some of the world's ranks."""

import hashlib
from datetime import timedelta

from ..._root.environment import choice
from ..._warn import warn
from ..constants import default_pg_nccl_timeout, default_pg_timeout
from ._available import is_nccl_available, mpi_is_there
from ._process_group import ProcessGroup
from ._stores import PrefixStore
from ._types import Backend, BackendConfig, GroupMember
from ._world import (
    _get_default_group,
    _group_or_default_group,
    _rank_not_in_group,
    _registered,
    _world,
    get_process_group_ranks,
    get_world_size,
)

__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"]

_PATIENCE = 10_000  # ms after which a rank that waits says for whom


def _check_timeout(timeout, backend) -> timedelta:
    if timeout is None:
        return default_pg_nccl_timeout if backend == Backend.NCCL else default_pg_timeout
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    return timeout


def _engine_of(backend: str, size: int) -> str:
    """The engine's name for a backend's: $TAPEGRAD_DISTRIBUTED_ENGINE decides first."""
    if chosen := choice("TAPEGRAD_DISTRIBUTED_ENGINE", ("auto", "shared", "gloo", "mpi")):
        return chosen
    names = set(BackendConfig(backend).device_backend_map.values())
    if Backend.MPI in names and size > 1:
        if not mpi_is_there():
            raise RuntimeError("Distributed package doesn't have MPI built in.\n"
                               'backend="gloo" reads rank and size from what mpirun sets, too')
        return "mpi"
    if names & {Backend.UCC, Backend.XCCL, Backend.FAKE} and size > 1:
        raise RuntimeError(f"init_process_group: the backend {backend} is not there\nknown are gloo and shared")
    if size > 1 and Backend.NCCL in names and not is_nccl_available():
        warn("init_process_group: NCCL is not there: CUDA tensors go through copies on the host")
    return "shared" if names == {Backend.SHARED} else "auto"


def _make_group(store, rank: int, size: int, backend: Backend, name: str, desc: str, timeout, ranks, pg_options=None) -> ProcessGroup:
    """The group of `ranks`, of which this process is number `rank`. All of them come here."""
    own = PrefixStore(name, store)
    plugin = Backend._plugins.get(next(iter(BackendConfig(backend).device_backend_map.values())).upper())
    if plugin is None:
        pg = ProcessGroup._start(own, rank, size, backend, name, desc, _engine_of(backend, size), timeout, _PATIENCE, ranks, _world.default_pg)
    else:
        pg = _make_plugin(plugin, own, rank, size, name, timeout, ranks, pg_options)
        pg._backend, pg._store = backend, own
        pg.group_name, pg.group_desc = name, desc
    _world.add(pg, backend, own, ranks)
    return pg


class _BackendOptions:
    """What creators of backends with extended_api take."""


def _make_plugin(plugin, store, rank: int, size: int, name: str, timeout, ranks, pg_options):
    if plugin.extended_api:
        options = _BackendOptions()
        options.store, options.group_rank, options.group_size, options.timeout = store, rank, size, timeout
        options.group_id, options.global_ranks_in_group = name, list(ranks)
        pg = plugin.creator_fn(options, pg_options)
    else:
        pg = plugin.creator_fn(store, rank, size, timeout)
    if not isinstance(pg, ProcessGroup):
        raise TypeError(f"init_process_group: a backend's creator must give a ProcessGroup: got {type(pg).__name__}")
    return pg


def _group_name(ranks=None) -> str:
    """The same on all ranks that make the group. With `ranks` it depends on what these have done only: made how many of them."""
    if ranks is None:
        _world.group_count += 1
        return str(_world.group_count - 1)
    key = tuple(ranks)
    count = _world.local_groups[key] = _world.local_groups.get(key, 0) + 1
    return hashlib.sha1(f"{key} {count}".encode(), usedforsecurity=False).hexdigest()


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None,
              sort_ranks=True):
    """A group of some ranks, or GroupMember.NON_GROUP_MEMBER where this process is not among them.

    All processes of the world call it, in the same order; with use_local_synchronization only those of the group.
    """
    world = _get_default_group()
    size, rank = world.size(), world.rank()
    name = Backend(backend) if backend else _world.pg_map[world][0]
    timeout = _check_timeout(timeout, name)
    ranks = list(range(size)) if ranks is None else (sorted(ranks) if sort_ranks else list(ranks))
    if use_local_synchronization and rank not in ranks:
        return None
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"ranks list must not contain duplicate entries, got {ranks}")
    for r in ranks:
        if not 0 <= r < size:
            raise ValueError(f"Rank {r} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})\n"
                             "the new group's rank should be within the world_size set by init_process_group")
    group_name = _group_name(ranks if use_local_synchronization else None)
    if rank not in ranks:
        return GroupMember.NON_GROUP_MEMBER
    pg = _make_group(_world.store, ranks.index(rank), len(ranks), name, group_name, group_desc or f"group {group_name}", timeout, ranks, pg_options)
    pg.bound_device_id = device_id or world.bound_device_id
    return pg


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """A group cut into groups of one size: this process's group, and all groups. All processes of the world call it."""
    size = get_world_size(group)
    if group_size is None:
        from ... import cuda

        if cuda.is_available():
            group_size = cuda.device_count()
        elif size == 1:
            group_size = 1
        else:
            raise ValueError("Default group size only takes effect when CUDA is available. If your subgroup is using a backend that does not "
                             "depend on CUDA, please pass in 'group_size' correctly.")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size!r}'")
    ranks = get_process_group_ranks(group)
    return new_subgroups_by_enumeration([ranks[i:i + group_size] for i in range(0, size, group_size)], timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups of given ranks: this process's group, and all groups. All processes of the world call it."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: dict = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in seen:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {seen[rank]} and {ranks}")
            seen[rank] = ranks
    groups = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    return next((g for g in groups if not _rank_not_in_group(g)), None), groups


def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
    """The parent's ranks cut into groups (lists of ranks in the parent): this process's, None where it is in none.

    All processes of the parent call it with the same lists.
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = _group_or_default_group(parent_pg)
    members = list(_registered(parent))
    name = Backend(str(backend)) if backend else _world.pg_map[parent][0]
    mine, seen = None, set()
    for ranks in split_ranks:
        if not ranks:
            raise ValueError("the split group cannot be empty")
        if len(ranks) > parent.size():
            raise ValueError("the split group's size should be less or equal to the world_size set by init_process_group")
        if len(set(ranks)) != len(ranks):
            raise ValueError("the split group cannot have duplicate ranks")
        if seen & set(ranks) or not set(ranks) <= set(range(parent.size())):
            raise ValueError(f"split_group: every rank of the parent (0 to {parent.size() - 1}) may be in one group: got {split_ranks}")
        seen |= set(ranks)
        if parent.rank() in ranks:
            mine = sorted(ranks)
    count = _world.splits[parent] = _world.splits.get(parent, -1) + 1
    if mine is None:
        return None
    group_name = f"{parent.group_name}.{count}.{mine[0]}"
    return _make_group(_world.store, mine.index(parent.rank()), len(mine), name, group_name, group_desc or f"{parent.group_desc}:split:{count}",
                       _check_timeout(timeout, name), [members[r] for r in mine], pg_options)
