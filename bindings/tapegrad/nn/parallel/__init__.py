"""Modules on several devices or processes. With one device and one process they call the module.

DistributedDataParallel is loaded when it is first used, and tapegrad.distributed with it.
"""

from .data_parallel import DataParallel, data_parallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]


def __getattr__(name: str):
    if name in ("DistributedDataParallel", "DistributedDataParallelCPU", "distributed"):
        from ..._lazy import load

        module = load(f"{__name__}.distributed")
        return module if name == "distributed" else module.DistributedDataParallel
    from ..._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
