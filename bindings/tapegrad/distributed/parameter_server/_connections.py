"""What both sides of a connection prove to know, and when one that says nothing any more is ended."""

from __future__ import annotations

import hmac
import os
import socket

from ..distributed_c10d import DistBackendError

__all__ = ["key_of", "refused", "watched"]


def key_of(secret: bytes) -> bytes:
    """The key of a job's connections: the secret in its store, and its token ($TAPEGRAD_JOB_TOKEN) where it has one."""
    token = os.environ.get("TAPEGRAD_JOB_TOKEN", "")
    return hmac.digest(token.encode(), secret, "sha256") if token else secret


def refused(shard: int) -> DistBackendError:
    return DistBackendError(f"parameter server: shard {shard} and this worker do not know the same secret: is it another job, or is "
                            "TAPEGRAD_JOB_TOKEN another one here?")


def watched(connection) -> None:
    """The connection ends when the other machine has not answered for 25 s, as the store's do. Small messages go at once."""
    with socket.socket(fileno=os.dup(connection.fileno())) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
        for name, value in options.items():
            if hasattr(socket, name):
                s.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
