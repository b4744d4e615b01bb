"""Contexts: multiprocessing's, with our queues, pipes and processes."""

import multiprocessing
import multiprocessing.context as _context
import multiprocessing.pool

from . import queue as _queue
from ._by_value import wrap as by_value
from ._lingering import InFlight, given, linger

__all__ = ["JoinableQueue", "Manager", "Pipe", "Pool", "Process", "Queue", "SimpleQueue", "get_context"]


class _Started:
    """Part of a process: the handles among its arguments are taken back when it ends without having received them."""

    def start(self) -> None:
        with given() as handles:
            if (self._start_method or multiprocessing.get_start_method()) != "fork":
                # The child finds nothing of a notebook by name.
                self._target, self._args, self._kwargs = map(by_value, (self._target, self._args, self._kwargs))
            super().start()
        if handles:
            in_flight = InFlight()
            in_flight.sent(handles)
            linger(self.sentinel, in_flight)


def _process_class(base):
    return type(base.__name__, (_Started, base), {"__module__": __name__, "__doc__": base.__doc__})


Process = _process_class(multiprocessing.Process)
ForkProcess = _process_class(_context.ForkProcess)
SpawnProcess = _process_class(_context.SpawnProcess)
ForkServerProcess = _process_class(_context.ForkServerProcess)


class _Channels:
    def Queue(self, maxsize=0):
        """A queue for objects, tensors among them."""
        return _queue.Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize=0):
        """A queue with task_done and join."""
        return _queue.JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self):
        """A locked pipe."""
        return _queue.SimpleQueue(ctx=self.get_context())

    def Pipe(self, duplex=True):
        """Two connected ends."""
        return _queue.Pipe(duplex)

    def Pool(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None):
        """Processes that work through calls."""
        return multiprocessing.pool.Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context())

    def get_context(self, method=None):
        """The context of a start method; this one when none is named."""
        return self if method is None else get_context(method)


def _context_class(base, process):
    return type(base.__name__, (_Channels, base), {"Process": process, "__module__": __name__, "__doc__": base.__doc__})()


_CONTEXTS = {
    "fork": _context_class(_context.ForkContext, ForkProcess),
    "spawn": _context_class(_context.SpawnContext, SpawnProcess),
    "forkserver": _context_class(_context.ForkServerContext, ForkServerProcess),
}


def get_context(method: str | None = None):
    """The context of a start method ("fork", "spawn", "forkserver"); None: of the one that is set."""
    method = multiprocessing.get_start_method() if method is None else method
    if method not in _CONTEXTS:
        raise ValueError(f"cannot find context for {method!r}")
    return _CONTEXTS[method]


def Queue(maxsize=0):
    """A queue for objects, tensors among them."""
    return get_context().Queue(maxsize)


def JoinableQueue(maxsize=0):
    """A queue with task_done and join."""
    return get_context().JoinableQueue(maxsize)


def SimpleQueue():
    """A locked pipe."""
    return get_context().SimpleQueue()


def Pipe(duplex=True):
    """Two connected ends; with duplex=False the first receives and the second sends."""
    return _queue.Pipe(duplex)


def Pool(processes=None, initializer=None, initargs=(), maxtasksperchild=None):
    """Processes that work through calls."""
    return get_context().Pool(processes, initializer, initargs, maxtasksperchild)


def Manager():
    """A process that holds objects for others."""
    return multiprocessing.Manager()
