"""Key-value stores by which processes find each other: in memory, in a file, over the network, behind a prefix.

Keys are texts, values bytes; nothing is unpickled. Calls may come from any thread. A store belongs to the process that made it.
"""

from __future__ import annotations

import os
from datetime import timedelta

from ... import _C
from ._types import DistStoreError

__all__ = ["FileStore", "HashStore", "PrefixStore", "QueueEmptyError", "Store", "TCPStore"]


class QueueEmptyError(DistStoreError):
    """A queue has nothing in it, and the caller did not want to wait."""

    __module__ = "tapegrad.distributed"


def _milliseconds(op: str, timeout) -> int:
    if not isinstance(timeout, timedelta):
        raise TypeError(f"{op}: the timeout must be a datetime.timedelta: got {type(timeout).__name__}")
    if timeout < timedelta(0):
        raise ValueError(f"{op}: the timeout must not be negative: got {timeout}")
    return -(-timeout // timedelta(milliseconds=1)) if timeout < timedelta(days=36500) else 36500 * 86400 * 1000


def _limit(op: str, timeout) -> tuple:
    return () if timeout is None else (_milliseconds(op, timeout),)


class Store:
    """Keys (texts) and values (bytes, or texts that are stored as UTF-8)."""

    _store = None  # a _C._Store

    def _native(self):
        if self._store is None:
            raise TypeError(f"{type(self).__name__}: only HashStore, FileStore, TCPStore and PrefixStore can carry a process group")
        return self._store

    def set(self, key: str, value) -> None:
        """Writes a value. It is there for all when the call returns."""
        self._native().set(key, value)

    def get(self, key: str) -> bytes:
        """The value; waits for it until the timeout, then DistStoreError."""
        return self._native().get(key)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, 0 at first; the result is its new value."""
        return self._native().add(key, amount)

    def append(self, key: str, value) -> None:
        """Writes behind the value that is there."""
        self._native().append(key, value)

    def compare_set(self, key: str, expected_value, desired_value) -> bytes:
        """Writes the desired value where the expected one is, or where there is none and none is expected.

        The result is what is there then; the expected value where there is none.
        """
        return self._native().compare_set(key, expected_value, desired_value)

    def wait(self, keys, timeout: timedelta | None = None) -> None:
        """Waits until all keys are there; DistStoreError names those that are not, after the timeout."""
        self._native().wait(keys, *_limit("wait", timeout))

    def check(self, keys) -> bool:
        """Whether all keys are there."""
        return self._native().check(keys)

    def delete_key(self, key: str) -> bool:
        """Removes a key; whether it was there."""
        return self._native().delete_key(key)

    def num_keys(self) -> int:
        """The number of keys; of the whole store where this one has a prefix."""
        return self._native().num_keys()

    def list_keys(self) -> list[str]:
        """The keys, in no order."""
        return self._native().list_keys()

    def multi_get(self, keys) -> list[bytes]:
        """The values of several keys; waits for them."""
        return self._native().multi_get(keys)

    def multi_set(self, keys, values) -> None:
        """Writes a value for each key."""
        self._native().multi_set(keys, values)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Waits until it has been called `world_size` times with this key."""
        self._native().barrier(key, world_size, *_limit("barrier", timeout))

    def queue_push(self, key: str, value) -> None:
        """Adds a value to the end of a queue."""
        self._native().queue_push(key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Takes the first value of a queue. Waits for one until the timeout; without `block` QueueEmptyError where there is none."""
        value = self._native().queue_pop(key, block)
        if value is None:
            raise QueueEmptyError(f"queue_pop: the queue is empty: {key}")
        return value

    def queue_len(self, key: str) -> int:
        """How many values a queue has."""
        return self._native().queue_len(key)

    def has_extended_api(self) -> bool:
        """Whether append, multi_get and multi_set are one step each."""
        return not isinstance(self, FileStore)

    @property
    def timeout(self) -> timedelta:
        """How long calls wait."""
        return timedelta(milliseconds=self._native().timeout_ms)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls wait from now on."""
        self._native().set_timeout_ms(_milliseconds("set_timeout", timeout))

    def clone(self) -> Store:
        """Another object on the same keys, with a timeout of its own."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._store = self._native().clone()
        return other

    def close(self, why: str = "it was closed by this process") -> None:
        """Ends all calls of this object with DistStoreError, those that wait and later ones. Other objects notice nothing."""
        self._native().close(why)

    def __reduce__(self):
        raise TypeError(f"{type(self).__name__}: a store belongs to the process that made it: make another one on the same keys there")


class HashStore(Store):
    """A store in the memory of this process, for threads."""

    def __init__(self):
        self._store = _C._hash_store()


class FileStore(Store):
    """A store in a file that all processes can open. The last of `world_size` processes removes it.

    The file must not be there from another run. PyTorch's FileStore reads and writes the same files.
    """

    def __init__(self, file_name: str, world_size: int = -1):
        self._store = _C._file_store(file_name, -1 if world_size is None else world_size)
        self.path = os.fspath(file_name)


class TCPStore(Store):
    """A store that one process serves and others reach over the network; PyTorch's TCPStore is reached so, too, and reaches this one.

    The server listens at `host_name` and nowhere else, or at $TAPEGRAD_STORE_LISTEN. `token`: a secret that both sides show that they
    know, $TAPEGRAD_JOB_TOKEN if it is not given; with one, PyTorch's stores are not reached. `wait_for_workers`: the server waits
    until `world_size` clients have come, itself included.
    """

    def __init__(self, host_name: str, port: int = 29500, world_size: int | None = None, is_master: bool = False,
                 timeout: timedelta = timedelta(seconds=300), wait_for_workers: bool = True, multi_tenant: bool = False,
                 master_listen_fd: int | None = None, use_libuv: bool = True, *, token: str | None = None):
        self._store = _C._tcp_store(
            host=host_name, port=port, is_server=is_master, world_size=world_size or 0, wait_for_workers=wait_for_workers,
            multi_tenant=multi_tenant, timeout_ms=_milliseconds("TCPStore", timeout),
            listen_fd=-1 if master_listen_fd is None else master_listen_fd,
            token=os.environ.get("TAPEGRAD_JOB_TOKEN", "") if token is None else token)

    @property
    def host(self) -> str:
        """The server's name, as it was given."""
        return self._native().host

    @property
    def port(self) -> int:
        """The server's port."""
        return self._native().port

    def __repr__(self) -> str:
        return f"<tapegrad.distributed.TCPStore at {self.host}:{self.port}>"


class PrefixStore(Store):
    """A store whose keys begin with a prefix in another store."""

    def __init__(self, prefix: str, store: Store):
        if not isinstance(store, Store):
            raise TypeError(f"PrefixStore: expected a store: got {type(store).__name__}")
        self._store = _C._prefix_store(prefix, store._native())
        self.prefix, self.underlying_store = prefix, store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store = self.underlying_store
        while isinstance(store, PrefixStore):
            store = store.underlying_store
        return store
