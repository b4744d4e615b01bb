"""Remote procedure calls: rpc_sync, rpc_async, remote."""

import atexit
import contextlib
import functools
import json
import os
import re
import socket
import threading
import time
from datetime import timedelta
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener

from ...futures import Future, wait_all
from .. import _wire
from ..distributed_c10d import PrefixStore, TCPStore
from ..distributed_c10d._rendezvous import find_world
from . import _messages as m
from ._agent import Agent, WorkerInfo
from ._connection import Connection, Loopback
from ._rref import RRef
from .constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from .options import BackendType, RpcBackendOptions, TensorPipeRpcBackendOptions

__all__ = ["RRef", "WorkerInfo", "get_worker_info", "init_rpc", "remote", "rpc_async", "rpc_sync", "shutdown"]

_agent: Agent | None = None
_process = 0  # that has made it
_inits: dict = {}  # how many times this process has begun, by rank
_collecting = threading.local()
_NAME = re.compile(r"[\w:-]{1,127}")


def _is_current_rpc_agent_set() -> bool:
    return _agent is not None and _process == os.getpid()


def _get_current_rpc_agent() -> Agent:
    agent = _agent
    if agent is None or _process != os.getpid():
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return agent


def _require_initialized(func):
    """Decorator: the function raises RuntimeError before this process is a worker."""
    @functools.wraps(func)
    def checked(*args, **kwargs):
        _get_current_rpc_agent()
        return func(*args, **kwargs)

    return checked


# Beginning.
def init_rpc(name: str, backend=None, rank: int = -1, world_size: int | None = None, rpc_backend_options=None) -> None:
    """Makes this process a worker; waits for the others.

    Args:
        name: of this worker, different from all others': letters, digits, "_", ":" and "-".
        backend: BackendType.TENSORPIPE or None.
        rank, world_size: this worker's number, and how many there are; from the launcher where they are not given.
        rpc_backend_options: a TensorPipeRpcBackendOptions: threads, limit of calls in seconds, where workers find each other.

    Workers run what others ask for, under the name of a function: all of a job have to trust each other. Who does not know the job's secret,
    which is in its store, is not talked to. Raises RuntimeError where there is a worker already in this process, a name is taken, or workers
    do not come within the limit of calls; ValueError for names and device maps that do not fit.
    """
    global _agent, _process
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if rpc_backend_options is not None and not isinstance(rpc_backend_options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"init_rpc: a worker's name has 1 to 127 letters, digits, '_', ':' or '-': got {name!r}")
    if _is_current_rpc_agent_set():
        raise RuntimeError("RPC is already initialized")
    given = rpc_backend_options or TensorPipeRpcBackendOptions()
    options = given if isinstance(given, TensorPipeRpcBackendOptions) else TensorPipeRpcBackendOptions(
        rpc_timeout=given.rpc_timeout, init_method=given.init_method)
    limit = options.rpc_timeout or 1e9
    store, rank, size = find_world(options.init_method, rank, -1 if world_size is None else world_size, timedelta(seconds=min(limit, 1e9)))
    if not 0 <= rank < size:
        raise ValueError(f"init_rpc: rank must be within the world: got rank={rank} and world_size={size}")
    _inits[rank] = _inits.get(rank, 0) + 1
    agent = _meet(PrefixStore(f"rpc/{_inits[rank]}", store), name, rank, size, options, limit)
    agent.store = store  # served by rank 0 as long as there are workers
    if _process == 0:
        atexit.register(_at_exit)
    _agent, _process = agent, os.getpid()
    agent.start()


