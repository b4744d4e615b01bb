"""Queues and pipes that track which handles are still in transit."""

import multiprocessing.connection
import multiprocessing.queues
import os
import weakref
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler

from ._lingering import InFlight, given, linger
from .reductions import dumps

__all__ = ["Connection", "JoinableQueue", "Pipe", "Queue", "SimpleQueue"]


class Connection(multiprocessing.connection.Connection):
    """One end of a pipe."""

    def __init__(self, handle, readable=True, writable=True):
        super().__init__(handle, readable, writable)
        self._in_flight = InFlight()

    @classmethod
    def _from(cls, other):
        """Takes the descriptor of another connection over."""
        self = cls(other._handle, other.readable, other.writable)
        other._handle = None
        return self

    def send(self, obj) -> None:
        """Sends an object; its tensors become shared memory."""
        self._check_closed()
        self._check_writable()
        with given() as handles:
            self._send_bytes(dumps(obj))
        if handles:
            self._in_flight.sent(handles)

    def _let_go(self) -> None:
        if self._handle is not None and self._in_flight.any():
            linger(self._handle, self._in_flight)

    def close(self) -> None:
        """Closes this end; what is on its way can still be received."""
        self._let_go()
        super().close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self._let_go()
        super().__del__()


def _rebuild_connection(fd, readable, writable):
    return Connection(fd.detach(), readable, writable)


def _reduce_connection(connection):
    return _rebuild_connection, (reduction.DupFd(connection.fileno()), connection.readable, connection.writable)


reduction.register(Connection, _reduce_connection)


def Pipe(duplex: bool = True):
    """Two connected ends; with duplex=False the first receives and the second sends."""
    return tuple(Connection._from(end) for end in multiprocessing.connection.Pipe(duplex))


class SimpleQueue(multiprocessing.queues.SimpleQueue):
    """A locked pipe."""

    def __init__(self, *, ctx):
        super().__init__(ctx=ctx)
        self._reader = Connection._from(self._reader)
        self._writer = Connection._from(self._writer)
        self._poll = self._reader.poll

    def put(self, obj) -> None:
        with given() as handles:
            data = dumps(obj)
            if self._wlock is None:
                self._writer.send_bytes(data)
            else:
                with self._wlock:
                    self._writer.send_bytes(data)
        if handles:
            self._writer._in_flight.sent(handles)


class _Packed:
    """An object that was pickled before it went into a queue's feeder thread."""

    __slots__ = ("data",)

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return ForkingPickler.loads, (bytes(self.data),)


def _queue_gone(probe: list, handles: InFlight) -> None:
    if probe and handles.pid == os.getpid():
        linger(probe[0], handles)
        os.close(probe[0])


class Queue(multiprocessing.queues.Queue):
    """A queue with a thread that feeds its pipe. Objects are pickled by `put`, so what is wrong with them is raised there."""

    def _reset(self, after_fork=False):
        super()._reset(after_fork)
        self._in_flight = InFlight()
        self._probe: list[int] = []  # a descriptor of the sending end that the feeder does not close
        weakref.finalize(self, _queue_gone, self._probe, self._in_flight).atexit = False

    def put(self, obj, block=True, timeout=None):
        with given() as handles:
            data = dumps(obj)
            super().put(_Packed(data), block, timeout)
        if handles:
            if not self._probe:
                self._probe.append(os.dup(self._writer.fileno()))
            self._in_flight.sent(handles)


class JoinableQueue(Queue, multiprocessing.queues.JoinableQueue):
    """A queue that counts unfinished tasks: in its order of bases, the put() that Queue.put calls is the one that counts."""
