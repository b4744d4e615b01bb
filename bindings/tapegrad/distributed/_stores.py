"""Key-value stores by which processes would find each other. In a world of one a dictionary does."""

from __future__ import annotations

import threading
from datetime import timedelta

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]


class Store:
    """Keys (texts) and values (bytes)."""

    def __init__(self):
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self.timeout = timedelta(minutes=5)

    def set(self, key: str, value) -> None:
        """Writes a value: bytes or text."""
        with self._changed:
            self._values[key] = value.encode() if isinstance(value, str) else bytes(value)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        """The value; waits for it until the timeout, then DistStoreError."""
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, 0 at first; the result is its new value."""
        with self._changed:
            value = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(value).encode()
            self._changed.notify_all()
            return value

    def compare_set(self, key: str, expected_value, desired_value) -> bytes:
        """Writes the desired value where the expected one is, or where both are missing; the result is what is there then."""
        expected, desired = (v.encode() if isinstance(v, str) else bytes(v) for v in (expected_value, desired_value))
        with self._changed:
            if self._values.get(key, b"") == expected:
                self._values[key] = desired
            self._changed.notify_all()
            return self._values.get(key, expected)

    def wait(self, keys, timeout=None) -> None:
        """Waits until all keys are there; DistStoreError after the timeout."""
        from .distributed_c10d import DistStoreError

        limit = (timeout or self.timeout).total_seconds()
        with self._changed:
            if not self._changed.wait_for(lambda: all(key in self._values for key in keys), limit):
                missing = [key for key in keys if key not in self._values]
                raise DistStoreError(f"Store.wait: no value after {limit} s for {', '.join(missing)}")

    def check(self, keys) -> bool:
        """Whether all keys are there."""
        return all(key in self._values for key in keys)

    def delete_key(self, key: str) -> bool:
        """Removes a key; whether it was there."""
        with self._changed:
            return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        """The number of keys."""
        return len(self._values)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long get and wait wait."""
        self.timeout = timeout


class HashStore(Store):
    """A store within the process."""


class _OfMany(Store):
    def __init__(self, world_size):
        super().__init__()
        if world_size is not None and world_size > 1:
            from .distributed_c10d import one_process_only

            raise RuntimeError(one_process_only(type(self).__name__, world_size))


class TCPStore(_OfMany):
    """A store that other processes would reach over the network; for one process it is in memory."""

    def __init__(self, host_name, port=0, world_size=None, is_master=False, timeout=timedelta(minutes=5), wait_for_workers=True,
                 multi_tenant=False, master_listen_fd=None, use_libuv=True):
        super().__init__(world_size)
        self.host, self.port, self.timeout = host_name, port, timeout


class FileStore(_OfMany):
    """A store that other processes would reach through a file; for one process it is in memory."""

    def __init__(self, file_name, world_size=None):
        super().__init__(world_size)
        self.path = file_name


class PrefixStore(Store):
    """A store whose keys begin with a prefix in another store."""

    def __init__(self, prefix: str, store: Store):
        super().__init__()
        self.prefix, self.underlying_store = prefix, store
        for name in ("set", "get", "add", "compare_set", "delete_key"):
            method = getattr(store, name)
            setattr(self, name, lambda key, *rest, _method=method: _method(f"{prefix}/{key}", *rest))

    def wait(self, keys, timeout=None) -> None:
        """Waits for the keys in the other store."""
        self.underlying_store.wait([f"{self.prefix}/{key}" for key in keys], timeout)

    def check(self, keys) -> bool:
        """Whether all keys are in the other store."""
        return self.underlying_store.check([f"{self.prefix}/{key}" for key in keys])
