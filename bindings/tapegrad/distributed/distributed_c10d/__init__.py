"""All names of groups and collectives by PyTorch's path: stores, launch environments, groups, collectives, sends and receives, objects."""

from ..._warn import warn
from ..constants import default_pg_nccl_timeout, default_pg_timeout  # noqa: F401
from . import (
    _available,
    _collectives,
    _groups,
    _objects,
    _point_to_point,
    _process_group,
    _start,
    _stores,
    _types,
    _work,
)
from . import _world as _world_module
from ._available import *  # noqa: F403
from ._collectives import *  # noqa: F403
from ._collectives import _all_gather_base, _coalescing_manager, _CoalescingManager, _reduce_scatter_base  # noqa: F401
from ._groups import *  # noqa: F403
from ._objects import *  # noqa: F403
from ._point_to_point import *  # noqa: F403
from ._process_group import *  # noqa: F403
from ._start import *  # noqa: F403
from ._start import _abort_process_group  # noqa: F401
from ._stores import *  # noqa: F403
from ._types import *  # noqa: F403
from ._types import ReduceOp, _make_nccl_premul_sum  # noqa: F401
from ._work import *  # noqa: F403
from ._world import *  # noqa: F403
from ._world import (  # noqa: F401
    _canonicalize_group_rank,
    _get_default_group,
    _get_default_store,
    _get_global_rank,
    _get_group_size,
    _get_process_group_name,
    _get_process_group_store,
    _group,
    _group_or_default_group,
    _rank_not_in_group,
    _resolve_process_group,
    _warn_not_in_group,
    _world,
)

__all__ = [*(name for part in (_available, _collectives, _groups, _objects, _point_to_point, _process_group, _start, _stores, _types, _work,
                               _world_module) for name in part.__all__), "default_pg_timeout"]


class _OldReduceOps(type):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        warn("distributed.reduce_op is deprecated: use distributed.ReduceOp", FutureWarning)
        return getattr(ReduceOp, name)


class _ReduceOpOld(metaclass=_OldReduceOps):
    """ReduceOp by its old name."""
