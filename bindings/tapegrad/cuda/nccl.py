"""NCCL, which passes tensors between GPUs."""

from __future__ import annotations

from . import _missing

__all__ = ["all_gather", "all_reduce", "broadcast", "init", "is_available", "reduce", "reduce_scatter", "unique_id", "version"]


def is_available(tensors=()) -> bool:
    """Whether NCCL can pass these tensors."""
    return False


def version() -> tuple:
    """The version of NCCL that is loaded: (2, 27, 3); RuntimeError without a GPU."""
    from ._core import report

    found = report("cuda.nccl.version", "libraries").get("nccl", {"missing": "a simulated device has none"})
    if "missing" in found:
        raise RuntimeError(f"cuda.nccl.version: {found['missing']}")
    number = found["version"]
    return number // 10000, number // 100 % 100, number % 100


unique_id = _missing("cuda.nccl.unique_id")
init = _missing("cuda.nccl.init")
all_reduce = _missing("cuda.nccl.all_reduce")
reduce = _missing("cuda.nccl.reduce")
broadcast = _missing("cuda.nccl.broadcast")
all_gather = _missing("cuda.nccl.all_gather")
reduce_scatter = _missing("cuda.nccl.reduce_scatter")
