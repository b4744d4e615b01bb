"""The group of this process, and collectives in it.

What a collective gives among one process: reductions and broadcasts leave the tensor as it is, gathers and scatters copy it.
Arguments are checked as if there were more, so that a mistake shows on one process, too.
"""

from __future__ import annotations

import copy
import os
import warnings
from datetime import timedelta

from .._C import Tensor
from ._stores import *  # noqa: F403
from ._stores import HashStore, Store
from ._stores import __all__ as _store_names
from ._types import *  # noqa: F403
from ._types import Backend, GroupMember, ProcessGroup, ReduceOp, Work
from ._types import __all__ as _type_names
from .constants import default_pg_timeout

__all__ = [*_store_names, *_type_names, "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all",
           "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout",
           "destroy_process_group", "gather", "gather_object", "get_backend", "get_default_backend_for_device", "get_global_rank",
           "get_group_rank", "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group", "irecv",
           "is_available", "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
           "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "isend", "monitored_barrier", "new_group", "new_subgroups",
           "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce", "reduce_scatter",
           "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
           "scatter_object_list", "send", "send_object_list", "supports_complex"]

_world: ProcessGroup | None = None
_store: Store | None = None
_groups = 0


class _OldReduceOps(type):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        warnings.warn("distributed.reduce_op is deprecated: use distributed.ReduceOp", FutureWarning, stacklevel=2)
        return getattr(ReduceOp, name)


class _ReduceOpOld(metaclass=_OldReduceOps):
    """ReduceOp by its old name."""


def one_process_only(what: str, world_size: int) -> str:
    """The sentence that refuses more processes."""
    return (f"{what}: tapegrad runs one process so far: got world_size={world_size}\n"
            "start the script once, without a launcher, or with WORLD_SIZE=1")


def is_available() -> bool:
    """True: a world of one process is there."""
    return True


def is_initialized() -> bool:
    """Whether init_process_group has been called."""
    return _world is not None


def is_nccl_available() -> bool:
    """False: no GPU, no NCCL."""
    return False


def is_gloo_available() -> bool:
    """True: the backend of the CPU, as far as one process needs one."""
    return True


def is_mpi_available() -> bool:
    """False."""
    return False


is_ucc_available = is_xccl_available = is_mpi_available


def is_backend_available(backend: str) -> bool:
    """Whether a backend is there: only gloo."""
    return backend.lower() == "gloo"


def is_torchelastic_launched() -> bool:
    """Whether the environment says that torchrun started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_node_local_rank(fallback_rank=None) -> int:
    """The number of this process on its machine: $LOCAL_RANK, else the argument."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, assuming "
                       "you are not running in a multi-device context and want the code to run locally instead.")


def supports_complex(reduceOp) -> bool:
    """Whether a reduction has a meaning for complex numbers."""
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def get_default_backend_for_device(device) -> str:
    """The backend that a device's tensors would go through."""
    kind = device.type if hasattr(device, "type") else str(device).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {kind}")
    return Backend.default_device_backend_map[kind]


def _from_environment(name: str, method: str) -> int:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(f"Error initializing torch.distributed using {method} rendezvous: environment variable {name} expected, but not set")
    return int(value)


def _rank_and_size(init_method: str, rank: int, world_size: int) -> tuple[int, int]:
    """What a URL and the environment say of rank and size; given ones stand."""
    from urllib.parse import parse_qs, urlparse

    url = urlparse(init_method)
    if url.scheme not in ("env", "tcp", "file"):
        raise RuntimeError(f"init_process_group: no rendezvous handler for {url.scheme}://")
    asked = {key: int(values[0]) for key, values in parse_qs(url.query).items() if key in ("rank", "world_size")}
    rank, world_size = asked.get("rank", rank), asked.get("world_size", world_size)
    if url.scheme == "env":
        rank = _from_environment("RANK", "env://") if rank < 0 else rank
        world_size = _from_environment("WORLD_SIZE", "env://") if world_size < 0 else world_size
    elif rank < 0 or world_size < 0:
        missing = "rank" if rank < 0 else "world size"
        raise ValueError(f"Error initializing torch.distributed using {url.scheme}:// rendezvous: {missing} parameter missing")
    return rank, world_size


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="",
                       pg_options=None, device_id=None) -> None:
    """Makes the world of this one process. Rank and size come from the arguments, the URL or the environment, as PyTorch's.

    Raises ValueError when called twice or where rank or size are missing, RuntimeError for more than one process.
    """
    global _world, _store
    if _world is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    name = Backend(backend) if backend is not None else Backend("undefined")
    if store is not None:
        if rank < 0 or world_size <= 0:
            raise AssertionError(f"init_process_group: with a store, rank and world_size must be given: got {rank} and {world_size}")
    else:
        rank, world_size = _rank_and_size(init_method or "env://", rank, world_size)
    if world_size != 1:
        raise RuntimeError(one_process_only("init_process_group", world_size))
    if rank != 0:
        raise ValueError(f"init_process_group: the only process of a world of one has rank 0: got {rank}")
    _store = store if store is not None else HashStore()
    _world = ProcessGroup(Backend("gloo") if name == "undefined" else name, group_name or "default_pg")


