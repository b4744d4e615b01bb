"""The available engines of collectives, and what the environment says of this process."""

import os

from ... import _C
from ._launchers import find_launch
from ._types import Backend, BackendConfig, RedOpType

__all__ = ["get_default_backend_for_device", "get_node_local_rank", "is_available", "is_backend_available", "is_gloo_available",
           "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "supports_complex"]

# What launchers of MPI set; mpi_backend.cpp looks for the same.
_MARKS_OF_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_ID")


def is_available() -> bool:
    """True."""
    return True


def is_nccl_available() -> bool:
    """Whether NCCL can be opened and there is a GPU. A simulated GPU has none between processes: copies on the host stand in."""
    return not os.environ.get("TAPEGRAD_CUDA_SIMULATE") and not _C._nccl_why_not()


def is_gloo_available() -> bool:
    """Whether libgloo is there, which carries tensors between machines. Groups within one machine and groups of one process need none."""
    return _C._engine_is_available("gloo")


def is_mpi_available() -> bool:
    """Whether an MPI is there and its launcher has started this process. Programs that prefer MPI where it is take gloo elsewhere."""
    return any(name in os.environ for name in _MARKS_OF_MPI) and mpi_is_there()


def mpi_is_there() -> bool:
    """Whether an MPI was there when tapegrad was built, and is there now, whoever has started this process."""
    return _C._engine_is_available("mpi")


def is_ucc_available() -> bool:
    """False."""
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    """Whether a backend is there: gloo, shared, mpi and nccl where they can be opened, and those that were registered. "gloo" also is what groups within one machine are named."""
    names = BackendConfig(backend).device_backend_map.values() if ":" in backend else [backend.lower()]
    return all(name in (Backend.GLOO, Backend.SHARED) or name == Backend.MPI and mpi_is_there()
               or name == Backend.NCCL and is_nccl_available() or name.upper() in Backend._plugins for name in names)


def is_torchelastic_launched() -> bool:
    """Whether the environment says that torchrun started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_node_local_rank(fallback_rank=None) -> int:
    """The number of this process on its machine: $LOCAL_RANK or what another launcher says (_launchers.py), else the argument."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    launch = find_launch()
    if launch is not None and launch.local_rank is not None:
        return launch.local_rank
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, assuming "
                       "you are not running in a multi-device context and want the code to run locally instead.")


def supports_complex(reduceOp) -> bool:
    """Whether a reduction has a meaning for complex numbers."""
    return reduceOp not in (RedOpType.MAX, RedOpType.MIN, RedOpType.PRODUCT, RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)


def get_default_backend_for_device(device) -> str:
    """The backend that a device's tensors go through."""
    kind = device.type if hasattr(device, "type") else str(device).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {kind}")
    return Backend.default_device_backend_map[kind]
