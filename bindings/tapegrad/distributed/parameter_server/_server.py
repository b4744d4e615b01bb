"""One shard: holds parameters, takes gradients, applies the optimizer. A thread per connection; the state is under one lock."""

import contextlib
import math
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener

from ... import bfloat16, float16, float32, float64, no_grad, sparse_coo_tensor
from ..._warn import warn
from ...nn import Parameter
from .._wire import limited, secret_of, welcome
from ._files import ShardFiles
from ._messages import KEY, MOST_BYTES, decode, encode, joined

__all__ = ["ParameterServer"]

_DTYPES = {"bfloat16": bfloat16, "float16": float16, "float32": float32, "float64": float64}
_SLICE = 0.05  # seconds between two looks at whether a worker that waits is still there


class ParameterServer:
    """A shard of a parameter server.

    Args:
        store: the store of the job; servers put their addresses there, and the secret of the job.
        optimizer: a function that makes the optimizer of a list of parameters. Tables get sparse gradients: optim.SGD, Adagrad and
            SparseAdam take them, and change only rows that have one.
        table_optimizer: the same for the tables, where they have another than the other parameters.
        workers: how many workers there are, numbered from 0.
        shard, shards: the number of this server, and how many there are. Parameters go to shards by name, rows of tables by number.
        first: synchronous training: the first so many gradients of a step make the step (their mean, added in the order of workers);
            gradients that come later are dropped. None: asynchronous, each gradient is applied when it comes.
        staleness: asynchronous training: how many pushes a worker may be ahead of the slowest one before its pull waits.
        patience: seconds after which a worker that is not heard of (stopped, behind a link that is cut) no longer counts for that bound.
            Workers tell that they are there while they compute, so it has to be longer than a message travels, not than a step takes.
            When one comes back and the others are ahead by more than the bound, it goes on where the slowest of them is, and gradients of
            values that it had before are dropped. None: everyone counts until the connection ends.
        folder: where the shard is saved every `save_every` steps and at the end, complete or not at all; the last `keep` stay, and the newest
            that all shards have. serve() goes on from that one: all shards are started together, and files of later steps are removed.
        address: where to listen.
        timeout: seconds that a worker's call may wait.

    Raises ValueError for numbers that do not fit. A worker that dies or leaves is no longer waited for; where fewer than `first` are left,
    those that wait get an error.
    """

    def __init__(self, store, optimizer, *, workers: int, shard: int = 0, shards: int = 1, first: int | None = None,
                 staleness: int | None = None, patience: float | None = 10.0, folder=None, save_every: int = 100, keep: int = 3,
                 address: str = "127.0.0.1", timeout: float = 60.0, table_optimizer=None) -> None:
        if not 0 <= shard < shards or workers < 1 or save_every < 1 or keep < 1:
            raise ValueError(f"ParameterServer: shard {shard} of {shards}, {workers} workers, save_every={save_every}, keep={keep} do not "
                             "fit")
        if first is not None and (not 1 <= first <= workers or staleness is not None):
            raise ValueError(f"ParameterServer: first must be 1 to {workers}, without staleness: got {first} and staleness={staleness}")
        if staleness is not None and staleness < 0:
            raise ValueError(f"ParameterServer: staleness must not be negative: got {staleness}")
        if patience is not None and not patience > 0:
            raise ValueError(f"ParameterServer: patience must be a number of seconds above 0, or None: got {patience}")
        self.workers, self.shard, self.shards, self.first, self.staleness, self.timeout = workers, shard, shards, first, staleness, timeout
        self.patience, self.save_every = patience, save_every
        self._files = None if folder is None else ShardFiles(folder, shard, shards, keep, store)
        self._make = {"optimizer": optimizer} if table_optimizer is None else {"optimizer": optimizer, "table_optimizer": table_optimizer}
        self.parameters: dict = {}
        self.tables: set = set()  # names of the parameters of which this shard has rows
        self.version = 0  # steps that were taken
        self.dropped = 0  # gradients that came too late
        self._broken = ""  # why no step can be taken any more
        self.recorded: list = []  # workers whose gradients made the last step
        self._optimizers: dict | None = None  # made by the first step
        self._saved: dict = {}  # their states that were loaded
        self._changed = threading.Condition()  # an RLock's: state_dict() is called inside, too
        self._alive: dict = {}  # worker -> pushes
        self._heard: dict = {}  # worker -> when; math.inf while it is answered
        self._outdated: set = set()  # workers whose values are older than the bound allows
        self._came: set = set()
        self._step: dict = {}  # worker -> its gradients for the step that is being collected
        self._key = secret_of(store, f"{KEY}/secret")
        self._listener = Listener((address, 0), backlog=max(16, 2 * workers))
        self._ends = threading.Event()
        host, port = self._listener.address
        store.set(f"{KEY}/{shard}", f"{host} {port} {shards} {workers}")

    # State.
    def state_dict(self) -> dict:
        """Values, the optimizers' states and the number of steps."""
        with self._changed:
            made = self._saved if self._optimizers is None else {k: o.state_dict() for k, o in self._optimizers.items()}
            return {"parameters": {k: p.detach().clone() for k, p in self.parameters.items()}, "tables": sorted(self.tables),
                    "optimizer": made.get("optimizer"), "table_optimizer": made.get("table_optimizer"), "version": self.version,
                    "shards": self.shards}

    def load_state_dict(self, state: dict) -> None:
        """Takes over a state; before workers come. Raises ValueError for one of another number of shards."""
        if state["shards"] != self.shards:
            raise ValueError(f"parameter server: the state of a shard of {state['shards']} does not fit one of {self.shards}")
        self.parameters, self.tables = {k: Parameter(v) for k, v in state["parameters"].items()}, set(state["tables"])
        self.version, self._optimizers = state["version"], None
        self._saved = {k: state[k] for k in ("optimizer", "table_optimizer") if state[k] is not None}

    # Connections.
    def serve(self) -> None:
        """Goes on from what is saved in the folder, and serves until all workers have come and left (or died), or close() is called. Ctrl-C
        ends it. Raises RuntimeError where something is saved and there is no step that all shards can read."""
        try:
            if self._files is not None and (state := self._files.resume()) is not None:
                self.load_state_dict(state)
            threading.Thread(target=self._accept, daemon=True).start()
            while not self._ends.wait(_SLICE):
                if self._files is not None:
                    self._files.tidy()
                with self._changed:
                    if len(self._came) == self.workers and not self._alive:
                        break
        finally:
            self.close()
            with self._changed:
                if self._files is not None and self.version and not self._broken:
                    self._files.save(self.version, self.state_dict())

    def close(self) -> None:
        """Ends serve(). Workers that call after it are told that the shard has gone."""
        self._ends.set()
        with contextlib.suppress(OSError):
            self._listener.close()

    def _accept(self) -> None:
        while not self._ends.is_set():
            try:
                connection = self._listener.accept()
            except OSError:
                if self._ends.is_set():
                    return
                time.sleep(_SLICE)  # no descriptors left
                continue
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: Connection) -> None:
        worker = None
        try:
            # A client that does not prove the secret in time is disconnected; no other client waits for that.
            welcome(connection, self._key)
            while not self._ends.is_set():
                if not connection.poll(_SLICE):
                    continue
                with limited(connection, self.timeout):
                    head, tensors = decode(connection.recv_bytes(MOST_BYTES))
                if head.get("op") == "hello":
                    worker = self._hello(head, worker)
                elif worker is None:
                    raise ValueError("a worker says who it is first")
                self._hear(worker)
                if head.get("op") == "beat":  # it computes, and wants no answer
                    self._heard[worker] = time.monotonic()
                    continue
                try:
                    answer = self._answer(head, tensors, worker, connection)
                except (OSError, EOFError):
                    raise
                except Exception as error:  # of whatever the optimizer raises, too
                    answer = encode({"error": f"{type(error).__name__}: {error}"})
                self._heard[worker] = time.monotonic()  # one that is stopped may not read it
                with limited(connection, self.timeout):
                    connection.send_bytes(answer)
                if head.get("op") == "leave":
                    return
        except (OSError, EOFError, ValueError, TypeError, RecursionError, AuthenticationError):  # dead, not authenticated, or damaged bytes
            return
        finally:
            if worker is not None:
                with self._changed:
                    self._alive.pop(worker, None)
                    self._changed.notify_all()
            with contextlib.suppress(OSError):
                connection.close()

    def _hello(self, head: dict, before):
        worker = head.get("worker")
        with self._changed:
            if before is not None or type(worker) is not int or not 0 <= worker < self.workers or worker in self._alive:
                raise ValueError(f"there is a worker {worker} already, or there are not so many")
            # One that comes anew goes on where the slowest is.
            self._alive[worker] = min(self._counted(), default=0) if worker in self._came else 0
            self._heard[worker] = time.monotonic()
            self._outdated.discard(worker)
            self._came.add(worker)
        return worker

    # Which workers are alive.
    def _counted(self, but=None) -> list:
        """The pushes of all workers that have sent something recently."""
        since = -math.inf if self.patience is None else time.monotonic() - self.patience
        return [pushes for worker, pushes in self._alive.items() if worker != but and self._heard[worker] >= since]

    def _hear(self, worker: int) -> None:
        """The worker has said something, perhaps for the first time after a long while."""
        before, self._heard[worker] = self._heard[worker], math.inf
        if self.staleness is None or self.patience is None or time.monotonic() - before <= self.patience:
            return
        with self._changed:
            slowest = min(self._counted(but=worker), default=0)
            if slowest > self._alive[worker] + self.staleness + 1:  # further ahead than anyone can be of one that counts
                self._alive[worker] = slowest
                self._outdated.add(worker)
            self._changed.notify_all()

    def _wait(self, connection: Connection, ready, what: str) -> None:
        deadline = time.monotonic() + self.timeout
        while not ready():
            if self.first is not None and len(self._came) == self.workers and len(self._alive) < self.first:
                raise RuntimeError(f"shard {self.shard}: {len(self._alive)} workers are left, and a step takes {self.first}")
            if self._broken:
                raise RuntimeError(self._broken)
            if time.monotonic() > deadline:
                raise RuntimeError(f"shard {self.shard}: {what} within {self.timeout:g} s")
            self._changed.wait(_SLICE)
            if connection.poll(0):  # the worker asks for one thing at a time: it has gone
                raise EOFError
            if self._ends.is_set():
                raise EOFError

    # What workers ask for.
    def _answer(self, head: dict, tensors: list, worker: int, connection: Connection) -> bytes:
        op = head["op"]
        with self._changed, no_grad():
            if self._broken and op != "leave":
                raise RuntimeError(self._broken)
            if op == "declare":
                self._declare(head["names"], tensors, head["tables"])
            elif op == "pull":
                return self._pull(head, tensors, worker, connection)
            elif op == "push":
                return self._push(head, tensors, worker)
            elif op not in ("hello", "leave"):
                raise ValueError(f"unknown question {op!r}")
        return encode({"version": self.version, "shards": self.shards, "patience": self.patience if self.staleness is not None else None})

    def _declare(self, names: list, tensors: list, tables: list) -> None:
        for name, value in zip(names, tensors, strict=True):
            known = self.parameters.get(name)
            if known is not None and (name in tables) != (name in self.tables):
                words = ("a table here, and is none", "no table here, and is one")
                raise ValueError(f"{name!r} is {words[name in self.tables]}")
            if known is not None and (known.shape != value.shape or known.dtype != value.dtype):
                raise ValueError(f"{name!r} has shape {list(value.shape)} of {value.dtype} here, and is {list(known.shape)} of {known.dtype}")
            if known is None:
                if self._optimizers is not None:
                    raise ValueError(f"{name!r} was not declared before the first step")
                self.parameters[name] = Parameter(value.clone())
                if name in tables:
                    self.tables.add(name)
        self._changed.notify_all()

    def _pull(self, head: dict, tensors: list, worker: int, connection: Connection) -> bytes:
        if self.first is not None:
            self._wait(connection, lambda: self.version >= head["at_least"], f"step {head['at_least']} was not complete")
        elif self.staleness is not None:
            self._wait(connection, lambda: self._alive[worker] - min(self._counted()) <= self.staleness
                       and (len(self._came) == self.workers or self._alive[worker] <= self.staleness),
                       f"the slowest worker did not come to {self._alive[worker] - self.staleness} pushes")
        self._outdated.discard(worker)
        values, rows = [], iter(tensors)
        for name, of_rows in head["names"]:
            value = self.parameters[name].detach()
            value = value[next(rows)] if of_rows else value
            values.append(value.to(transfer_dtype(head["dtype"])) if head.get("dtype") and value.is_floating_point() else value)
        return encode({"version": self.version}, values)

    def _push(self, head: dict, tensors: list, worker: int) -> bytes:
        grads, parts = {}, iter(tensors)
        for name, of_rows in head["names"]:
            p, first = self.parameters[name], next(parts)
            if not of_rows:
                if first.shape != p.shape:
                    raise ValueError(f"the gradient of {name!r} has shape {list(first.shape)}: expected {list(p.shape)}")
                grads[name] = first.to(p.dtype)
                continue
            rows = next(parts)
            if rows.shape != (*first.shape, *p.shape[1:]) or first.dim() != 1 or first.numel() and not 0 <= int(first.min()) <= int(first.max()) < len(p):
                raise ValueError(f"the rows of {name!r} do not fit {list(p.shape)}")
            grads[name] = (first, rows.to(p.dtype))
        taken = True
        if self.first is None and worker not in self._outdated:
            self._alive[worker] += 1
            self._apply({worker: grads})
        elif self.first is None or head["version"] != self.version or worker in self._step:
            taken, self.dropped = False, self.dropped + 1
        else:
            self._step[worker] = grads
            self._take_step()
        self._changed.notify_all()
        return encode({"version": self.version, "taken": taken})

    def _take_step(self) -> None:
        if self.first is not None and len(self._step) >= self.first:
            grads, self._step = self._step, {}
            with no_grad():
                self._apply(grads)

    def _apply(self, by_worker: dict) -> None:
        """One step of the optimizer: the mean over workers."""
        if self._optimizers is None:
            self._optimizers = self._made_optimizers()
        self.recorded = sorted(by_worker)
        count = len(self.recorded)
        for name, p in self.parameters.items():
            parts = [by_worker[w][name] for w in self.recorded if name in by_worker[w]]
            if not parts:
                p.grad = None
                continue
            total = joined(parts)
            if isinstance(total, tuple):
                total = sparse_coo_tensor(total[0].unsqueeze(0), total[1], p.shape).coalesce()
            p.grad = total if count == 1 else total / count
        try:
            for optimizer in self._optimizers.values():
                optimizer.step()
        except Exception as error:  # some parameters may have made the step: the state cannot be used any more
            self._broken = f"shard {self.shard}: the optimizer failed: {type(error).__name__}: {error}"
            self._changed.notify_all()
            raise
        self.version += 1
        if self._files is not None and self.version % self.save_every == 0:
            try:
                self._files.save(self.version, self.state_dict())
            except OSError as error:  # a disk that is full now need not be at the end
                warn(f"parameter server: shard {self.shard} could not be saved: {error}")

    def _made_optimizers(self) -> dict:
        made = {}
        for kind, make in self._make.items():
            mine = [p for name, p in self.parameters.items() if len(self._make) == 1 or (name in self.tables) == (kind == "table_optimizer")]
            if mine:  # a shard may have none
                made[kind] = make(mine)
                if kind in self._saved:
                    made[kind].load_state_dict(self._saved[kind])
        return made


def transfer_dtype(name: str):
    """A floating-point dtype by its name."""
    if name not in _DTYPES:
        raise ValueError(f"values cannot be sent as {name!r}")
    return _DTYPES[name]
