"""NCCL among the GPUs of this process: one thread asks for all of them. Tensors are contiguous, of one dtype, one on each GPU.

Calls are queued on each GPU's current stream (or on `streams`). Communicators are made once for each list of GPUs and kept; those of other
processes are groups of tapegrad.distributed.
"""

import contextlib

from .. import _C

__all__ = ["SUM", "all_gather", "all_reduce", "broadcast", "is_available", "reduce", "reduce_scatter", "version"]

SUM = 0  # other reductions: 1 product, 2 maximum, 3 minimum, as NCCL counts them
_REDUCTIONS = (0, 1, 3, 2)  # of distributed/backend.h
_BROADCAST, _ALL_REDUCE, _REDUCE, _ALL_GATHER, _REDUCE_SCATTER = 1, 2, 3, 4, 7  # of distributed/group/group.h


def is_available(tensors=()) -> bool:
    """Whether NCCL can pass these tensors: contiguous ones on a GPU each."""
    devices = [t.device for t in tensors]
    return all(t.is_cuda and t.is_contiguous() and not t._is_any_sparse for t in tensors) and len(set(devices)) == len(devices) \
        and not _C._nccl_why_not()


def version() -> tuple:
    """The version of NCCL that is loaded: (2, 27, 3); RuntimeError without a GPU."""
    from ._core import report

    found = report("cuda.nccl.version", "libraries").get("nccl", {"missing": "a simulated device has none"})
    if "missing" in found:
        raise RuntimeError(f"cuda.nccl.version: {found['missing']}")
    number = found["version"]
    return number // 10000, number // 100 % 100, number % 100


def _list(name: str, tensors) -> list:
    if isinstance(tensors, _C.Tensor) or not hasattr(tensors, "__iter__"):
        raise TypeError(f"{name}: Inputs should be a collection of tensors")
    return list(tensors)


def _run(name: str, kind: int, inputs, outputs, op: int, root: int, streams, comms) -> None:
    if comms is not None:
        raise ValueError(f"{name}: communicators are the library's own: comms must be None")
    if not 0 <= op < len(_REDUCTIONS):
        raise ValueError(f"{name}: the reduction must be 0 (sum) to 3: got {op}")
    from .streams import stream

    with contextlib.ExitStack() as currents:
        for s in streams or ():
            if s is not None:
                currents.enter_context(stream(s))
        _C._nccl_among_devices(kind, _list(name, inputs), outputs, _REDUCTIONS[op], root)


def all_reduce(inputs, outputs=None, op=SUM, streams=None, comms=None) -> None:
    """Puts the reduction of all inputs into each output (the inputs themselves)."""
    inputs = _list("nccl.all_reduce", inputs)
    _run("nccl.all_reduce", _ALL_REDUCE, inputs, inputs if outputs is None else _list("nccl.all_reduce", outputs), op, 0, streams, comms)


def reduce(inputs, output=None, root: int = 0, op=SUM, streams=None, comms=None, *, outputs=None) -> None:
    """Puts the reduction of all inputs into `output` (input `root`), which is on the GPU of input `root`."""
    inputs = _list("nccl.reduce", inputs)
    if outputs is not None:
        if output is not None:
            raise ValueError("nccl.reduce: 'output' and 'outputs' can not be both specified. 'outputs' is deprecated in favor of 'output', "
                             "taking in a single output tensor.")
        output = outputs[root]
    if not 0 <= root < len(inputs):
        raise ValueError(f"nccl.reduce: the root must be one of {len(inputs)} tensors: got {root}")
    _run("nccl.reduce", _REDUCE, inputs, [inputs[root] if output is None else output], op, root, streams, comms)


def broadcast(inputs, root: int = 0, streams=None, comms=None) -> None:
    """Makes all tensors equal to input `root`."""
    _run("nccl.broadcast", _BROADCAST, inputs, [], SUM, root, streams, comms)


def all_gather(inputs, outputs, streams=None, comms=None) -> None:
    """Puts all n inputs, one behind the other, into each output, which has n times as many elements."""
    _run("nccl.all_gather", _ALL_GATHER, inputs, _list("nccl.all_gather", outputs), SUM, 0, streams, comms)


def reduce_scatter(inputs, outputs, op=SUM, streams=None, comms=None) -> None:
    """Puts the i-th of n parts of the reduction of all inputs into output i."""
    _run("nccl.reduce_scatter", _REDUCE_SCATTER, inputs, _list("nccl.reduce_scatter", outputs), op, 0, streams, comms)