def destroy_process_group(group=None) -> None:
    """Forgets a group, or the world."""
    global _world, _store
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    _group(group)
    if group is None or group is _world:
        _world = _store = None


def _group(group=None) -> ProcessGroup:
    if _world is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world if group is None else group


def _outside(group) -> bool:
    """Whether this process is not in the group; also checks that there is a world."""
    return _group(group) is GroupMember.NON_GROUP_MEMBER


def _get_default_group() -> ProcessGroup:
    return _group()


def _get_default_store() -> Store:
    _group()
    return _store


def get_rank(group=None) -> int:
    """0; -1 in a group that this process is not in."""
    return -1 if _outside(group) else 0


def get_world_size(group=None) -> int:
    """1; -1 for a group that this process is not in."""
    return -1 if _outside(group) else 1


def get_backend(group=None) -> Backend:
    """The backend's name."""
    if _outside(group):
        raise ValueError("Invalid process group specified")
    return _group(group)._backend


def get_process_group_ranks(group=None) -> list:
    """The ranks in a group: [0]."""
    _group(group)
    return [0]


def get_global_rank(group, group_rank: int) -> int:
    """The rank in the world of a rank in a group."""
    _peer("get_global_rank", group_rank)
    return 0


_get_global_rank = get_global_rank


def get_group_rank(group, global_rank: int) -> int:
    """The rank in a group of a rank in the world."""
    _peer("get_group_rank", global_rank)
    return 0


def _peer(op: str, rank) -> None:
    if rank not in (0, None):
        raise ValueError(f"{op}: there is no rank {rank} in a world of one process")


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None):
    """A group of some ranks: of this process, or GroupMember.NON_GROUP_MEMBER where it is not among them."""
    global _groups
    world = _group()
    if ranks is not None:
        for rank in ranks:
            if rank != 0:
                raise ValueError("the new group's rank should be within the world_size set by init_process_group")
        if not ranks:
            return GroupMember.NON_GROUP_MEMBER
    _groups += 1
    return ProcessGroup(Backend(backend) if backend else world._backend, group_desc or str(_groups))


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """The world cut into groups of one size: this process's group, and all groups."""
    if group_size not in (None, 1):
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size (1)")
    made = new_group([0], timeout, backend, pg_options)
    return made, [made]


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups of given ranks: this process's group, and all groups."""
    groups = [new_group(ranks, timeout, backend, pg_options) for ranks in ranks_per_subgroup_list]
    mine = [g for g in groups if g is not GroupMember.NON_GROUP_MEMBER]
    return mine[0] if mine else None, groups


def _tensor(op: str, value, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)} instead.")


def _tensors(op: str, values, name: str) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, Tensor) for v in values):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(values)} instead.")


def _one(op: str, values, name: str) -> None:
    if len(values) != 1:
        raise ValueError(f"{op}: {name} must have one entry per process: got {len(values)} in a world of 1")


def _copy(target: Tensor, source: Tensor, op: str) -> None:
    from .. import no_grad

    if target.numel() != source.numel() or target.dtype != source.dtype:
        raise ValueError(f"{op}: output and input must agree: got {list(target.shape)} of {target.dtype} and {list(source.shape)} of {source.dtype}")
    with no_grad():
        target.copy_(source.reshape(target.shape))


def _done(async_op: bool, result):
    return Work(result) if async_op else None


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """The reduction over all processes, in place: among one the tensor as it is."""
    _tensor("all_reduce", tensor, "tensor")
    if _outside(group):
        return None
    if tensor.is_complex() and not supports_complex(op):
        raise ValueError(f"all_reduce does not support {op} on complex tensors")
    return _done(async_op, [tensor])


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """all_reduce of several tensors."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    _tensors("all_reduce_coalesced", tensors, "tensors")
    return None if _outside(group) else _done(async_op, tensors)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """The tensor of one process for all, in place."""
    _tensor("broadcast", tensor, "tensor")
    if _outside(group):
        return None
    _peer("broadcast", src)
    _peer("broadcast", group_src)
    return _done(async_op, [tensor])


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """The reduction over all processes for one of them, in place."""
    _tensor("reduce", tensor, "tensor")
    if _outside(group):
        return None
    _peer("reduce", dst)
    _peer("reduce", group_dst)
    return _done(async_op, [tensor])


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Copies each process's tensor into an entry of tensor_list."""
    _tensors("all_gather", tensor_list, "tensor_list")
    _tensor("all_gather", tensor, "tensor")
    if _outside(group):
        return None
    _one("all_gather", tensor_list, "tensor_list")
    _copy(tensor_list[0], tensor, "all_gather")
    return _done(async_op, tensor_list)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Copies the processes' tensors one after the other into one."""
    _tensor("all_gather_into_tensor", output_tensor, "output_tensor")
    _tensor("all_gather_into_tensor", input_tensor, "input_tensor")
    if _outside(group):
        return None
    _copy(output_tensor, input_tensor, "all_gather_into_tensor")
    return _done(async_op, [output_tensor])


