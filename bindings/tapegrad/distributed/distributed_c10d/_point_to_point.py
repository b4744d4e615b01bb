"""Sends and receives between two ranks, alone and in batches.

Messages of one sender, receiver and tag arrive in the order in which they were sent. `irecv` with no source takes from whichever rank
sends first.
"""

from ._collectives import _check_single_tensor
from ._world import _canonicalize_group_rank, _group_or_default_group, _member, get_global_rank

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def _check_not_self(group, rank: int, word: str) -> None:
    if group.rank() == rank:
        raise ValueError(f"Invalid {word} rank: {word} rank should not be the same as the rank of the current process.")


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Sends to rank `dst` without waiting; the tensor must not change before the Work is done."""
    group = _member(group, "isend")
    if group is None:
        return None
    peer = _canonicalize_group_rank(group, dst, group_dst)
    _check_single_tensor(tensor, "tensor")
    _check_not_self(group, peer, "destination")
    return group.send([tensor], peer, tag)


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receives from rank `src`, or from any, without waiting."""
    _check_single_tensor(tensor, "tensor")
    group = _member(group, "irecv")
    if group is None:
        return None
    if src is None and group_src is None:
        return group.recv_anysource([tensor], tag)
    peer = _canonicalize_group_rank(group, src, group_src)
    _check_not_self(group, peer, "source")
    return group.recv([tensor], peer, tag)


def send(tensor, dst=None, group=None, tag=0, group_dst=None) -> None:
    """Sends to rank `dst`."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None) -> int:
    """Receives from rank `src`, or from any; the sender's rank in the world, -1 outside the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    if src is not None:
        return src
    return get_global_rank(_group_or_default_group(group), work._source_rank() if group_src is None else group_src)


class P2POp:
    """A send (op=isend) or a receive (op=irecv) for batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        _check_single_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = _group_or_default_group(group)
        self.peer = _canonicalize_group_rank(self.group, peer, group_peer, return_global=True)
        self.group_peer = _canonicalize_group_rank(self.group, peer, group_peer)

    def __repr__(self) -> str:
        mine = self.group.rank()
        src, dst = (mine, self.group_peer) if self.op is isend else (self.group_peer, mine)
        return (f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={src}, group_dst={dst},  {self.tensor.shape}, "
                f"{self.tensor.dtype})")


def batch_isend_irecv(p2p_op_list: list) -> list:
    """Starts several sends and receives; their works. All of them are under way before any is waited for."""
    if not isinstance(p2p_op_list, list) or not all([isinstance(op, P2POp) for op in p2p_op_list]):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if len({op.group for op in p2p_op_list}) > 1:
        raise ValueError("All ops need to use the same group.")
    for op in p2p_op_list:
        _check_not_self(op.group, op.group_peer, "destination" if op.op is isend else "source")
    works = []
    for op in p2p_op_list:
        call = op.group.send if op.op is isend else op.group.recv
        works.append(call([op.tensor], op.group_peer, op.tag))
    return works
