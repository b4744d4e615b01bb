"""Fully sharded models: parameters, gradients and optimizer states are cut among the ranks."""

from ..._lazy import more_names as _more_names
from . import wrap  # noqa: F401
from ._api import *  # noqa: F403
from ._api import __all__ as _api
from ._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from .fully_sharded_data_parallel import FullyShardedDataParallel

__all__ = [*_api, "FSDPModule", "FullyShardedDataParallel", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
__getattr__, __dir__ = _more_names(__name__)
