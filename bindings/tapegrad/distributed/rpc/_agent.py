"""A worker: its connections, the calls that wait for answers, the functions that it runs for others.

Threads: one reads each connection, does the book-keeping that a message asks for and hands everything else to the pool; one sends what has no
answer (`later`), in order, so that neither a reader nor a destructor ever waits for a connection; one looks after the limits of calls.
"""

import collections
import functools
import itertools
import queue
import threading
import time
import traceback

from ...futures import Future
from ..autograd import _contexts
from . import _messages as m
from . import _rref
from ._connection import packed
from ._pool import Pool
from ._values import Reader, Writer, find, name_of

__all__ = ["Agent", "WorkerInfo"]

class WorkerInfo:
    """A worker: `name` and `id`, its rank."""

    __slots__ = ("id", "name")

    def __init__(self, name: str, id: int) -> None:
        self.name, self.id = name, id

    def __eq__(self, other) -> bool:
        return isinstance(other, WorkerInfo) and (self.name, self.id) == (other.name, other.id)

    def __hash__(self) -> int:
        return hash((self.name, self.id))

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"

    def __reduce__(self):
        return WorkerInfo, (self.name, self.id)

    def _rpc_reduced(self, writer) -> dict:
        return {"$worker": self.id}


class _Answer(Future):
    """What a call gives. Callbacks run in a thread of the pool: they may wait for other calls."""

    def __init__(self, agent) -> None:
        super().__init__()
        self._agent = agent

    def _run_callbacks(self, callbacks: list) -> None:
        run = functools.partial(Future._run_callbacks, self, callbacks)
        if not self._agent.pool.run(run):
            run()


class _Call:
    """A call that waits for its answer."""

    __slots__ = ("context", "deadline", "future", "kept", "limit", "to", "what")

    def __init__(self, future, to: int, what: str, limit: float, kept) -> None:
        self.future, self.to, self.what, self.limit, self.kept = future, to, what, limit, kept
        self.deadline = time.monotonic() + limit if limit else float("inf")


