"""Collectives on tensors, as programs call them: arguments are checked here, the group runs them (`_process_group.py`).

All ranks of the group call the same function in the same order; what they ask for is compared before data moves. With async_op=True the
result is a Work, else None.
"""

import contextlib
from datetime import timedelta

from ..._C import Tensor
from ..._warn import warn
from ..constants import default_pg_timeout
from ._available import supports_complex
from ._types import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    RedOpType,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from ._work import Work
from ._world import _canonicalize_group_rank, _group_or_default_group, _member, _world, get_backend

__all__ = ["all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all",
           "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_single",
           "reduce_scatter_tensor", "scatter"]


# Arguments.
def _check_single_tensor(value, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)} instead.")


def _check_tensor_list(values, name: str) -> None:
    if not isinstance(values, list):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(values)} instead.")
    if not all([isinstance(v, Tensor) for v in values]):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(values)} with elements "
                        f"of type {[type(v) for v in values]}.")


def _ensure_all_tensors_same_dtype(first: Tensor, *others: Tensor) -> None:
    for t in others:
        if t.dtype != first.dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: found {first.dtype} and {t.dtype}")


def _check_entries(op: str, values, name: str, group) -> None:
    if len(values) != group.size():
        raise ValueError(f"{op}: {name} must have one entry per process: got {len(values)} in a world of {group.size()}")


def _with(options: type, async_op: bool, root: int = 0, op=RedOpType.SUM):
    opts = options()
    opts.asyncOp = async_op
    if root:
        opts.rootRank = root
    if op is not RedOpType.SUM:
        opts.reduceOp = op
    return opts


def _result(work, async_op: bool):
    if async_op:
        return work
    if work is not None:  # None: of backends written in Python
        work.wait()
    return None


# Coalescing.
class _IllegalWork(Work):
    """A call that runs when its coalescing manager ends: there is nothing to wait for before."""

    def wait(self, timeout=None):
        raise ValueError("Illegal to call wait on IllegalWork object: the call runs at the end of its coalescing manager")

    is_completed = is_success = exception = result = synchronize = source_rank = get_future = wait


class _CoalescingManager:
    """Collects works; wait() waits for all."""

    def __init__(self):
        self.works: list = []

    def append(self, work=None) -> None:
        """Adds a work."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Waits for all."""
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def _coalescing_manager(group=None, device=None, async_ops: bool = False):
    """Runs the all_reduce, all_gather_single or reduce_scatter_single calls within it as one, at its end."""
    group = _group_or_default_group(group)
    if group in _world.pg_coalesce_state:
        raise ValueError("ProcessGroup has non-empty op list at the start of coalescing")
    calls = _world.pg_coalesce_state[group] = []
    manager = _CoalescingManager()
    try:
        yield manager
    finally:
        _world.pg_coalesce_state.pop(group, None)
    if not calls:
        return
    names, outputs, inputs, ops = zip(*calls, strict=True)
    if len(set(names)) > 1:
        raise RuntimeError(f"Coalescing manager requires all collectives to be the same type, but got mixed types: {set(names)}")
    if any([op != ops[0] for op in ops]):
        raise RuntimeError(f"Coalescing manager requires all collectives to have the same reduction, but got {ops}")
    if names[0] == "all_reduce":
        work = group.allreduce_coalesced(list(outputs), _with(AllreduceCoalescedOptions, async_ops, op=ops[0]))
    elif names[0] == "all_gather_single":
        work = group.all_gather_single_coalesced(list(outputs), list(inputs), _with(AllgatherOptions, async_ops))
    else:
        work = group.reduce_scatter_single_coalesced(list(outputs), list(inputs), _with(ReduceScatterOptions, async_ops, op=ops[0]))
    if async_ops:
        manager.append(work)
    else:
        work.wait()


def _later(group, name: str, output, input, op, async_op: bool):
    """Enters a call into its coalescing manager."""
    _world.pg_coalesce_state[group].append((name, output, input, op))
    return _IllegalWork() if async_op else None


