"""Collectives that gradients pass through. Each is called by all ranks, forward and backward, in the same order."""

from ... import empty, empty_like, zeros_like
from ...autograd import Function
from .. import distributed_c10d as c10d
from ..distributed_c10d._types import RedOpType

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]


def _group(group):
    return c10d._group_or_default_group(group)


def _copied(collective, tensor, *arguments):
    """What a collective that works in place makes of a copy of the tensor."""
    tensor = tensor.clone()
    collective(tensor, *arguments)
    return tensor


class _Broadcast(Function):
    @staticmethod
    def forward(ctx, src, group, tensor):
        ctx.src, ctx.group = src, group
        return _copied(c10d.broadcast, tensor, src, group)

    @staticmethod
    def backward(ctx, grad):
        total = _Reduce.apply(ctx.src, RedOpType.SUM, ctx.group, grad)
        return None, None, total if c10d.get_rank() == ctx.src else zeros_like(total)


class _Reduce(Function):
    @staticmethod
    def forward(ctx, dst, op, group, tensor):
        ctx.dst, ctx.group = dst, group
        return _copied(c10d.reduce, tensor, dst, op, group)

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx, op, group, tensor):
        ctx.op, ctx.group = op, group
        return _copied(c10d.all_reduce, tensor, op, group)

    @staticmethod
    def backward(ctx, grad):
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx, dst, group, tensor):
        ctx.dst, ctx.group = dst, group
        outputs = [zeros_like(tensor) for _ in range(group.size())]
        c10d.gather(tensor, outputs if c10d.get_rank() == dst else None, dst, group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *grads):
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx, src, group, *tensors):
        ctx.src, ctx.group = src, group
        if any(t.shape != tensors[0].shape for t in tensors):
            raise ValueError(f"scatter: tensors must have one shape: got {[list(t.shape) for t in tensors]}")
        output = zeros_like(tensors[0])
        c10d.scatter(output, list(tensors) if c10d.get_rank() == src else None, src, group)
        return output

    @staticmethod
    def backward(ctx, grad):
        return None, None, *_Gather.apply(ctx.src, ctx.group, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx, group, tensor):
        ctx.group = group
        outputs = [empty_like(tensor) for _ in range(group.size())]
        c10d.all_gather(outputs, tensor, group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *grads):
        return None, _ReduceScatter.apply(RedOpType.SUM, ctx.group, empty_like(grads[0]), *grads)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx, op, group, output, *tensors):
        ctx.group = group
        output = empty_like(output)
        c10d.reduce_scatter(output, list(tensors), op, group)
        return output

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, *_AllGather.apply(ctx.group, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx, group, outputs, *tensors):
        ctx.group, ctx.shapes = group, [t.shape for t in tensors]
        outputs = [empty_like(t) for t in outputs]
        c10d.all_to_all(outputs, list(tensors), group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx, *grads):
        outputs = [empty(shape, dtype=grads[0].dtype, device=grads[0].device) for shape in ctx.shapes]
        return None, None, *_AllToAll.apply(ctx.group, outputs, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx, group, output_shape, output_split_sizes, input_split_sizes, input):
        ctx.group, ctx.sizes, ctx.shape = group, (input_split_sizes, output_split_sizes), input.shape
        output = empty(output_shape, dtype=input.dtype, device=input.device)
        c10d.all_to_all_single(output, input, output_split_sizes, input_split_sizes, group)
        return output

    @staticmethod
    def backward(ctx, grad):
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, ctx.shape, *ctx.sizes, grad)


def all_reduce(tensor, op=RedOpType.SUM, group=None):
    """The reduction over all ranks. Its gradient is reduced with the same operation."""
    return _AllReduce.apply(op, _group(group), tensor)


def broadcast(tensor, src, group=None):
    """The tensor of rank `src`, which gets the sum of all gradients."""
    return _Broadcast.apply(src, _group(group), tensor)


def reduce(tensor, dst, op=RedOpType.SUM, group=None):
    """The reduction for rank `dst`, whose gradient goes to all; the others get their tensors back."""
    return _Reduce.apply(dst, op, _group(group), tensor)


def all_gather(tensor, group=None) -> tuple:
    """The tensors of all ranks; a rank gets the sum of the gradients that all have for its own."""
    return _AllGather.apply(_group(group), tensor)


def gather(tensor, dst=0, group=None) -> tuple:
    """The tensors of all ranks on rank `dst`, zeros elsewhere."""
    return _Gather.apply(dst, _group(group), tensor)


def scatter(tensors, src=0, group=None):
    """Entry r of the tensors of rank `src` for rank r. The others' tensors say the shape."""
    group = _group(group)
    c10d._collectives._check_entries("scatter", tensors, "tensors", group)
    return _Scatter.apply(src, group, *tensors)


def reduce_scatter(output, input_list, op=RedOpType.SUM, group=None):
    """The reduction of all ranks' entries r for rank r. The output says the shape."""
    return _ReduceScatter.apply(op, _group(group), output, *input_list)


def all_to_all(output_tensor_list, input_tensor_list, group=None) -> tuple:
    """Entry r of the inputs to rank r, entry r of the result from it. The outputs say the shapes."""
    return _AllToAll.apply(_group(group), output_tensor_list, *input_tensor_list)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    """Rows of the input to each rank, rows of the result from each. The output says the shape."""
    return _AllToAllSingle.apply(_group(group), output.shape, output_split_sizes, input_split_sizes, input)
