"""Collectives in a world of one process, so that programs which can run distributed run on one process as they are.

`init_process_group` takes any backend's name for one process; every collective then has the result that it has among one. More
processes are refused with one sentence.
"""

from __future__ import annotations

from .._lazy import load as _load
from . import (
    algorithms,  # noqa: F401  rooms are added to it
    constants,
    device_mesh,
    distributed_c10d,
)
from ._rooms import make_all as _make_all
from .device_mesh import DeviceMesh, init_device_mesh
from .distributed_c10d import *  # noqa: F403
from .distributed_c10d import __all__ as _names
from .distributed_c10d import _ReduceOpOld as reduce_op  # noqa: F401

_make_all()
_LAZY = frozenset(("elastic", "nn", "optim"))


def __getattr__(name: str):
    if name in _LAZY:
        return _load(f"{__name__}.{name}")
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)


__all__ = [*_LAZY, *_names, "DeviceMesh", "constants", "device_mesh", "distributed_c10d", "init_device_mesh", "reduce_op"]