class Agent:
    """A worker among `workers`, a list of WorkerInfo by rank. `reverse_maps`: device maps of the others, by rank."""

    def __init__(self, me: WorkerInfo, workers: list, options, reverse_maps: dict) -> None:
        self.me, self.id, self.workers, self.options, self._reverse_maps = me, me.id, workers, options, reverse_maps
        self.by_name = {w.name: w for w in workers}
        self.timeout = options.rpc_timeout
        self.pool = Pool(options.num_worker_threads)
        self.rrefs = _rref.Table(self)
        self.contexts = _contexts.Contexts(self.id, self.send_grads)
        self.connections: list = [None] * len(workers)
        self.lost: dict = {}  # rank -> why
        self.closed = False
        self.asked = self.answered = 0  # calls that were sent, and that were answered here
        self._counting = threading.Lock()
        self._users: collections.Counter = collections.Counter()  # functions that run or wait to run, by caller
        self._pending: dict = {}
        self._numbers = itertools.count(1)
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._wake = threading.Event()
        self._next_look = float("inf")
        self._join = _Join(self)
        self._threads = [threading.Thread(target=f, daemon=True, name=f"rpc {f.__name__}") for f in (self._send_later, self._watch)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        for connection in self.connections:
            connection.start()

    def number(self) -> int:
        return next(self._numbers)

    # Who there is.
    def worker(self, to) -> WorkerInfo:
        """By name, rank or WorkerInfo; RuntimeError for one that does not exist, ValueError for what is none of these."""
        if isinstance(to, WorkerInfo):
            to = to.id if 0 <= to.id < len(self.workers) and self.workers[to.id] == to else to.name
        if isinstance(to, str):
            if to not in self.by_name:
                raise RuntimeError(f"name:{self.me.name},rank:{self.id} could not find destination name {to}")
            return self.by_name[to]
        if isinstance(to, int):
            if not 0 <= to < len(self.workers):
                raise RuntimeError(f"name:{self.me.name},rank:{self.id} could not find destination id {to}")
            return self.workers[to]
        raise ValueError(f"Cannot get WorkerInfo from name {to}")

    def device_for(self, to: int, device) -> str:
        """Where a tensor goes on another worker that is on a device here."""
        name = self.workers[to].name
        there = self.options.device_maps.get(name, {}).get(device)
        if there is None:
            there = {back: place for place, back in self._reverse_maps.get(to, {}).items()}.get(str(device))
        if there is None:
            raise RuntimeError(f"rpc: cannot send a tensor of {device} to {name}: tensors of the CPU are sent, and of devices for which "
                               f"`TensorPipeRpcBackendOptions.set_device_map` says where they go: there is none from {device}")
        return str(there)

    def gone(self, to: int, why=None) -> RuntimeError:
        return RuntimeError(f"rpc: {self.workers[to].name} (rank {to}) has gone: {why or self.lost.get(to) or 'the connection was closed'}")

    # Calls.
    def call(self, kind: int, to: int, value, timeout: float, what: str, extra=None, kept=None, context=None) -> Future:
        """Sends a message that will be answered; a future of the answer. TypeError for what cannot be sent."""
        if self.closed:
            raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
        limit = self.timeout if timeout is None or timeout < 0 else timeout
        future = _Answer(self)
        writer, pieces, number = self._written(kind, to, value, True, context or _contexts.current(), extra, None)
        call = _Call(future, to, what, limit, (kept, writer.kept))
        self._count(1, 0)
        self._pending[number] = call
        if call.deadline < self._next_look:
            self._wake.set()
        try:
            self.connections[to].send(pieces, limit)
        except TimeoutError:  # it may still arrive, and be answered
            if self._pending.pop(number, None) is not None:
                future.set_exception(_too_late(what, self.workers[to].name, limit))
        except OSError as error:
            self._pending.pop(number, None)
            self._count(-1, 0)
            self.rrefs.take_back(writer.forks)
            if not future.done():
                future.set_exception(self.gone(to, self.lost.get(to, error)))
        except BaseException:
            self._pending.pop(number, None)
            raise
        return future

    def _count(self, asked: int, answered: int) -> None:
        with self._counting:
            self.asked += asked
            self.answered += answered

    def _run_user(self, source: int, task) -> None:
        """Has a function of a caller run."""
        def run():
            try:
                task()
            finally:
                with self._counting:
                    self._users[source] -= 1

        with self._counting:
            self._users[source] += 1
        try:
            self.pool.run_user(run)
        except BaseException:
            with self._counting:
                self._users[source] -= 1
            raise

    def _is_busy(self) -> bool:
        """Whether a call of this worker is under way, or a function runs for a caller that is still there."""
        with self._counting:
            return bool(self._pending) or any(n for source, n in self._users.items() if source not in self.lost)

    def _written(self, kind: int, to: int, value, answered: bool, context, extra, number):
        """(writer, pieces of the message, number of the call)."""
        writer = Writer(self, to, answered)
        try:
            tree = writer.encode(value)
            attached = self.contexts.sent(context, to, writer.tensors, writer.attachable)
            number = self.number() if number is None else number
            return writer, packed(kind, number, [tree, attached, extra], writer.tensors), number
        except BaseException:
            self.rrefs.take_back(writer.forks)
            raise

    def later(self, to: int, kind: int, data) -> None:
        """Sends a message without an answer, from any place."""
        if not self.closed:
            self._queue.put((to, kind, data))

    def _send_later(self) -> None:
        while (item := self._queue.get()) is not None:
            to, kind, data = item
            try:
                self.connections[to].send(packed(kind, 0, [data, None, None], ()))
            except OSError:
                pass  # a lost worker: all that concerns it is let go elsewhere
            except Exception:
                traceback.print_exc()

    def wait_here(self, future: Future, timeout: float, what: str):
        """The value of a future of this worker, within a limit."""
        limit = self.timeout if timeout is None or timeout < 0 else timeout
        if limit and not future._done.wait(limit):
            raise _too_late(what, self.me.name, limit)
        return future.wait()

    def _watch(self) -> None:
        """Ends calls whose time is over."""
        asked = -1
        while not self.closed:
            self._wake.clear()
            self._next_look = float("inf")
            now, soonest = time.monotonic(), float("inf")
            for number, call in list(self._pending.items()):
                if call.deadline > now:
                    soonest = min(soonest, call.deadline)
                elif self._pending.pop(number, None) is not None:
                    call.future.set_exception(_too_late(call.what, self.workers[call.to].name, call.limit))
            if soonest == float("inf") and asked != self.asked:
                soonest = now + 5  # calls come and go: not each of them is to wake this thread up
            asked, self._next_look = self.asked, soonest
            if any(call.deadline < soonest for call in list(self._pending.values())):
                continue
            self._wake.wait(None if soonest == float("inf") else max(0.0, soonest - now))

    # Messages that come.
    def on_message(self, source: int, kind: int, number: int, head: list, tensors: list) -> None:
        """In a reader's thread. What raises here ends the connection: the message is damaged."""
        tree, attached, extra = head
        if kind in (m.REPLY, m.FAILED):
            call = self._pending.pop(number, None)
            self._finish(call, source, kind, tree, attached, tensors)
        elif kind == m.CALL:
            self._run_user(source, lambda: self._run(source, number, tree, attached, tensors, None))
        elif kind == m.REMOTE:
            created, fork = extra
            entry = self.rrefs.adopt(tuple(created), None if fork is None else tuple(fork), source)
            self._run_user(source, lambda: self._run(source, number, tree, attached, tensors, entry))
        elif kind == m.FETCH:
            self._fetch(source, number, tuple(tree), attached)
        elif kind in (m.VISIT, m.RUN):
            self.pool.run(lambda: self._backward_asked(source, number, kind, tree))
        elif kind == m.JOIN:
            self._join.came(source, number, *tree)
        elif kind == m.FORKED:
            self.rrefs.forked(source, tuple(tree[:2]), tuple(tree[2:4]), tree[4])
        elif kind == m.CONFIRMED:
            self.rrefs.confirmed(tuple(tree))
        elif kind == m.ACCEPTED:
            self.rrefs.accepted(tuple(tree))
        elif kind == m.DELETED:
            self.rrefs.deleted(tuple(tree[:2]), tuple(tree[2:]))
        elif kind == m.GRADS:
            self._grads_came(source, tree, tensors)
        elif kind == m.ENDED:
            self._pass_ended(tree)
        elif kind == m.FORGET:
            self.pool.run(lambda: self.release_context(tree))  # a graph may take long to be freed
        else:
            raise ValueError(f"a message of an unknown kind: {kind}")

    def _finish(self, call, source: int, kind: int, tree, attached, tensors: list) -> None:
        """Gives a call its answer. An unwanted answer is read, too: it may hold references."""
        try:
            self.contexts.received(source, attached, tensors)
            value, error = Reader(self, source, tensors).decode(tree), None
            if kind == m.FAILED:
                value, error = None, _rebuilt(value)
        except Exception as raised:
            value, error = None, raised
        if call is None:
            return
        if error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(value)

    def _run(self, source: int, number: int, tree, attached, tensors: list, entry) -> None:
        """Runs a function for a caller."""
        context = None
        try:
            context = self.contexts.received(source, attached, tensors)
            with _contexts.entered(context):
                function, args, kwargs = Reader(self, source, tensors).decode(tree)
                if function is _rref.on_value:
                    rref, name, args, kwargs = args
                    if rref._entry is None:
                        raise RuntimeError(f"rpc: {self.me} does not own {rref!r}")
                    if not rref._entry.future.done():  # waiting for it takes no thread
                        rref._entry.future.add_done_callback(lambda _: self._run_user(
                            source, lambda: self._apply(source, number, lambda: getattr(rref.local_value(), name), args, kwargs, context, entry)))
                        return
                    function = getattr(rref.local_value(), name)
        except BaseException as error:
            self._answer(source, number, None, error, context, entry)
            return
        tree = tensors = None
        self._apply(source, number, lambda: function, args, kwargs, context, entry)

    def _apply(self, source: int, number: int, function, args, kwargs, context, entry) -> None:
        try:
            with _contexts.entered(context):
                function = function()
                result = function(*args, **kwargs)
            if hasattr(function, "_wrapped_async_rpc_function"):
                if not isinstance(result, Future):
                    raise RuntimeError("Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got "
                                       f"{type(result).__name__}")
                result.add_done_callback(lambda done: self._answer(source, number, *_outcome(done), context, entry))
                return
        except BaseException as error:
            self._answer(source, number, None, error, context, entry)
        else:
            self._answer(source, number, result, None, context, entry)

    def _answer(self, source: int, number: int, result, error, context, entry) -> None:
        if entry is not None:  # the value stays here; what went wrong is told to those who ask for it
            if error is not None:
                entry.fail(error, self._told(error))
            elif not entry.future.done():  # it has failed where the worker that asked was lost before
                entry.future.set_result(result)
            result = error = None
        self._reply(source, number, result, error, context)

    def _reply(self, to: int, number: int, result, error, context=None, told=None) -> None:
        """Answers a call; a value that cannot be sent is an error for the caller."""
        writer = None
        try:
            if error is None:
                try:
                    writer, pieces, _ = self._written(m.REPLY, to, result, False, context, None, number)
                except Exception as raised:
                    error = raised
            if error is not None:
                _, pieces, _ = self._written(m.FAILED, to, told or self._told(error), False, None, None, number)
            self.connections[to].send(pieces)
        except OSError:
            if writer is not None:
                self.rrefs.take_back(writer.forks)
        except Exception:
            traceback.print_exc()
        finally:
            self._count(0, 1)

    def _told(self, error: BaseException) -> list:
        """The description of an exception for the caller: the name of its class, and its text."""
        try:
            kind = name_of(type(error)) if isinstance(error, Exception) else None
        except TypeError:
            kind = None
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return [kind, f"On {self.me}:\n{error!r}\n{lines}"]

    def _fetch(self, source: int, number: int, created: tuple, attached) -> None:
        if created[0] == self.id and created not in self.rrefs.owned:
            error = RuntimeError("rpc: the value of a reference was freed: no reference to it was left")
            self.pool.run(lambda: self._reply(source, number, None, error))
            return
        entry, context = self.rrefs.entry(created), self.contexts.received(source, attached, [])

        def reply(future):
            result, error = _outcome(future)
            self.pool.run(lambda: self._reply(source, number, result, error, context, entry.error))

        entry.future.add_done_callback(reply)

    # Backward.
    def backward(self, context_id: int, roots, retain_graph: bool) -> None:
        context = self.contexts.of(context_id)
        roots = list(roots)
        if not roots:
            raise RuntimeError("No tensors provided for gradient computation.")
        for root in roots:
            if not root.requires_grad:
                raise RuntimeError("requires_grad not set on root")
            if root.numel() != 1:
                raise RuntimeError(f"backward: all roots need to be scalar: got one of shape {list(root.shape)}")
            if root.grad_fn is None:
                raise RuntimeError("backward: a root does not have a valid gradient function: it is a leaf")
        one = self.contexts.begin(context)
        number, others = list(one.number), set()
        try:
            reached = one.walk(roots)
            while reached:
                by_worker: dict = {}
                for worker, message in reached:
                    by_worker.setdefault(worker, []).append(message)
                asked = [self._ask(m.VISIT, worker, [context_id, number, messages]) for worker, messages in by_worker.items() if worker != self.id]
                others.update(worker for worker in by_worker if worker != self.id)
                reached = one.visit(by_worker[self.id]) if self.id in by_worker else []
                for worker, future in asked:
                    reached += self._heard(worker, future)
            running = [self._ask(m.RUN, worker, [context_id, number, bool(retain_graph)]) for worker in sorted(others)]
            for worker, future in running:
                future.add_done_callback(lambda f, worker=worker: f._error is None or one.fail(_of_node(worker, f._error)))
            one.run(roots, retain_graph)
            for worker, future in running:
                self._heard(worker, future)
        except BaseException as error:
            one.fail(error if isinstance(error, Exception) else RuntimeError(f"backward: {type(error).__name__}"))
            for worker in others:
                self.later(worker, m.ENDED, [context_id, number, f"{type(error).__name__}: {error}"])
            raise
        finally:
            context.passes.pop(one.number, None)

    def _ask(self, kind: int, worker: int, data) -> tuple:
        return worker, self.call(kind, worker, data, -1, "distributed.autograd.backward")

    def _heard(self, worker: int, future):
        try:
            return future.wait()
        except Exception as error:
            raise _of_node(worker, error) from error

    def send_grads(self, context_id: int, number: tuple, worker: int, message: int, grads) -> None:
        """Gradients of tensors that came from a worker."""
        data = [context_id, number, message, [None if g is None else g.detach().cpu() for g in grads]]
        try:
            self.connections[worker].send(self._written(m.GRADS, worker, data, False, None, None, 0)[1])
        except OSError as error:
            raise self.gone(worker, self.lost.get(worker, error)) from None

    def _backward_asked(self, source: int, number: int, kind: int, tree) -> None:
        try:
            context = self.contexts.of(tree[0])
            one = self.contexts.pass_of(context, tuple(tree[1]))
            if kind == m.VISIT:
                result = one.visit(tree[2])
                if source in self.lost:
                    context.passes.pop(one.number, None)
            else:
                result = None
                try:
                    one.run((), tree[2])
                finally:
                    context.passes.pop(one.number, None)
        except BaseException as error:
            self._reply(source, number, None, error)
        else:
            self._reply(source, number, result, None)

    def _grads_came(self, source: int, tree, tensors: list) -> None:
        context_id, number, message, grads = Reader(self, source, tensors).decode(tree)
        context = self.contexts.all.get(context_id)
        one = None if context is None else context.passes.get(tuple(number))
        if one is not None:
            one.arrive(message, grads)

    def _pass_ended(self, tree) -> None:
        context_id, number, why = tree
        context = self.contexts.all.get(context_id)
        one = None if context is None else context.passes.pop(tuple(number), None)
        if one is not None:
            one.fail(RuntimeError(f"backward: the pass has ended: {why}"))

    def release_context(self, number: int) -> None:
        for worker in self.contexts.release(number):
            self.later(worker, m.FORGET, number)

    # The end.
    def on_end(self, source: int, why: str) -> None:
        """In a reader's thread: a connection has ended."""
        self.lost[source] = why
        if self.closed:
            return
        error = self.gone(source, why)
        for number, call in list(self._pending.items()):
            if call.to == source and self._pending.pop(number, None) is not None:
                call.future.set_exception(error)
        self.contexts.worker_gone(source, error)
        self.rrefs.worker_gone(source, error, [name_of(RuntimeError), str(error)])
        self._join.gone(source)

    def join(self, timeout: float) -> None:
        """Waits until all workers that are there have come here, and nothing is under way any more. RuntimeError after `timeout` seconds
        (0: never), and, when it is so, where a worker has gone: until then the others work together on."""
        deadline = time.monotonic() + timeout if timeout else float("inf")
        before, pause = None, 0.0005
        for round_ in itertools.count():
            while self._is_busy():
                if time.monotonic() > deadline:
                    raise RuntimeError(f"shutdown: calls are still under way after {timeout:g} s")
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
            left = 0 if deadline == float("inf") else max(0.001, deadline - time.monotonic())
            future = self.call(m.JOIN, 0, [round_, self.asked, self.answered], left, "shutdown")
            self._count(-1, 0)  # these are no calls of the program
            *totals, lost = future.wait()
            # Nothing happened between two rounds, in which all workers were idle: nothing can happen any more.
            if totals == before and (lost or totals[0] == totals[1]):
                break
            before = totals
        for source in lost:  # as rank 0 has told: others may have ended by now, in order
            raise self.gone(source)

    def close(self) -> None:
        """Ends all connections and threads; functions that run go on."""
        if self.closed:
            return
        self.closed = True
        self._queue.put(None)
        self._wake.set()
        me = threading.current_thread()
        if self._threads[0] is not me and self._threads[0].ident is not None:
            self._threads[0].join(1.0)  # what was to be sent is
        for connection in self.connections:
            if connection is not None:
                connection.end("this worker has shut down")
        for connection in self.connections:
            if connection is not None:
                connection.join(1.0)
        error = RuntimeError("rpc: this worker has shut down")
        for number in list(self._pending):
            call = self._pending.pop(number, None)
            if call is not None:
                call.future.set_exception(error)
        for context in list(self.contexts.all.values()):
            for one in list(context.passes.values()):
                one.fail(error)
        self.contexts.all.clear()
        self.rrefs.clear()
        self.pool.close()
        if self._threads[1] is not me and self._threads[1].ident is not None:
            self._threads[1].join(1.0)


class _Join:
    """Rank 0: who has come to shutdown. In each round all that are there say how many calls they have sent and answered, and get the sums,
    and who is lost."""

    def __init__(self, agent) -> None:
        self._agent, self._lock, self._rounds = agent, threading.Lock(), {}

    def came(self, source: int, number: int, round_: int, asked: int, answered: int) -> None:
        with self._lock:
            self._rounds.setdefault(round_, {})[source] = (number, asked, answered)
        self._look()

    def gone(self, source: int) -> None:
        if self._agent.id != 0:
            return
        with self._lock:
            for came in self._rounds.values():
                came.pop(source, None)
        self._look()

    def _look(self) -> None:
        """Answers rounds to which all have come."""
        agent = self._agent
        with self._lock:
            there = {w.id for w in agent.workers} - agent.lost.keys()
            complete = [self._rounds.pop(r) for r in [*self._rounds] if there <= self._rounds[r].keys()]
        for came in complete:
            result = [sum(c[1] for c in came.values()), sum(c[2] for c in came.values()), [*agent.lost]]
            agent.pool.run(functools.partial(self._tell, came, result))

    def _tell(self, came: dict, result: list) -> None:
        agent = self._agent
        for source in sorted(came, key=lambda rank: (rank == agent.id, rank)):  # this worker last, which then closes its connections
            agent._reply(source, came[source][0], result, None)
            agent._count(0, -1)


def _outcome(future: Future) -> tuple:
    return (None, future._error) if future._error is not None else (future._value, None)


def _too_late(what: str, name: str, limit: float) -> RuntimeError:
    return RuntimeError(f"RPC ran for more than set timeout ({round(limit * 1000)} ms) and will now be marked with an error: {what}, {name}")


def _of_node(worker: int, error: BaseException) -> RuntimeError:
    return RuntimeError(f"Error on Node {worker}: {error}")


def _rebuilt(told) -> BaseException:
    """The exception described by a callee."""
    kind, text = told
    try:
        kind = RuntimeError if kind is None else find(*kind)
    except Exception:
        kind = RuntimeError
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = RuntimeError
    try:
        return kind(text)
    except BaseException as error:
        return RuntimeError(f"Failed to create original exception type. Error msg was {error} Original exception on remote side was {text}")
