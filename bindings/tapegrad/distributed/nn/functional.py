"""Collectives that gradients pass through. Among one process each is the identity, or a copy."""

from __future__ import annotations

from .. import distributed_c10d as _c10d
from ..distributed_c10d import ReduceOp

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]


def all_reduce(tensor, op=ReduceOp.SUM, group=None):
    """The reduction over all processes: a copy of the tensor."""
    _c10d._group(group)
    return tensor.clone()


def broadcast(tensor, src, group=None):
    """One process's tensor: a copy of it."""
    _c10d._group(group)
    _c10d._peer("broadcast", src)
    return tensor.clone()


def reduce(tensor, dst, op=ReduceOp.SUM, group=None):
    """The reduction for one process: a copy of the tensor."""
    return broadcast(tensor, dst, group)


def all_gather(tensor, group=None) -> tuple:
    """The tensors of all processes."""
    _c10d._group(group)
    return (tensor.clone(),)


def gather(tensor, dst=0, group=None) -> tuple:
    """The tensors of all processes, for one."""
    return (broadcast(tensor, dst, group),)


def scatter(tensors, src=0, group=None):
    """This process's entry of one process's list."""
    _c10d._one("scatter", tensors, "tensors")
    return broadcast(tensors[0], src, group)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None):
    """This process's entry of the reduced lists."""
    _c10d._group(group)
    _c10d._one("reduce_scatter", input_list, "input_list")
    return input_list[0].clone()


def all_to_all(output_tensor_list, input_tensor_list, group=None) -> tuple:
    """The entries that all processes have for this one."""
    _c10d._group(group)
    _c10d._one("all_to_all", input_tensor_list, "input_tensor_list")
    return (input_tensor_list[0].clone(),)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    """The parts that all processes have for this one."""
    _c10d._group(group)
    return input.clone()
