"""The registry of groups: the group of all processes, the groups made of it, and the mapping of ranks between them.

One record (`_world`) for the process, with PyTorch's names for its fields. Groups are made and destroyed by one thread at a time.
"""

from ..._warn import warn
from ._process_group import ProcessGroup
from ._stores import Store
from ._types import Backend, BackendConfig, GroupMember

__all__ = ["get_backend", "get_backend_config", "get_global_rank", "get_group_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
           "get_world_size", "is_initialized"]


class _World:
    def __init__(self):
        self.default_pg: ProcessGroup | None = None
        self.pg_map: dict = {}  # group -> (backend, store)
        self.pg_names: dict = {}
        self.pg_group_ranks: dict = {}  # group -> {global rank: group rank}
        self.pg_backend_config: dict = {}
        self.pg_coalesce_state: dict = {}
        self.tags_to_pg: dict = {}
        self.pg_to_tag: dict = {}
        self.group_count = 0
        self.local_groups: dict = {}  # ranks -> how often use_local_synchronization made a group of them
        self.splits: dict = {}  # group -> how often it was split
        self.store: Store | None = None
        self.excepthook = None  # what sys.excepthook was before

    def add(self, pg, backend, store, ranks) -> None:
        self.pg_map[pg] = (backend, store)
        self.pg_names[pg] = pg.group_name
        self.pg_backend_config[pg] = str(BackendConfig(backend))
        self.pg_group_ranks[pg] = {rank: i for i, rank in enumerate(ranks)}

    def forget(self, pg) -> None:
        for table in (self.pg_map, self.pg_names, self.pg_backend_config, self.pg_group_ranks):
            table.pop(pg, None)
        if self.pg_coalesce_state.pop(pg, None):
            warn("Some coalesced collectives haven't been launched when ProcessGroup is destroyed. They will be cleaned.")


_world = _World()


def is_initialized() -> bool:
    """Whether init_process_group has been called."""
    return _world.default_pg is not None


def _get_default_group() -> ProcessGroup:
    if _world.default_pg is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default_pg


def _group_or_default_group(group=None) -> ProcessGroup:
    return _get_default_group() if group is None else group


def _get_default_store() -> Store:
    _get_default_group()
    return _world.store


_group = _group_or_default_group


def _rank_not_in_group(group) -> bool:
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def _warn_not_in_group(op_name: str) -> None:
    rank = -1 if _world.default_pg is None else _world.default_pg.rank()
    warn(f"Running {op_name} on global rank {rank} which does not belong to the given group.")


def _member(group, op_name: str):
    """The group of a collective; None, after a warning, where this process is not in it."""
    if group is None:
        return _get_default_group()
    if group == GroupMember.NON_GROUP_MEMBER:
        _get_default_group()
        _warn_not_in_group(op_name)
        return None
    return group


def _registered(group) -> dict:
    ranks = _world.pg_group_ranks.get(group)
    if ranks is None:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    return ranks


def get_rank(group=None) -> int:
    """This process's rank, in the world or in a group; -1 in a group that it is not in."""
    world = _get_default_group()
    if _rank_not_in_group(group):
        return -1
    return world.rank() if group is None or group is world else get_group_rank(group, world.rank())


def get_world_size(group=None) -> int:
    """The number of processes in the world or in a group; -1 for a group that this process is not in."""
    world = _get_default_group()
    return -1 if _rank_not_in_group(group) else (world if group is None else group).size()


_get_group_size = get_world_size


def get_backend(group=None) -> Backend:
    """The backend's name."""
    pg = _group_or_default_group(group)
    if _rank_not_in_group(pg):
        raise ValueError("Invalid process group specified")
    if pg not in _world.pg_map:
        raise ValueError(f"Process group {pg} is not initialized in the world group map. Please initialize the group first.")
    return _world.pg_map[pg][0]


def get_backend_config(group=None) -> str:
    """The backend of each device: "cpu:gloo,cuda:gloo"."""
    get_backend(group)
    return _world.pg_backend_config[_group_or_default_group(group)]


def get_process_group_ranks(group=None) -> list:
    """The world's ranks in a group, in its order."""
    return list(_registered(_group_or_default_group(group)))


def get_global_rank(group, group_rank: int) -> int:
    """The rank in the world of a rank in a group."""
    ranks = list(_registered(group))
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


_get_global_rank = get_global_rank


def get_group_rank(group, global_rank: int) -> int:
    """The rank in a group of a rank in the world."""
    ranks = _registered(group)
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}: there is no rank {global_rank} in it")
    return ranks[global_rank]


def _canonicalize_group_rank(group, global_rank=None, group_rank=None, return_global: bool = False) -> int:
    """The rank in the group (or in the world) of which one of the two is given."""
    if group_rank is None:
        if global_rank is None:
            raise ValueError("Must specify global_rank or group_rank")
        in_group = get_group_rank(group, global_rank)
        return global_rank if return_global else in_group
    if global_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    in_world = get_global_rank(group, group_rank)
    return in_world if return_global else group_rank


def get_pg_count() -> int:
    """The number of groups that were made, the world among them."""
    return _world.group_count


def _get_process_group_name(pg) -> str:
    return _world.pg_names.get(pg, "None")


def _get_process_group_store(pg) -> Store:
    return _world.pg_map[pg][1]


def _resolve_process_group(name: str) -> ProcessGroup:
    """The group of a name."""
    for pg, known in _world.pg_names.items():
        if known == name:
            return pg
    raise RuntimeError(f"there is no process group with the name {name!r}")
