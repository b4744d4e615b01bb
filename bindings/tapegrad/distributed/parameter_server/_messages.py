"""A message: the length of its head (4 bytes), the head in JSON, and the bytes of its tensors one behind the other."""

import json
import struct

from ... import Tensor, cat
from .._wire import bytes_of, described, made
from ..distributed_c10d import DistBackendError

__all__ = ["KEY", "MOST_BYTES", "decode", "encode"]

KEY = "parameter_server"
MOST_BYTES = 1 << 34  # of a message: memory is taken as bytes come, for those only who have shown the secret
_MOST_HEAD = 1 << 26


def encode(head: dict, tensors=()) -> bytes:
    """The message of plain values and tensors."""
    head = {**head, "tensors": [described(t) for t in tensors]}
    text = json.dumps(head).encode()
    return b"".join([struct.pack("<I", len(text)), text, *(bytes_of(t.cpu()) for t in tensors)])


def decode(data: bytes) -> tuple[dict, list]:
    """Plain values and tensors; ValueError for bytes that are no message."""
    if len(data) < 4 or not 2 <= (n := struct.unpack_from("<I", data)[0]) <= min(_MOST_HEAD, len(data) - 4):
        raise ValueError("a parameter server's message is damaged: its head")
    head = json.loads(data[4:4 + n])
    if not isinstance(head, dict) or not isinstance(head.get("tensors"), list):
        raise ValueError("a parameter server's message is damaged: its head")
    at, tensors = 4 + n, []
    for description in head.pop("tensors"):
        name, shape = description
        t, memory = made(name, shape, len(data) - at)
        memory[:] = data[at:at + len(memory)]
        tensors.append(t)
        at += len(memory)
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


def gone(shard: int, why) -> DistBackendError:
    return DistBackendError(f"parameter server: shard {shard} has gone: {why or 'the connection was closed'}")


def refused(shard: int) -> DistBackendError:
    return DistBackendError(f"parameter server: shard {shard} and this worker do not know the same secret: is it another job, or is "
                            "TAPEGRAD_JOB_TOKEN another one here?")