def _address(store) -> str:
    """Where other workers reach this one: the address from which it reaches the store."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        return "127.0.0.1"
    for family, kind, protocol, _, place in socket.getaddrinfo(store.host, store.port, type=socket.SOCK_DGRAM):
        if family == socket.AF_INET:
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as s:
                s.connect(place)  # sends nothing
                return s.getsockname()[0]
    return "127.0.0.1"


def _meet(store, name: str, rank: int, size: int, options, limit: float) -> Agent:
    """The agent of this worker, connected to all others: to those of lower rank it connects, those of higher rank come."""
    store.set_timeout(timedelta(seconds=min(limit, 1e9)))
    secret = _wire.secret_of(store, "secret")
    listener = Listener((_address(store), 0), backlog=max(16, 2 * size)) if size > 1 else None
    accepting = _Accepting(listener, secret, rank, size)
    try:
        maps = {to: [[str(a), str(b)] for a, b in places.items()] for to, places in options.device_maps.items()}
        store.set(str(rank), json.dumps([name, *(listener.address if listener else ("", 0)), maps]))
        try:
            store.wait([str(r) for r in range(size)])
        except RuntimeError as error:
            missing = [r for r in range(size) if not store.check([str(r)])]
            raise RuntimeError(f"init_rpc: {len(missing)} of {size} workers did not come within {limit:g} s: ranks "
                               f"{', '.join(map(str, missing))}") from error
        others = [json.loads(store.get(str(r))) for r in range(size)]
        names = [other[0] for other in others]
        for r, one in enumerate(names):
            if one in names[:r]:
                raise RuntimeError(f"init_rpc: ranks {names.index(one)} and {r} have the same name {one!r}")
        unknown = sorted(set(options.device_maps) - set(names))
        if unknown:
            raise ValueError(f"Node {name} has invalid target node names in its device maps: {', '.join(unknown)}")
        workers = [WorkerInfo(one, r) for r, one in enumerate(names)]
        agent = Agent(workers[rank], workers, options, {r: dict(other[3].get(name, ())) for r, other in enumerate(others)})
        for other, connection in {**_connected(others, rank, secret, limit), **accepting.all(limit)}.items():
            agent.connections[other] = Connection(connection, functools.partial(agent.on_message, other), functools.partial(agent.on_end, other))
        agent.connections[rank] = Loopback(functools.partial(agent.on_message, rank))
        return agent
    finally:
        accepting.end()


def _connected(others: list, rank: int, secret: bytes, limit: float) -> dict:
    """Connections to the workers of lower rank, by rank."""
    made = {}
    for other in range(rank):
        name, host, port, _ = others[other]
        try:
            made[other] = _wire.connect((host, port), secret, min(limit, 3600))
            with _wire.limited(made[other], min(limit, 3600)):
                made[other].send_bytes(str(rank).encode())
                made[other].recv_bytes(16)
        except (OSError, EOFError, AuthenticationError) as error:
            raise RuntimeError(f"init_rpc: {name} (rank {other}) has gone: {error or 'the connection was closed'}") from error
    return made


class _Accepting:
    """Connections of workers of higher rank. Each is authenticated in a thread of its own, so that invalid clients delay no one."""

    def __init__(self, listener, secret: bytes, rank: int, size: int) -> None:
        self._listener, self._secret, self._rank, self._size = listener, secret, rank, size
        self._changed = threading.Condition()
        self._came: dict = {}
        self._over = False
        if rank + 1 < size:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._over:
            try:
                connection = self._listener.accept()
            except OSError:
                if not self._over:
                    time.sleep(0.05)  # no descriptors left
                continue
            threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()

    def _welcome(self, connection) -> None:
        try:
            _wire.welcome(connection, self._secret)
            with _wire.limited(connection, _wire.HANDSHAKE):
                rank = int(connection.recv_bytes(16))
                with self._changed:
                    if not self._rank < rank < self._size or rank in self._came or self._over:
                        raise ValueError(rank)
                    connection.send_bytes(b"welcome")
                    self._came[rank] = connection
                    self._changed.notify_all()
        except (OSError, EOFError, AuthenticationError, ValueError, TypeError):  # not authenticated, or dead
            with contextlib.suppress(OSError):
                connection.close()

    def all(self, limit: float) -> dict:
        """The connections by rank, once all are there."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._came) == self._size - 1 - self._rank, min(limit, 1e6)):
                missing = set(range(self._rank + 1, self._size)) - set(self._came)
                raise RuntimeError(f"init_rpc: ranks {', '.join(map(str, sorted(missing)))} did not connect within {limit:g} s")
            came, self._came = self._came, {}
            self._over = True
            return came

    def end(self) -> None:
        with self._changed:
            self._over = True
            for connection in self._came.values():
                connection.close()
        if self._listener is not None:
            with contextlib.suppress(OSError), socket.create_connection(self._listener.address, 1):  # wakes up who accepts
                pass
            self._listener.close()


# The end.
def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Ends this worker. graceful: waits until all workers that are there have come here and no call is under way; RuntimeError where that takes
    longer than `timeout` seconds (0: never), and then where a worker has gone; this worker ends in any case. Otherwise ends at once, for itself."""
    agent = _get_current_rpc_agent()
    try:
        if graceful:
            agent.join(timeout)
    finally:
        _end(agent)


def _end(agent: Agent) -> None:
    global _agent
    agent.close()
    _agent = None


def _at_exit() -> None:
    if _is_current_rpc_agent_set():
        _end(_agent)


# Calls.
def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker of a name, or this one; RuntimeError where there is none."""
    agent = _get_current_rpc_agent()
    return agent.me if worker_name is None else agent.worker(worker_name)


def _to_worker_info(to) -> WorkerInfo:
    return _get_current_rpc_agent().worker(to)