# In place.
def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The tensor of rank `src` for all, in place."""
    group = _member(group, "broadcast")
    if group is None:
        return None
    root = _canonicalize_group_rank(group, src, group_src)
    _check_single_tensor(tensor, "tensor")
    return _result(group.broadcast([tensor], _with(BroadcastOptions, async_op, root)), async_op)


def all_reduce(tensor, op=RedOpType.SUM, group=None, async_op=False):
    """The reduction over all ranks, in place."""
    _check_single_tensor(tensor, "tensor")
    group = _member(group, "all_reduce")
    if group is None:
        return None
    if tensor.is_complex() and not supports_complex(op):
        raise ValueError(f"all_reduce does not support {op} on complex tensors")
    if group in _world.pg_coalesce_state:
        return _later(group, "all_reduce", tensor, None, op, async_op)
    return _result(group.allreduce([tensor], _with(AllreduceOptions, async_op, op=op)), async_op)


def all_reduce_coalesced(tensors, op=RedOpType.SUM, group=None, async_op=False):
    """all_reduce of several tensors of one dtype in one call. With async_op=True the result is a Future."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    _check_tensor_list(tensors, "tensors")
    if tensors:
        _ensure_all_tensors_same_dtype(*tensors)
    group = _member(group, "all_reduce_coalesced")
    if group is None:
        return None
    if any([t.is_complex() for t in tensors]) and not supports_complex(op):
        raise ValueError(f"all_reduce does not support {op} on complex tensors")
    work = _result(group.allreduce_coalesced(tensors, _with(AllreduceCoalescedOptions, async_op, op=op)), async_op)
    return work.get_future() if async_op else None


def reduce(tensor, dst=None, op=RedOpType.SUM, group=None, async_op=False, group_dst=None):
    """The reduction over all ranks for rank `dst`, in place; the others keep their tensors."""
    group = _member(group, "reduce")
    if group is None:
        return None
    root = _canonicalize_group_rank(group, dst, group_dst)
    _check_single_tensor(tensor, "tensor")
    return _result(group.reduce([tensor], _with(ReduceOptions, async_op, root, op)), async_op)


# Gathering and scattering.
def _with_entries(name: str, tensor, tensors, shown: str, group):
    """The group, or None outside of it, after the checks of a list that has an entry for each rank."""
    _ensure_all_tensors_same_dtype(tensor, *tensors)
    group = _member(group, name)
    if group is not None:
        _check_entries(name, tensors, shown, group)
    return group


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Copies rank r's tensor into entry r of tensor_list. Ranks may have different shapes, where the lists say so."""
    _check_tensor_list(tensor_list, "tensor_list")
    _check_single_tensor(tensor, "tensor")
    group = _with_entries("all_gather", tensor, tensor_list, "tensor_list", group)
    if group is None:
        return None
    return _result(group.allgather([tensor_list], [tensor], _with(AllgatherOptions, async_op)), async_op)


def _check_joined(op: str, joined, part, group, names: tuple) -> None:
    """A tensor that has a part of each rank: dtype and number of elements."""
    if joined.dtype != part.dtype:
        raise TypeError(f"{op}: output tensor must have the same type as input tensor: got {part.dtype} and {joined.dtype}")
    if joined.numel() != part.numel() * group.size():
        raise ValueError(f"{op}: {names[0]} tensor size must be equal to world_size times {names[1]} tensor size (output and input must agree): "
                         f"got {list(joined.shape)} and {list(part.shape)} for {group.size()} ranks")


def _single(name: str, output, input, gathers: bool, op, options, group, async_op: bool):
    """all_gather_single, whose output has a part of each rank, and reduce_scatter_single, whose input has."""
    group = _member(group, name)
    if group is None:
        return None
    sides = (output, input) if gathers else (input, output)
    _check_joined(name, *sides, group, ("output", "input") if gathers else ("input", "output"))
    if group in _world.pg_coalesce_state:
        return _later(group, name, output, input, op, async_op)
    return _result(getattr(group, name)(output, input, options), async_op)


def all_gather_single(output_tensor, input_tensor, group=None, async_op=False):
    """Copies the ranks' tensors one after the other into one."""
    _check_single_tensor(input_tensor, "input_tensor")
    _check_single_tensor(output_tensor, "output_tensor")
    return _single("all_gather_single", output_tensor, input_tensor, True, RedOpType.SUM, _with(AllgatherOptions, async_op), group, async_op)


all_gather_into_tensor = _all_gather_base = all_gather_single


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """all_gather of several tensors: list r gets rank r's. With async_op=True the result is a Future."""
    group = _member(group, "all_gather_coalesced")
    if group is None:
        return None
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for tensors in output_tensor_lists:
        _check_tensor_list(tensors, "output_tensor_lists")
        if len(tensors) != len(input_tensor_list):
            raise ValueError(f"all_gather_coalesced: expected {len(input_tensor_list)} tensors in each list of outputs: got {len(tensors)}")
    work = group.allgather_coalesced(output_tensor_lists, input_tensor_list, _with(AllgatherOptions, async_op))
    work = _result(work, async_op)
    return work.get_future() if async_op else None


