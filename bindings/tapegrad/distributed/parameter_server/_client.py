"""A worker's side: which shard has what, pulling and pushing."""

from __future__ import annotations

import contextlib
import select
import threading
import time
import weakref
import zlib
from multiprocessing import AuthenticationError

from ... import Tensor, arange, no_grad
from .._wire import connect, limited, with_token
from ._messages import KEY, MOST_BYTES, decode, encode, gone, refused, rows_of

__all__ = ["ParameterClient"]


class ParameterClient:
    """A worker's connections to all shards.

    Args:
        store: the store of the job.
        worker: this worker's number.
        model: the module whose parameters are held by the servers. The first worker to come gives them their values, unless the servers
            have loaded some; `pull()` gives them to all.
        tables: names of parameters whose rows are cut among the shards, and whose gradients go as rows. Default: the weights of modules
            with sparse=True.
        dtype: how floating-point values and gradients travel; None: as they are.
        timeout: seconds that a call may take.

    One thread uses a client at a time; another, of its own, tells servers that wait for the slowest worker that this one is there. Raises
    DistBackendError where a shard has gone or does not answer in time, RuntimeError with what a shard refuses. A call that is interrupted
    ends the connections whose answer it did not read: make another client to go on.
    """

    def __init__(self, store, worker: int, model, *, tables=None, dtype=None, timeout: float = 70.0) -> None:
        self.worker, self.timeout = worker, timeout
        self.parameters = dict(model.named_parameters())
        if tables is None:
            sparse = {id(p) for m in model.modules() if getattr(m, "sparse", False) is True for p in m.parameters(recurse=False)}
            tables = [name for name, p in self.parameters.items() if id(p) in sparse]
        unknown = set(tables) - set(self.parameters)
        if unknown:
            raise ValueError(f"ParameterClient: the model has no parameters {', '.join(sorted(unknown))}")
        self.tables = frozenset(tables)
        self.dtype = None if dtype is None else str(dtype).rpartition(".")[2]
        self._cast = dtype
        self._lock = threading.Lock()
        store.wait([f"{KEY}/secret", f"{KEY}/0"])
        key = with_token(store.get(f"{KEY}/secret"))
        self.shards = int(store.get(f"{KEY}/0").split()[2])
        self._connections: list = []
        self._sending = [threading.Lock() for _ in range(self.shards)]
        self._asked: set = set()  # shards that owe an answer
        self._beating, self._leaves = None, threading.Event()
        try:
            for shard in range(self.shards):
                host, port, *_ = store.get(f"{KEY}/{shard}").decode().split()
                try:
                    self._connections.append(connect((host, int(port)), key, timeout))
                except AuthenticationError as error:
                    raise refused(shard) from error
                except (OSError, EOFError) as error:
                    raise gone(shard, error) from error
            said = [self._call(s, {"op": "hello", "worker": worker})[0] for s in range(self.shards)]
            self._versions = [head["version"] for head in said]
            self._at_least = [0] * self.shards
            if patience := min((head["patience"] for head in said if head["patience"] is not None), default=None):
                self._beating = threading.Thread(target=_beat, args=(weakref.ref(self), self._leaves, patience / 5), daemon=True)
                self._beating.start()
            for shard in range(self.shards):
                names = [name for name, _ in self._names(shard)]
                self._call(shard, {"op": "declare", "names": names, "tables": sorted(self.tables.intersection(names))},
                           [self._piece(name, shard).detach() for name in names])
        except BaseException:
            self.close()
            raise

    # Who has what.
    def _names(self, shard: int) -> list:
        """Parameters of a shard, and whether it has only rows of them."""
        return [(name, name in self.tables) for name in self.parameters
                if name in self.tables or zlib.crc32(name.encode()) % self.shards == shard]

    def _piece(self, name: str, shard: int) -> Tensor:
        """What a shard has of a parameter: of a table every so manieth row."""
        p = self.parameters[name]
        return p[shard::self.shards] if name in self.tables else p

    # Talking.
    def _ask(self, shard: int, head: dict, tensors=()) -> None:
        message = encode(head, tensors)
        try:
            with self._sending[shard], limited(self._connections[shard], self.timeout):
                self._asked.add(shard)
                self._connections[shard].send_bytes(message)
        except (OSError, EOFError) as error:
            raise gone(shard, error) from error

    def _hear(self, shard: int):
        connection, deadline = self._connections[shard], time.monotonic() + self.timeout
        try:
            while not connection.poll(min(0.5, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    raise gone(shard, f"no answer within {self.timeout:g} s")
            with limited(connection, self.timeout):
                head, tensors = decode(connection.recv_bytes(MOST_BYTES))
            self._asked.discard(shard)
        except (OSError, EOFError, ValueError) as error:
            raise gone(shard, error) from error
        if "error" in head:
            raise RuntimeError(f"parameter server: {head['error']}")
        return head, tensors

    def _call(self, shard: int, head: dict, tensors=()):
        self._ask(shard, head, tensors)
        return self._hear(shard)

    def _all(self, requests: list) -> list:
        """Answers of all shards, which work at once. All answers are read, so that the connections can go on after an error."""
        answers, failed = [], None
        with self._lock:
            try:
                for shard, request in enumerate(requests):
                    self._ask(shard, *request)
                for shard in range(len(requests)):
                    try:
                        answers.append(self._hear(shard))
                    except RuntimeError as error:
                        failed = failed or error
            finally:
                for shard in self._asked:  # their answers are discarded, so that a later call does not take one for its own
                    with self._sending[shard]:
                        self._connections[shard].close()
                self._asked.clear()
        if failed is not None:
            raise failed
        return answers

    def _tell(self) -> None:
        """Tells all shards that do not answer a request just now that this worker is there."""
        for shard, connection in enumerate(self._connections):
            if not self._sending[shard].acquire(blocking=False):
                continue
            try:
                if shard not in self._asked and select.select([], [connection], [], 0)[1]:
                    connection.send_bytes(encode({"op": "beat"}))
            except (OSError, ValueError):  # it has gone: the next call says so
                continue
            finally:
                self._sending[shard].release()

    # Training.
    @no_grad()
    def pull(self, rows: dict | None = None) -> list[int]:
        """Copies the servers' values into the model; returns the shards' versions. rows: for tables, ids (any shape) of the rows that are
        needed; the others keep what they have. Waits where this worker is too far ahead, or its last step is not complete."""
        rows = {name: ids.reshape(-1).unique() for name, ids in (rows or {}).items()}
        requests, wanted = [], []
        for shard in range(self.shards):
            names, ids = self._names(shard), []
            for name, of_rows in names:
                if of_rows:
                    mine = rows[name][rows[name] % self.shards == shard] if name in rows else arange(shard, len(self.parameters[name]), self.shards)
                    ids.append(mine)
            wanted.append(ids)
            requests.append(({"op": "pull", "names": names, "at_least": self._at_least[shard], "dtype": self.dtype},
                              [i // self.shards for i in ids]))
        for shard, (head, values) in enumerate(self._all(requests)):
            ids = iter(wanted[shard])
            for (name, of_rows), value in zip(self._names(shard), values, strict=True):
                p = self.parameters[name].detach()
                if of_rows:
                    p[next(ids)] = value.to(p.dtype)
                else:
                    p.copy_(value)
            self._versions[shard] = head["version"]
        return list(self._versions)

    @no_grad()
    def push(self, grads: dict | None = None) -> list[bool]:
        """Sends gradients of the values that were pulled last: the model's `.grad`, or what is given by name. Returns for each shard
        whether it took them; in synchronous training those that come too late are dropped."""
        grads = grads if grads is not None else {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        cut = {name: rows_of(grad) for name, grad in grads.items() if name in self.tables}
        requests = []
        for shard in range(self.shards):
            names, tensors = [], []
            for name, of_rows in self._names(shard):
                if name not in grads:
                    continue
                names.append((name, of_rows))
                if of_rows:
                    ids, values = cut[name]
                    mine = ids % self.shards == shard
                    tensors += [ids[mine] // self.shards, self._small(values[mine])]
                else:
                    grad = grads[name]
                    tensors.append(self._small(grad.to_dense() if grad.is_sparse else grad))
            requests.append(({"op": "push", "names": names, "version": self._versions[shard]}, tensors))
        answers = self._all(requests)
        taken = [head["taken"] for head, _ in answers]
        for shard, (head, _) in enumerate(answers):
            self._at_least[shard] = self._versions[shard] + 1 if taken[shard] else head["version"]
        return taken

    def _small(self, grad: Tensor) -> Tensor:
        return grad.to(self._cast) if self._cast is not None and grad.is_floating_point() else grad

    def close(self) -> None:
        """Leaves: servers no longer wait for this worker."""
        self._leaves.set()
        if self._beating is not None:
            self._beating.join()
        for shard, connection in enumerate(self._connections):
            with contextlib.suppress(Exception):
                self._call(shard, {"op": "leave"})
            connection.close()
        self._connections = []

    def __enter__(self) -> ParameterClient:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _beat(client, leaves: threading.Event, every: float) -> None:
    """Sends a sign of life at intervals, until the client leaves or is garbage-collected."""
    while not leaves.wait(every) and (there := client()) is not None:
        there._tell()
        del there
