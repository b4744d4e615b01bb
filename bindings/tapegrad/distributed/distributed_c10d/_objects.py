"""Collectives on objects: plain data, tensors and arrays, in the library's own format (`_files/container.py`), which runs nothing.

What the format does not know is pickled only where `allow_pickle(True)` or TAPEGRAD_ALLOW_PICKLE=1 says so, on both sides: reading a pickle
runs what the sender wrote. A rank whose object cannot be sent tells the others, so that all raise.
"""

import copy
import io
import pickle

from ... import empty, frombuffer, int64, uint8
from ... import tensor as make_tensor
from ..._root.environment import flag
from . import _collectives as c
from ._collectives import _check_list_of_root
from ._point_to_point import _check_not_self, irecv, recv, send
from ._types import AllToAllOptions, DistError
from ._world import _canonicalize_group_rank, _member, get_global_rank

__all__ = ["all_gather_object", "allow_pickle", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
           "send_object_list"]

_allowed = flag("TAPEGRAD_ALLOW_PICKLE")
_PLAIN, _PICKLED = b"d", b"p"  # the first byte says how the rest was written
_SWITCH = "tapegrad.distributed.allow_pickle(True) or TAPEGRAD_ALLOW_PICKLE=1 on all ranks allows it; only among processes that you trust: " \
          "reading a pickle runs what the sender wrote"


def allow_pickle(allowed: bool = True) -> bool:
    """Whether objects of any class may be sent and received, pickled. Gives what was set before; off at first."""
    global _allowed
    before, _allowed = _allowed, bool(allowed)
    return before


def refused(op: str, obj, error) -> TypeError:
    """Why an object is not sent; `error`: what its writer said."""
    kind = type(obj)
    detail = str(error).partition("\n")[0].removeprefix("save: ")
    return TypeError(f"{op}: cannot send an object of class {kind.__module__}.{kind.__qualname__} as plain data: {detail}\n{_SWITCH}")


def _to_bytes(obj, op: str) -> bytearray:
    from ..._files import container

    file = io.BytesIO(_PLAIN)
    file.seek(1)
    try:
        container.write(obj, file)
    except (TypeError, ValueError) as error:
        if not _allowed:
            raise refused(op, obj, error) from None
        return bytearray(_PICKLED + pickle.dumps(obj))
    return bytearray(file.getbuffer())


def _to_object(data, op: str, source: int):
    """What `data`, a tensor of bytes, holds."""
    raw = memoryview(data.numpy()) if data.numel() else b""
    if raw[:1] == _PICKLED:
        if not _allowed:
            raise TypeError(f"{op}: rank {source} sent an object that is pickled, and this rank does not read pickles\n{_SWITCH}")
        return pickle.loads(raw[1:])
    from ...serialization import load

    return load(io.BytesIO(raw[1:]), weights_only=False)  # what was written: layers, too, and objects that are attributes and nothing else


def _bytes_of(objects, op: str) -> tuple:
    """The objects as tensors of bytes, or the error that says why not."""
    try:
        return [frombuffer(_to_bytes(obj, op), dtype=uint8) for obj in objects], None
    except Exception as error:
        return None, error


def _raise_if_failed(sizes, error, op: str, group) -> None:
    """Sizes are -1 where a rank could not write its object."""
    if error is not None:
        raise error
    for rank, size in sizes:
        if size < 0:
            raise DistError(f"{op}: rank {get_global_rank(group, rank)} has an object that it cannot send; its own error says why")


def _sizes_of_all(size: int, group) -> list:
    sizes = empty(group.size(), dtype=int64)
    c.all_gather_single(sizes, make_tensor([size]), group=group)
    return sizes.tolist()


def _written(obj, op: str, group) -> tuple:
    """(the object's bytes, their number on each rank); raises on all ranks where one of them cannot write its object."""
    written, error = _bytes_of([obj], op)
    sizes = _sizes_of_all(-1 if error else written[0].numel(), group)
    _raise_if_failed(enumerate(sizes), error, op, group)
    return written[0], sizes


def _move(inputs: list, outputs: list, group) -> None:
    """all_to_all of tensors of bytes of any sizes, which both sides of each pair know."""
    opts = AllToAllOptions()
    opts.asyncOp = False
    group.alltoall(outputs, inputs, opts).wait()


def _nothing():
    return empty(0, dtype=uint8)