_all_gather_base = all_gather_single = all_gather_into_tensor


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Copies each process's tensor into an entry of gather_list on one process."""
    _tensor("gather", tensor, "tensor")
    if _outside(group):
        return None
    _peer("gather", dst)
    if not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    return all_gather(gather_list, tensor, group, async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Copies an entry of one process's scatter_list into each process's tensor."""
    _tensor("scatter", tensor, "tensor")
    if _outside(group):
        return None
    _peer("scatter", src)
    if not scatter_list:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    _tensors("scatter", scatter_list, "scatter_list")
    _one("scatter", scatter_list, "scatter_list")
    _copy(tensor, scatter_list[0], "scatter")
    return _done(async_op, [tensor])


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces entry i of all processes' lists into the output of process i."""
    _tensor("reduce_scatter", output, "output")
    _tensors("reduce_scatter", input_list, "input_list")
    if _outside(group):
        return None
    _one("reduce_scatter", input_list, "input_list")
    _copy(output, input_list[0], "reduce_scatter")
    return _done(async_op, [output])


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces all processes' tensors and gives each process its part."""
    _tensor("reduce_scatter_tensor", output, "output")
    _tensor("reduce_scatter_tensor", input, "input")
    if _outside(group):
        return None
    _copy(output, input, "reduce_scatter_tensor")
    return _done(async_op, [output])


_reduce_scatter_base = reduce_scatter_single = reduce_scatter_tensor


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Entry i of each process's inputs goes to process i's outputs."""
    _tensors("all_to_all", output_tensor_list, "output_tensor_list")
    _tensors("all_to_all", input_tensor_list, "input_tensor_list")
    if _outside(group):
        return None
    _one("all_to_all", output_tensor_list, "output_tensor_list")
    _one("all_to_all", input_tensor_list, "input_tensor_list")
    _copy(output_tensor_list[0], input_tensor_list[0], "all_to_all")
    return _done(async_op, output_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """all_to_all of parts of one tensor."""
    _tensor("all_to_all_single", output, "output")
    _tensor("all_to_all_single", input, "input")
    if _outside(group):
        return None
    for sizes in (output_split_sizes, input_split_sizes):
        if sizes:
            _one("all_to_all_single", sizes, "split sizes")
    _copy(output, input, "all_to_all_single")
    return _done(async_op, [output])


def barrier(group=None, async_op=False, device_ids=None):
    """Waits for all processes: for none."""
    return None if _outside(group) else _done(async_op, [])


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False) -> None:
    """A barrier that names who is missing: nobody."""
    _outside(group)


def _no_other(op: str, word: str):
    _group()
    raise ValueError(f"Invalid {word} rank: {word} rank should not be the same as the rank of the current process.\n"
                     f"{op}: there is one process only")


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends to another process; ValueError, as there is none."""
    _tensor("send", tensor, "tensor")
    _no_other("send", "destination")


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """send without waiting; ValueError, as there is nobody."""
    _tensor("isend", tensor, "tensor")
    _no_other("isend", "destination")


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives from another process; ValueError, as there is none."""
    _tensor("recv", tensor, "tensor")
    _no_other("recv", "source")


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """recv without waiting; ValueError, as there is nobody."""
    _tensor("irecv", tensor, "tensor")
    _no_other("irecv", "source")


def batch_isend_irecv(p2p_op_list) -> list:
    """Starts several sends and receives; ValueError unless there are none."""
    return [op.op(op.tensor, op.peer, op.group, op.tag) for op in p2p_op_list]


def all_gather_object(object_list, obj, group=None) -> None:
    """Puts a copy of each process's object into an entry of object_list."""
    if _outside(group):
        return
    _one("all_gather_object", object_list, "object_list")
    object_list[0] = copy.deepcopy(obj)


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None) -> None:
    """all_gather_object for one process."""
    if _outside(group):
        return
    _peer("gather_object", dst)
    if object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    all_gather_object(object_gather_list, obj, group)


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False) -> None:
    """The objects of one process for all, in place."""
    if not _outside(group):
        _peer("broadcast_object_list", src)
        if not isinstance(object_list, list):
            raise TypeError(f"broadcast_object_list: expected a list: got {type(object_list).__name__}")


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None) -> None:
    """An entry of one process's list for each, put first into its output list."""
    if _outside(group):
        return
    _peer("scatter_object_list", src)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    if scatter_object_input_list is None:
        raise ValueError("source rank must provide non-None scatter_object_input_list")
    _one("scatter_object_list", scatter_object_input_list, "scatter_object_input_list")
    scatter_object_output_list[0] = copy.deepcopy(scatter_object_input_list[0])


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    """Sends objects to another process; ValueError, as there is none."""
    _no_other("send_object_list", "destination")


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
    """Receives objects from another process; ValueError, as there is none."""
    _no_other("recv_object_list", "source")
