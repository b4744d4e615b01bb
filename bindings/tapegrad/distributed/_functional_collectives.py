"""Collectives that give new tensors and take their group as a group, a name, ranks, or a mesh and a dimension. Gradients pass through.

PyTorch starts these and waits when a result is used; here a result is there when the call returns, and wait_tensor gives its argument.
"""

from .. import cat, empty
from ..autograd import Function
from . import distributed_c10d as c10d
from .distributed_c10d._process_group import ProcessGroup
from .distributed_c10d._types import ReduceOp
from .nn.functional import _AllReduce, _AllToAllSingle, _Broadcast

__all__ = ["AsyncCollectiveTensor", "all_gather_single", "all_gather_single_autograd", "all_gather_single_coalesced", "all_gather_tensor",
           "all_gather_tensor_autograd", "all_gather_into_tensor_coalesced", "all_reduce", "all_reduce_coalesced", "all_to_all_single",
           "all_to_all_single_autograd", "broadcast", "permute_tensor", "reduce_scatter_single", "reduce_scatter_single_autograd",
           "reduce_scatter_single_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "reduce_scatter_tensor_coalesced",
           "wait_tensor"]


class AsyncCollectiveTensor:
    """The class of results that are not there yet: there are none."""


def _resolve(group, tag: str = "") -> ProcessGroup:
    from .device_mesh import DeviceMesh

    if isinstance(group, str):
        return c10d._resolve_process_group(group)
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, list):
        ranks = next((r for r in group if c10d.get_rank() in r), None) if group and isinstance(group[0], list) else group
        for pg in c10d._world.pg_map:
            if sorted(c10d.get_process_group_ranks(pg)) == sorted(ranks or ()):
                return pg
        raise ValueError(f"there is no process group of the ranks {ranks}: make it with new_group")
    return c10d._group_or_default_group(group)


def _op(name: str):
    found = ReduceOp.RedOpType.__members__.get(name.upper())
    if found is None:
        raise ValueError(f"expected the name of a reduction: got {name!r}")
    return found


def _sums_only(what: str, op) -> None:
    if op is not ReduceOp.SUM:
        raise RuntimeError(f"{what} backward only supports 'sum' reduction, got '{op.name.lower()}'")


class _SumAllReduce(_AllReduce):
    @staticmethod
    def backward(ctx, grad):
        _sums_only("all_reduce", ctx.op)
        return _AllReduce.backward(ctx, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        rows = tensor.shape if tensor.dim() else (1,)
        output = empty((rows[0] * group.size(), *rows[1:]), dtype=tensor.dtype, device=tensor.device)
        c10d.all_gather_single(output, tensor, group)
        ctx.shape = tensor.shape
        return output

    @staticmethod
    def backward(ctx, grad):
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, grad).reshape(ctx.shape)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        output = empty((tensor.shape[0] // group.size(), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        c10d.reduce_scatter_single(output, tensor, op, group)
        return output

    @staticmethod
    def backward(ctx, grad):
        _sums_only("reduce_scatter_tensor", ctx.op)
        return None, None, _AllGather.apply(ctx.group, grad)


def wait_tensor(tensor):
    """The tensor: it is there."""
    return tensor


def broadcast(self, src: int, group, tag: str = ""):
    """The tensor of rank `src` of the group."""
    group = _resolve(group, tag)
    return _Broadcast.apply(c10d.get_global_rank(group, src), group, self)


def all_reduce(self, reduceOp: str, group, tag: str = ""):
    """The reduction ("sum", "avg", "max" ...) over all ranks."""
    return _SumAllReduce.apply(_op(reduceOp), _resolve(group, tag), self)


def all_gather_single(self, gather_dim: int, group, tag: str = ""):
    """The ranks' tensors joined along a dimension."""
    group = _resolve(group, tag)
    joined = _AllGather.apply(group, self)
    return joined if gather_dim == 0 else cat(joined.chunk(group.size()), dim=gather_dim)


def reduce_scatter_single(self, reduceOp: str, scatter_dim: int, group, tag: str = ""):
    """The rank's part, along a dimension, of the reduction over all ranks."""
    group = _resolve(group, tag)
    if self.size(scatter_dim) % group.size():
        raise AssertionError(f"input dimension {scatter_dim} ({self.size(scatter_dim)}) must be a multiple of group_size {group.size()}")
    return _ReduceScatter.apply(_op(reduceOp), group, self if scatter_dim == 0 else cat(self.chunk(group.size(), dim=scatter_dim)))


def all_to_all_single(self, output_split_sizes, input_split_sizes, group, tag: str = ""):
    """Rows to each rank, rows from each; equal parts where no sizes are given."""
    group = _resolve(group, tag)
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise AssertionError("output_split_sizes and input_split_sizes must either be specified together or both set to None")
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    return _AllToAllSingle.apply(group, (rows, *self.shape[1:]), output_split_sizes, input_split_sizes, self)


def permute_tensor(self, src_dst: list, group, tag: str = ""):
    """Rank r's tensor goes to rank src_dst[r]."""
    group = _resolve(group, tag)
    if sorted(src_dst) != list(range(group.size())):
        raise ValueError(f"permute_tensor: expected each rank of the group once: got {src_dst}")
    mine, n, sizes = group.rank(), self.numel(), range(group.size())
    flat = all_to_all_single(self.reshape(-1), [n if src_dst[r] == mine else 0 for r in sizes], [n if src_dst[mine] == r else 0 for r in sizes], group)
    return flat.reshape(self.shape)


def all_reduce_coalesced(self: list, reduceOp: str, group, tag: str = "") -> list:
    """all_reduce of several tensors."""
    return [all_reduce(t, reduceOp, group, tag) for t in self]


def all_gather_single_coalesced(self: list, group, tag: str = "") -> list:
    """all_gather_single of several tensors along their first dimension."""
    return [all_gather_single(t, 0, group, tag) for t in self]


def reduce_scatter_single_coalesced(inputs: list, reduceOp: str, scatter_dim: list, group, tag: str = "") -> list:
    """reduce_scatter_single of several tensors."""
    if len(scatter_dim) != len(inputs):
        raise AssertionError(f"Length of scatter_dim ({len(scatter_dim)}) must equal length of inputs ({len(inputs)})")
    return [reduce_scatter_single(t, reduceOp, dim, group, tag) for t, dim in zip(inputs, scatter_dim, strict=True)]


all_gather_tensor = all_gather_single_autograd = all_gather_tensor_autograd = all_gather_single
reduce_scatter_tensor = reduce_scatter_single_autograd = reduce_scatter_tensor_autograd = reduce_scatter_single
all_to_all_single_autograd = all_to_all_single
all_gather_into_tensor_coalesced = all_gather_single_coalesced
reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