def all_gather_object(object_list, obj, group=None) -> None:
    """Puts a copy of rank r's object into entry r of object_list."""
    group = _member(group, "all_gather_object")
    if group is None:
        return
    c._check_entries("all_gather_object", object_list, "object_list", group)
    if group.size() == 1:
        object_list[0] = copy.deepcopy(obj)
        return
    written, sizes = _written(obj, "all_gather_object", group)
    outputs = [empty(size, dtype=uint8) for size in sizes]
    c.all_gather(outputs, written, group=group)
    for rank, data in enumerate(outputs):
        object_list[rank] = _to_object(data, "all_gather_object", rank)


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None) -> None:
    """Puts a copy of rank r's object into entry r of the list on rank `dst` (0)."""
    group = _member(group, "gather_object")
    if group is None:
        return
    root = _canonicalize_group_rank(group, 0 if dst is None and group_dst is None else dst, group_dst)
    _check_list_of_root(group.rank(), root, object_gather_list, "gather_list", "destination")
    if group.rank() == root:
        c._check_entries("gather_object", object_gather_list, "object_gather_list", group)
    if group.size() == 1:
        object_gather_list[0] = copy.deepcopy(obj)
        return
    written, sizes = _written(obj, "gather_object", group)
    here = group.rank() == root
    outputs = [empty(size if here else 0, dtype=uint8) for size in sizes]
    _move([written if r == root else _nothing() for r in range(group.size())], outputs, group)
    if here:
        for rank, data in enumerate(outputs):
            object_gather_list[rank] = _to_object(data, "gather_object", rank)


def _check_object_list(op: str, objects) -> None:
    if not isinstance(objects, list):
        raise TypeError(f"{op}: expected a list: got {type(objects).__name__}")


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False) -> None:
    """The objects of rank `src` (0) for all, in place."""
    group = _member(group, "broadcast_object_list")
    if group is None:
        return
    root = _canonicalize_group_rank(group, 0 if src is None and group_src is None else src, group_src)
    _check_object_list("broadcast_object_list", object_list)
    if group.size() == 1:
        return
    if group.rank() == root:
        written, error = _bytes_of(object_list, "broadcast_object_list")
        sizes = make_tensor([-1] * len(object_list) if error else [t.numel() for t in written], dtype=int64)
    else:
        written, error, sizes = None, None, empty(len(object_list), dtype=int64)
    c.broadcast(sizes, group=group, group_src=root)
    sizes = sizes.tolist()
    _raise_if_failed([(root, size) for size in sizes], error, "broadcast_object_list", group)
    data = _joined(written) if written is not None else empty(sum(sizes), dtype=uint8)
    c.broadcast(data, group=group, group_src=root)
    if group.rank() != root:
        for i, part in enumerate(data.split(sizes) if sizes else ()):
            object_list[i] = _to_object(part, "broadcast_object_list", root)


def _joined(parts: list):
    from ... import cat

    return cat(parts) if parts else _nothing()


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None) -> None:
    """Entry r of the list of rank `src` (0) becomes the first entry of rank r's output list."""
    group = _member(group, "scatter_object_list")
    if group is None:
        return
    root = _canonicalize_group_rank(group, 0 if src is None and group_src is None else src, group_src)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    here = group.rank() == root
    if here:
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        c._check_entries("scatter_object_list", scatter_object_input_list, "scatter_object_input_list", group)
    n = group.size()
    if n == 1:
        scatter_object_output_list[0] = copy.deepcopy(scatter_object_input_list[0])
        return
    written, error = _bytes_of(scatter_object_input_list, "scatter_object_list") if here else (None, None)
    sizes = empty(n, dtype=int64) if not here else make_tensor([-1] * n if error else [t.numel() for t in written], dtype=int64)
    c.broadcast(sizes, group=group, group_src=root)
    sizes = sizes.tolist()
    _raise_if_failed([(root, size) for size in sizes], error, "scatter_object_list", group)
    outputs = [empty(sizes[group.rank()] if r == root else 0, dtype=uint8) for r in range(n)]
    _move(written if here else [_nothing() for _ in range(n)], outputs, group)
    scatter_object_output_list[0] = _to_object(outputs[root], "scatter_object_list", root)


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False) -> None:
    """Sends objects to rank `dst`, which knows how many there are."""
    group = _member(group, "send_object_list")
    if group is None:
        return
    peer = _canonicalize_group_rank(group, dst, group_dst)
    _check_not_self(group, peer, "destination")
    _check_object_list("send_object_list", object_list)
    written, error = _bytes_of(object_list, "send_object_list")
    if error is not None:  # the receiver waits: it gets -1 for each
        send(make_tensor([-1] * len(object_list), dtype=int64), group=group, group_dst=peer)
        raise error
    send(make_tensor([t.numel() for t in written], dtype=int64), group=group, group_dst=peer)
    send(_joined(written), group=group, group_dst=peer)


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False) -> int:
    """Receives as many objects as the list has entries, from rank `src` or from any; the sender's rank in the world."""
    group = _member(group, "recv_object_list")
    if group is None:
        return -1
    _check_object_list("recv_object_list", object_list)
    sizes = empty(len(object_list), dtype=int64)
    work = irecv(sizes, src, group, group_src=group_src)
    work.wait()
    any_source = src is None and group_src is None
    peer = work.source_rank() if any_source else _canonicalize_group_rank(group, src, group_src)
    sizes = sizes.tolist()
    _raise_if_failed([(peer, size) for size in sizes], None, "recv_object_list", group)
    data = empty(sum(sizes), dtype=uint8)
    recv(data, group=group, group_src=peer)
    for i, part in enumerate(data.split(sizes) if sizes else ()):
        object_list[i] = _to_object(part, "recv_object_list", peer)
    return get_global_rank(group, peer)
