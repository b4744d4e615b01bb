"""Fully sharded models: parameters, gradients and optimizer states are cut among the ranks."""

from __future__ import annotations

import sys as _sys

from . import _api as api
from . import wrap  # noqa: F401
from ._api import *  # noqa: F403
from ._api import __all__ as _api
from ._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from .fully_sharded_data_parallel import FullyShardedDataParallel

__all__ = [*_api, "FSDPModule", "FullyShardedDataParallel", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
_sys.modules[f"{__name__}.api"] = api
