"""Connections between processes of one job outside of process groups: authentication, and the transfer of tensors.

Both sides prove that they know the secret of the job, which is in the store, and its token where it has one. Tensors are described in JSON (dtype and shape) and follow as
bytes; nothing is unpickled.
"""

import contextlib
import hmac
import math
import os
import secrets
import socket
import threading
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge

from .. import Tensor, dtype, empty, uint8

__all__ = ["HANDSHAKE", "bytes_of", "connect", "described", "limited", "made", "secret_of", "watched", "welcome", "with_token"]

HANDSHAKE = 10.0  # seconds that a connection has to show the secret
_dtypes: dict = {}


def secret_of(store, key: str) -> bytes:
    """The key that both sides prove to know: the secret in the job's store, created by the first process that needs it, and the job's token."""
    mine = secrets.token_hex(32)
    return with_token(store.compare_set(key, "", mine) or mine.encode())


def with_token(secret: bytes) -> bytes:
    """A secret that is in the store, and $TAPEGRAD_JOB_TOKEN where the job has one."""
    token = os.environ.get("TAPEGRAD_JOB_TOKEN", "")
    return hmac.digest(token.encode(), secret, "sha256") if token else secret


def watched(connection) -> None:
    """The connection ends when the other machine has not answered for 25 s, as the store's do. Small messages go at once."""
    with socket.socket(fileno=os.dup(connection.fileno())) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
        for name, value in options.items():
            if hasattr(socket, name):
                s.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


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


def welcome(connection: Connection, secret: bytes) -> None:
    """The listener's side of a new connection: the other one proves the secret first, in time; OSError, EOFError or AuthenticationError."""
    watched(connection)
    with limited(connection, HANDSHAKE):
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)


def connect(address, secret: bytes, seconds: float) -> Connection:
    """A connection to a listener; raises as `welcome`."""
    connection = Client(address)
    try:
        watched(connection)
        with limited(connection, seconds):
            answer_challenge(connection, secret)
            deliver_challenge(connection, secret)
    except BaseException:
        connection.close()
        raise
    return connection


def described(t: Tensor) -> list:
    """What is sent of a tensor before its bytes."""
    return [str(t.dtype).rpartition(".")[2], list(t.shape)]


def bytes_of(t: Tensor):
    """The bytes of a tensor of the CPU, row after row: its own memory where it lies so."""
    return memoryview(t.detach().contiguous().reshape(-1).view(uint8).numpy()) if t.numel() else b""


def made(name, shape, most: int) -> tuple:
    """A new tensor of a description that has arrived, and its memory, to be filled. ValueError for what is no description, or takes more
    than `most` bytes."""
    if not _dtypes:
        import tapegrad

        _dtypes.update({n: kind for n, kind in vars(tapegrad).items() if isinstance(kind, dtype)})
    kind = _dtypes.get(name) if type(name) is str else None
    if kind is None or type(shape) is not list or len(shape) > 64 or not all(type(s) is int and 0 <= s < 1 << 40 for s in shape):
        raise ValueError("a message is damaged: a tensor's head")
    size = math.prod(shape) * kind.itemsize
    if size > most:
        raise ValueError("a message is damaged: it is too short")
    if not size:
        return empty(shape, dtype=kind), memoryview(bytearray())
    raw = empty(size, dtype=uint8)
    return raw.view(kind).reshape(shape), memoryview(raw.numpy())