def _check_list_of_root(rank: int, root: int, values, name: str, word: str) -> None:
    if rank == root and not values:
        raise ValueError(f"Argument ``{name}`` must be specified on {word} rank.")
    if rank != root and values:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{word} ranks.")


def _with_list_of_root(op: str, tensor, values, root, group, group_root, word: str):
    """(group, root, [list of the root] or [] elsewhere) of a gather or scatter, checked; the group is None for a rank outside of it."""
    name = f"{op}_list"
    _check_single_tensor(tensor, "tensor")
    if values:
        _check_tensor_list(values, name)
    values = values or []
    _ensure_all_tensors_same_dtype(tensor, *values)
    group = _member(group, op)
    if group is None:
        return None, None, []
    root = _canonicalize_group_rank(group, 0 if root is None and group_root is None else root, group_root)
    _check_list_of_root(group.rank(), root, values, name, word)
    if group.rank() != root:
        return group, root, []
    _check_entries(op, values, name, group)
    return group, root, [values]


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Copies rank r's tensor into entry r of gather_list on rank `dst` (0)."""
    group, root, lists = _with_list_of_root("gather", tensor, gather_list, dst, group, group_dst, "destination")
    if group is None:
        return None
    return _result(group.gather(lists, [tensor], _with(GatherOptions, async_op, root)), async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Copies entry r of the scatter_list of rank `src` (0) into rank r's tensor."""
    group, root, lists = _with_list_of_root("scatter", tensor, scatter_list, src, group, group_src, "source")
    if group is None:
        return None
    return _result(group.scatter([tensor], lists, _with(ScatterOptions, async_op, root)), async_op)


def reduce_scatter(output, input_list, op=RedOpType.SUM, group=None, async_op=False):
    """The reduction of all ranks' entries r for rank r's output."""
    _check_single_tensor(output, "output")
    _check_tensor_list(input_list, "input_list")
    group = _with_entries("reduce_scatter", output, input_list, "input_list", group)
    if group is None:
        return None
    return _result(group.reduce_scatter([output], [input_list], _with(ReduceScatterOptions, async_op, op=op)), async_op)


def reduce_scatter_single(output, input, op=RedOpType.SUM, group=None, async_op=False):
    """The reduction of all ranks' inputs, of which rank r gets the r-th part."""
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    return _single("reduce_scatter_single", output, input, False, op, _with(ReduceScatterOptions, async_op, op=op), group, async_op)


reduce_scatter_tensor = _reduce_scatter_base = reduce_scatter_single


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Rows of the input to each rank, rows of the output from each: equal parts, or as many as the sizes say."""
    group = _member(group, "all_to_all_single")
    if group is None:
        return None
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    _ensure_all_tensors_same_dtype(output, input)
    work = group.all_to_all_single(output, input, output_split_sizes or [], input_split_sizes or [], _with(AllToAllOptions, async_op))
    return _result(work, async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Entry r of each rank's inputs goes to rank r, into the entry of the outputs that is the sender's."""
    group = _member(group, "all_to_all")
    if group is None:
        return None
    _check_tensor_list(output_tensor_list, "output_tensor_list")
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    _check_entries("all_to_all", output_tensor_list, "output_tensor_list", group)
    _check_entries("all_to_all", input_tensor_list, "input_tensor_list", group)
    _ensure_all_tensors_same_dtype(*output_tensor_list, *input_tensor_list)
    return _result(group.alltoall(output_tensor_list, input_tensor_list, _with(AllToAllOptions, async_op)), async_op)


# Waiting.
def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Waits for all ranks. device_ids is PyTorch's: no device is waited for."""
    group = _member(group, "barrier")
    if group is None:
        return None
    opts = _with(BarrierOptions, async_op)
    if timeout is not None:
        opts.timeout = timeout
    return _result(group.barrier(opts), async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False) -> None:
    """A barrier that ends after `timeout` with DistBackendError, which names the ranks that have not come."""
    group = _member(group, "monitored_barrier")
    if group is None:
        return
    if get_backend(group) not in (Backend.GLOO, Backend.SHARED) and group.size() > 1:
        raise ValueError("monitored_barrier is only implemented for GLOO backend.")
    if isinstance(timeout, (int, float)):
        warn(f"Please specify timeout arg as a timedelta. Converting current value of {timeout} assuming it represents seconds")
        timeout = timedelta(seconds=timeout)
    group.monitored_barrier(default_pg_timeout if timeout is None else timeout, wait_all_ranks)