def _asked(kind: int, to, func, args, kwargs, timeout: float, what: str, **options) -> Future:
    agent = _get_current_rpc_agent()
    return agent.call(kind, agent.worker(to).id, [func, tuple(args or ()), dict(kwargs or {})], timeout, what, **options)


def rpc_sync(to, func, args=None, kwargs=None, timeout: float = UNSET_RPC_TIMEOUT):
    """What `func(*args, **kwargs)` gives on a worker (a name, a rank or a WorkerInfo). Functions travel by name, values as copies.

    Raises what the function raised, with the traceback from there; RuntimeError after `timeout` seconds (0: never; the worker's limit where
    it is not given) or where the worker has gone; TypeError for values that cannot be sent.
    """
    return _asked(m.CALL, to, func, args, kwargs, timeout, "rpc_sync").wait()


def rpc_async(to, func, args=None, kwargs=None, timeout: float = UNSET_RPC_TIMEOUT) -> Future:
    """rpc_sync that does not wait: a Future of the result. What is sent has been copied when the call returns."""
    future = _asked(m.CALL, to, func, args, kwargs, timeout, "rpc_async")
    collected = getattr(_collecting, "futures", None)
    if collected is not None:
        collected.append(future)
    return future


def remote(to, func, args=None, kwargs=None, timeout: float = UNSET_RPC_TIMEOUT) -> RRef:
    """rpc_async whose result stays on the worker: an RRef to it, at once."""
    agent = _get_current_rpc_agent()
    rref = agent.rrefs.created(agent.worker(to).id)
    fork = None if rref._fork is None else list(rref._fork)
    created = rref._created = _asked(m.REMOTE, to, func, args, kwargs, timeout, "remote", extra=[list(rref._id), fork])
    created.add_done_callback(functools.partial(_made, agent, rref._fork, rref._entry))
    return rref


def _made(agent: Agent, fork, entry, created: Future) -> None:
    if created._error is None:
        if fork is not None:
            agent.rrefs.confirmed(fork)
    elif entry is not None:
        entry.fail(created._error, agent._told(created._error))


@contextlib.contextmanager
def _wait_all():
    """Waits at its end for all futures that rpc_async gave within."""
    _collecting.futures = []
    try:
        yield
    finally:
        try:
            wait_all(_collecting.futures)
        finally:
            del _collecting.futures


# Meetings of workers, by PyTorch's private names.
class AllGatherStates:
    """What has come of one meeting."""

    def __init__(self) -> None:
        self.gathered_objects: dict = {}
        self.proceed_signal = threading.Event()


_meetings: dict = {}
_meetings_lock = threading.Lock()
_meetings_begun: dict = {}


def _meeting(number: str) -> AllGatherStates:
    with _meetings_lock:
        return _meetings.setdefault(number, AllGatherStates())


def _gather_to_leader(number: str, name: str, value, names: list) -> None:
    meeting = _meeting(number)
    with _meetings_lock:
        meeting.gathered_objects[name] = value
        if set(meeting.gathered_objects) == set(names):
            meeting.proceed_signal.set()


def _broadcast_to_followers(number: str, values: dict) -> None:
    meeting = _meeting(number)
    meeting.gathered_objects = values
    meeting.proceed_signal.set()


def _all_gather(obj, worker_names=None, timeout: float = UNSET_RPC_TIMEOUT) -> dict:
    """The objects of all workers (or of those named) by name; each of them calls this. RuntimeError after `timeout` seconds."""
    agent = _get_current_rpc_agent()
    names = sorted(worker_names or agent.by_name)
    key = ",".join(names)
    with _meetings_lock:
        _meetings_begun[key] = _meetings_begun.get(key, 0) + 1
        number = f"{key}#{_meetings_begun[key]}"
    leader, limit = names[0], agent.timeout if timeout < 0 else timeout
    if agent.me.name == leader:
        _gather_to_leader(number, leader, obj, names)
    else:
        rpc_sync(leader, _gather_to_leader, args=(number, agent.me.name, obj, names), timeout=limit)
    meeting = _meeting(number)
    if not meeting.proceed_signal.wait(limit or None):
        raise RuntimeError(f"_all_gather: {', '.join(sorted(set(names) - set(meeting.gathered_objects)))} did not come within {limit:g} s")
    if agent.me.name == leader:
        wait_all([rpc_async(name, _broadcast_to_followers, args=(number, meeting.gathered_objects), timeout=limit) for name in names[1:]])
    with _meetings_lock:
        return _meetings.pop(number).gathered_objects


def _barrier(worker_names) -> None:
    """Waits until all these workers have called it."""
    _all_gather(None, set(worker_names))


def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Waits until all workers have called it."""
    _all_gather(None, timeout=timeout)
