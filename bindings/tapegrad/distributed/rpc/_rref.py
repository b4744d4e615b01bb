"""References to values on other workers, and their reference counts.

The owner keeps a value as long as a worker holds a reference to it. Every reference that travels has a number of its own (a fork), under which
the owner knows it. A worker that passes one on keeps its own until the owner knows the new one: the receiver tells the owner, which tells the
sender. So the owner frees the value with the last one, whatever the order in which messages arrive; what a lost worker held is taken as let go.
"""

from __future__ import annotations

import functools
import itertools
import threading
import types
import weakref

from ...futures import Future
from . import _messages as m
from .constants import UNSET_RPC_TIMEOUT

__all__ = ["RRef", "Table"]


class _Entry:
    """A value that this worker owns, or will."""

    __slots__ = ("adopted", "error", "forks", "future", "id")

    def __init__(self, number: tuple) -> None:
        self.id, self.future, self.forks = number, Future(), {}
        self.error = None  # how the function failed that was to give the value: what callers are told
        self.adopted = False

    def fail(self, error: BaseException, told: list) -> None:
        if not self.future.done():
            self.error = told
            self.future.set_exception(error)


class RRef:
    """A reference to a value that one worker, its owner, holds. `RRef(value)` makes the owner's; `remote` gives references to what will be
    there once a function has run on another worker. It may be an argument or a result of calls.

    Args:
        value: what to refer to.
        type_hint: not used.
    """

    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, value, type_hint=None) -> None:
        from .api import _get_current_rpc_agent

        agent = _get_current_rpc_agent()
        entry = _Entry((agent.id, agent.number()))
        entry.adopted = True
        entry.future.set_result(value)
        self._set(agent, agent.id, entry.id, None, entry)

    def _set(self, agent, owner: int, number: tuple, fork, entry) -> RRef:
        self._agent, self._owner, self._id, self._fork, self._entry = agent, owner, number, fork, entry
        self._confirmed = entry is not None
        self._created = None  # the future of the call that makes the value
        return self

    def _rpc_reduced(self, writer) -> dict:
        return {"$rref": self._agent.rrefs.pass_on(self, writer)}

    def __del__(self) -> None:
        fork = self.__dict__.get("_fork")
        if fork is not None:
            self._agent.rrefs.let_go(self)

    def __repr__(self) -> str:
        number = "GloballyUniqueId(created_on={}, local_id={})"
        if self._entry is not None:
            return f"OwnerRRef({number.format(*self._id)})"
        return f"UserRRef(RRefId = {number.format(*self._id)}, ForkId = {number.format(*self._fork)})"

    def __reduce__(self):
        raise RuntimeError("RRef: it cannot be pickled: pass it as an argument of a call, or return it from one")

    def is_owner(self) -> bool:
        """Whether this worker holds the value."""
        return self._entry is not None

    def owner(self):
        """The WorkerInfo of the owner."""
        return self._agent.workers[self._owner]

    def owner_name(self) -> str:
        """The name of the owner."""
        return self.owner().name

    def confirmed_by_owner(self) -> bool:
        """Whether the owner has registered this reference."""
        return self._confirmed

    def _check_created(self) -> None:
        if self._created is not None and self._created.done():
            self._created.wait()  # raises where the call failed
            self._created = None

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT):
        """A copy of the value; on its owner the value itself. Waits for it. Raises what the function that was to give it raised, RuntimeError
        after `timeout` seconds (0: never; the worker's limit where it is not given) or where the owner has gone."""
        if self._entry is not None:
            return self._agent.wait_here(self._entry.future, timeout, "to_here")
        self._check_created()
        return self._agent.call(m.FETCH, self._owner, list(self._id), timeout, "to_here", kept=self).wait()

    def local_value(self):
        """The value, on its owner; RuntimeError elsewhere. Waits for it."""
        if self._entry is None:
            raise RuntimeError(f"For {self!r}, can't call localValue() on user {self._agent.me}. Call it on owner {self.owner()}")
        return self._entry.future.wait()

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT):
        """`rref.rpc_sync().f(x)` calls the value's method on its owner and gives what it returned."""
        from .api import rpc_sync

        return _Proxy(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT):
        """`rref.rpc_async().f(x)` gives a Future."""
        from .api import rpc_async

        return _Proxy(self, rpc_async, timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT):
        """`rref.remote().f(x)` gives an RRef to the result."""
        from .api import remote

        return _Proxy(self, remote, timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Backward from the value, a tensor of one element, on its owner: in that context of distributed.autograd, or, without one, on the
        owner alone, into `.grad`. RuntimeError elsewhere than on the owner where there is no context."""
        from .api import rpc_sync

        if self._entry is not None:
            _backward_here(self, dist_autograd_ctx_id, retain_graph)
        elif dist_autograd_ctx_id == -1:
            raise RuntimeError("User RRef: backward needs a context of distributed.autograd: give dist_autograd_ctx_id")
        else:
            rpc_sync(self.owner(), _backward_here, args=(self, dist_autograd_ctx_id, retain_graph))

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True):
        from .api import rpc_async

        future = rpc_async(self.owner(), _type_here, args=(self,), timeout=timeout)
        return future.wait() if blocking else future

    def _get_future(self) -> Future:
        if self._created is not None:
            return self._created
        done = Future()
        done.set_result(None)
        return done


def _backward_here(rref: RRef, context_id: int, retain_graph: bool) -> None:
    from .. import autograd

    value = rref.local_value()
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        autograd.backward(context_id, [value], retain_graph)


def _type_here(rref: RRef) -> type:
    return type(rref.local_value())


def on_value(rref: RRef, name: str, args: tuple, kwargs: dict):
    """Calls a method of the value; the agent waits for the value and takes this apart."""
    raise AssertionError("on_value is not called")


class _Proxy:
    """Its attributes call the value's methods."""

    def __init__(self, rref: RRef, api, timeout: float) -> None:
        self._rref, self._api, self._timeout = rref, api, timeout

    def __getattr__(self, name: str):
        if name.startswith("__") and name != "__call__":
            raise AttributeError(name)
        return functools.partial(self._call, name)

    def _call(self, name: str, *args, **kwargs):
        return self._api(self._rref.owner(), on_value, args=(self._rref, name, args, kwargs), timeout=self._timeout)


class Table:
    """The references of a worker."""

    def __init__(self, agent) -> None:
        self.agent = agent
        self._lock = threading.RLock()
        self.owned: dict = {}  # id -> _Entry, where other workers hold references
        self._passed: dict = {}  # fork -> (RRef, worker): passed on, the owner does not know yet
        self._users: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # fork -> RRef
        self._forks = itertools.count(1)

    def _fork(self) -> tuple:
        return self.agent.id, next(self._forks)

    # References that are made and passed on.
    def created(self, owner: int) -> RRef:
        """What `remote` gives: the owner learns of it with the call."""
        fork = self._fork()
        number = (self.agent.id, self.agent.number())
        if owner == self.agent.id:
            entry = self.entry(number)
            return RRef.__new__(RRef)._set(self.agent, owner, number, None, entry)
        rref = RRef.__new__(RRef)._set(self.agent, owner, number, fork, None)
        self._users[fork] = rref
        return rref

    def entry(self, number: tuple) -> _Entry:
        """The entry of a reference, which may be known before the call that makes it has come."""
        with self._lock:
            if number not in self.owned:
                self.owned[number] = _Entry(number)
            return self.owned[number]

    def adopt(self, number: tuple, fork, holder: int) -> _Entry:
        """The call that makes the value has come. fork None: this worker called itself."""
        with self._lock:
            entry = self.entry(number)
            entry.adopted = True
            if fork is not None:
                entry.forks[fork] = holder
            elif not entry.forks:
                del self.owned[number]
            return entry

    def pass_on(self, rref: RRef, writer) -> list:
        """What travels of a reference: owner, id, fork, and who passes it on if that is not the owner."""
        if rref._agent is not self.agent:
            raise RuntimeError("RRef: it belongs to workers that have been shut down")
        if rref._entry is None:
            rref._check_created()
            if writer.to == rref._owner and writer.answered:  # it holds a reference for that long
                writer.kept.append(rref)
                return [rref._owner, *rref._id, -1, -1, -1]
        fork = self._fork()
        with self._lock:
            if rref._entry is not None:
                self.owned[rref._id] = rref._entry
                rref._entry.forks[fork] = writer.to
            else:
                self._passed[fork] = (rref, writer.to)
        writer.forks.append((rref._id, fork))
        return [rref._owner, *rref._id, *fork, -1 if rref._entry is not None else self.agent.id]

    def take_back(self, forks: list) -> None:
        """The message could not be sent."""
        for number, fork in forks:
            self.accepted(fork)
            self.deleted(number, fork)

    def receive(self, source: int, data: list) -> RRef:
        """A reference that has come. RuntimeError for one whose value was freed."""
        if type(data) is not list or len(data) != 6 or not all(type(n) is int for n in data) or not 0 <= data[0] < len(self.agent.workers):
            raise ValueError("rpc: a reference is damaged")
        owner, number, fork, sender = data[0], (data[1], data[2]), (data[3], data[4]), data[5]
        made = RRef.__new__(RRef)
        if owner == self.agent.id:
            with self._lock:
                entry = self.owned.get(number)
                if entry is None:
                    if number[0] == owner:
                        raise RuntimeError("rpc: the value of a reference was freed: no reference to it was left")
                    entry = self.entry(number)
                made._set(self.agent, owner, number, None, entry)
            if sender >= 0:
                self.agent.later(sender, m.ACCEPTED, list(fork))
            elif fork[0] >= 0:
                self.deleted(number, fork)
            return made
        made._set(self.agent, owner, number, fork, None)
        self._users[fork] = made
        if sender >= 0:
            self.agent.later(owner, m.FORKED, [*number, *fork, sender])
        else:
            made._confirmed = True
        return made

    # What the others tell.
    def forked(self, holder: int, number: tuple, fork: tuple, sender: int) -> None:
        """Owner: a worker has got a reference from another one."""
        with self._lock:
            self.entry(number).forks[fork] = holder
        self.agent.later(holder, m.CONFIRMED, list(fork))
        if sender == self.agent.id:
            self.accepted(fork)
        else:
            self.agent.later(sender, m.ACCEPTED, list(fork))

    def accepted(self, fork: tuple) -> None:
        """The owner has registered a reference that this worker has passed on."""
        with self._lock:
            gone = self._passed.pop(fork, None)
        del gone  # outside of the lock: it may be the last one

    def confirmed(self, fork: tuple) -> None:
        rref = self._users.get(fork)
        if rref is not None:
            rref._confirmed = True

    def deleted(self, number: tuple, fork: tuple) -> None:
        """Owner: a reference is there no more."""
        with self._lock:
            entry = self.owned.get(number)
            if entry is not None:
                entry.forks.pop(fork, None)
                if not entry.forks and entry.adopted:
                    del self.owned[number]
        del entry

    def let_go(self, rref: RRef) -> None:
        self.agent.later(rref._owner, m.DELETED, [*rref._id, *rref._fork])

    def worker_gone(self, worker: int, error: BaseException, told: list) -> None:
        """What a lost worker held, and was passed, counts no more; values that it was to give do not come."""
        freed = []
        with self._lock:
            for number, entry in list(self.owned.items()):
                for fork in [f for f, holder in entry.forks.items() if holder == worker]:
                    del entry.forks[fork]
                if not entry.adopted and number[0] == worker:
                    freed.append((entry, True))
                    del self.owned[number]
                elif not entry.forks and entry.adopted:
                    freed.append((entry, False))
                    del self.owned[number]
            freed += [(self._passed.pop(f), False) for f, (_, to) in list(self._passed.items()) if to == worker]
        for entry, failed in freed:
            if failed:
                entry.fail(error, told)

    def clear(self) -> None:
        with self._lock:
            gone = self.owned, self._passed
            self.owned, self._passed = {}, {}
        del gone
