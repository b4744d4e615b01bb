"""Processes that work together, by PyTorch's names: groups of them, collectives, sends and receives, meshes, stores.

Tensors go through the memory that the processes of one machine share, or through gloo between machines. A world of one process takes any
backend's name and needs neither; every collective then has the result that it has among one.
"""

from .._lazy import load as _load
from .._lazy import more_names as _more_names
from . import constants, device_mesh, distributed_c10d
from .device_mesh import DeviceMesh, init_device_mesh
from .distributed_c10d import *  # noqa: F403
from .distributed_c10d import __all__ as _names
from .distributed_c10d import _coalescing_manager, _make_nccl_premul_sum  # noqa: F401
from .distributed_c10d import _ReduceOpOld as reduce_op  # noqa: F401
from .distributed_c10d._rendezvous import register_rendezvous_handler, rendezvous

_LAZY = frozenset(("_composable", "_functional_collectives", "algorithms", "autograd", "checkpoint", "elastic", "fsdp", "launch", "launcher", "nn", "optim",
                   "parameter_server", "pipelining", "rpc", "run", "tensor"))
_others, __dir__ = _more_names(__name__, _LAZY)


def __getattr__(name: str):
    return _load(f"{__name__}._notebook").notebook_launcher if name == "notebook_launcher" else _others(name)


__all__ = [*_LAZY, *_names, "DeviceMesh", "constants", "device_mesh", "distributed_c10d", "init_device_mesh",
           "notebook_launcher",  # noqa: F405  comes when it is asked for
           "reduce_op", "register_rendezvous_handler", "rendezvous"]
