"""A message: the length of its head (4 bytes), the head in JSON, and the bytes of its tensors one behind the other."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import struct
import threading

from ... import Tensor, cat, dtype, frombuffer, tensor, uint8
from ..distributed_c10d import DistBackendError

__all__ = ["KEY", "MOST_BYTES", "decode", "encode", "limited"]

KEY = "parameter_server"
MOST_BYTES = 1 << 34  # of a message: memory is taken as bytes come, for those only who have shown the secret
_MOST_HEAD = 1 << 26


def _bytes_of(t: Tensor) -> bytes:
    return t.detach().cpu().contiguous().reshape(-1).view(uint8).numpy().tobytes() if t.numel() else b""


def encode(head: dict, tensors=()) -> bytes:
    """The message of plain values and tensors."""
    head = {**head, "tensors": [[str(t.dtype).rpartition(".")[2], list(t.shape)] for t in tensors]}
    text = json.dumps(head).encode()
    return b"".join([struct.pack("<I", len(text)), text, *map(_bytes_of, tensors)])


def decode(data: bytes) -> tuple[dict, list]:
    """Plain values and tensors; ValueError for bytes that are no message."""
    import tapegrad

    if len(data) < 4 or not 2 <= (n := struct.unpack_from("<I", data)[0]) <= min(_MOST_HEAD, len(data) - 4):
        raise ValueError("a parameter server's message is damaged: its head")
    head = json.loads(data[4:4 + n])
    if not isinstance(head, dict) or not isinstance(head.get("tensors"), list):
        raise ValueError("a parameter server's message is damaged: its head")
    at, tensors = 4 + n, []
    for name, shape in head.pop("tensors"):
        kind = vars(tapegrad).get(name)
        if not isinstance(kind, dtype) or not all(type(s) is int and 0 <= s < 1 << 40 for s in shape):
            raise ValueError("a parameter server's message is damaged: a tensor's head")
        size = math.prod(shape) * kind.itemsize
        if size > len(data) - at:
            raise ValueError("a parameter server's message is damaged: it is too short")
        made = frombuffer(bytearray(data[at:at + size]), dtype=uint8).view(kind) if size else tensor([], dtype=kind)
        tensors.append(made.reshape(shape))
        at += size
    if at != len(data):
        raise ValueError("a parameter server's message is damaged: it is too long")
    return head, tensors


def rows_of(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Ids, each once, and rows of a gradient."""
    grad = (grad if grad.is_sparse else grad.to_sparse(1)).coalesce()
    return grad.indices()[0], grad.values()


def joined(parts: list):
    """The sum of gradients of one parameter: tensors, or (ids, rows)."""
    if isinstance(parts[0], Tensor):
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return total
    return cat([ids for ids, _ in parts]), cat([rows for _, rows in parts])


@contextlib.contextmanager
def limited(connection, seconds: float):
    """Within this, reads and writes of a connection end after so long: as if the other side had closed it."""
    def cut():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as s:
            s.shutdown(socket.SHUT_RDWR)  # close() would not wake up who reads

    late = threading.Timer(seconds, cut)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def gone(shard: int, why) -> DistBackendError:
    return DistBackendError(f"parameter server: shard {shard} has gone: {why or 'the connection was closed'}")
