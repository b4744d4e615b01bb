"""Handles in transit, which may never be received.

A handle keeps its block until it is received. While the sending end of a channel is open that is as it should be.
When it is closed with handles still on their way, the receiver may yet take them, or die with them: a descriptor that
tells of the reader's end is kept until one of the two has happened.
"""

import os
import select
import threading
from collections import deque

from .. import _C

_local = threading.local()


class given:
    """Within the block, the handles that this thread gives are noted in the list it opens with."""

    def __enter__(self) -> list:
        self._before = getattr(_local, "handles", None)
        _local.handles = handles = []
        return handles

    def __exit__(self, *exception) -> None:
        handles, _local.handles = _local.handles, self._before
        if exception[0] is not None:  # it was not sent
            for handle in handles:
                _C._shared_take_back(handle)


def note(handle: bytes) -> None:
    handles = getattr(_local, "handles", None)
    if handles is not None:
        handles.append(handle)


class InFlight:
    """The handles that went through one channel and have not been received, as far as was last looked."""

    __slots__ = ("_handles", "pid")

    def __init__(self) -> None:
        self._handles: deque[bytes] = deque()
        self.pid = os.getpid()

    def sent(self, handles: list) -> None:
        while self._handles and not _C._shared_on_its_way(self._handles[0]):
            self._handles.popleft()
        self._handles.extend(handles)

    def any(self) -> bool:
        if self.pid != os.getpid():
            return False  # they are the parent's
        self._handles = deque(h for h in self._handles if _C._shared_on_its_way(h))
        return bool(self._handles)

    def take_back(self) -> None:
        while self._handles:
            _C._shared_take_back(self._handles.popleft())


class _Orphans:
    """Closed channels with handles on their way, watched by a thread that ends when there are none."""

    POLL_S = 0.02

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[tuple[int, InFlight]] = []
        self._thread = None

    def add(self, fd: int, handles: InFlight) -> None:
        """Watches `fd`, which this takes over and which hangs up when no process can receive any more."""
        with self._lock:
            self._items.append((fd, handles))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tapegrad-orphans", daemon=True)
                self._thread.start()

    def check(self) -> bool:
        """Looks at all of them once; whether any remain."""
        with self._lock:
            remaining = []
            for fd, handles in self._items:
                poller = select.poll()
                poller.register(fd, 0)  # hang-ups and errors are always told
                if poller.poll(0):
                    handles.take_back()
                if handles.any():
                    remaining.append((fd, handles))
                else:
                    os.close(fd)
            self._items = remaining
            return bool(remaining)

    def _run(self) -> None:
        wait = threading.Event()
        while not wait.wait(self.POLL_S):
            self.check()
            with self._lock:
                if not self._items:
                    self._thread = None
                    return

    def clear(self) -> None:
        with self._lock:
            for fd, handles in self._items:
                handles.take_back()
                os.close(fd)
            self._items = []

    def forget(self) -> None:
        """In a forked child: all of it is the parent's."""
        items, self.__dict__ = self._items, {}
        self.__init__()
        for fd, _ in items:
            os.close(fd)


orphans = _Orphans()
os.register_at_fork(after_in_child=orphans.forget)


def linger(fileno: int, handles: InFlight) -> None:
    """Called before the sending end `fileno` is closed."""
    if handles.any():
        try:
            orphans.add(os.dup(fileno), handles)
        except OSError:  # no descriptor left: they cannot be watched
            handles.take_back()
