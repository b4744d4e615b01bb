"""Autograd graphs that span several workers.

A context notes on each worker which tensors that need a gradient were sent, and every message that brought such tensors ends in a node of the
tape, `_Receive`, which sends their gradients back. A backward pass has two phases. First the worker that asked finds out which of the noted
messages its roots depend on: it walks its graph to the `_Receive` nodes, lets their senders walk theirs from what they sent, and so on. Then
each of these workers runs its tape once. The tensors that it had sent are roots of this run through a node of their own, `_Gate`, which waits
until their gradients have come; so a node that several messages depend on runs once, when all its gradients are there.

A run that waits in a gate must not keep back a node that the gate depends on. The engine runs the newest node that is ready, and nodes are
numbered by the thread that makes them: gates are made by a fresh thread, with the lowest numbers, so that all other nodes that are ready come
first, and among gates the one whose tensors were sent last. What a gate waits for depends on what this worker received, and sent, later than
the gate's tensors only: the gates of that come before.

A pass fails as a whole: where a worker fails or is lost, all are told, and raise.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque

from ... import empty, no_grad
from ...autograd import Function, _autograd, enable_grad

__all__ = ["Context", "Contexts", "current", "entered"]

_OWN_NUMBERS = 4096  # numbers of nodes that each thread leaves to gates
_local = threading.local()
_in_grad = threading.Lock()  # of passes that use leaves' `.grad`
_anchor = empty((), requires_grad=True)  # lets nodes of received tensors be reached


def current() -> Context | None:
    """The context of this thread."""
    return getattr(_local, "context", None)


class entered:  # noqa: N801
    """Within this, the thread's calls belong to a context (or to none)."""

    def __init__(self, context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._before = current()
        _local.context = self._context

    def __exit__(self, *_) -> None:
        _local.context = self._before


def _leave_numbers() -> None:
    """Nodes that this thread makes from now on are newer than any gate."""
    if not getattr(_local, "left", False):
        with enable_grad():
            for _ in range(_OWN_NUMBERS):
                _anchor.view_as(_anchor)
        _local.left = True


class Context:
    """The state of a context on one worker."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.workers: set = set()  # those that messages were exchanged with
        self.sends: dict = {}  # message -> (worker, tensors, time)
        self.received = 0
        self.reduces = False  # a forward pass of DistributedDataParallel belongs to it
        self.grads: dict = {}
        self.passes: dict = {}
        self.lock = threading.Lock()
        self._clock = itertools.count()

    def time(self) -> int:
        """Orders what this worker sends and receives."""
        return next(self._clock)

    # Of PyTorch's class.
    def _context_id(self) -> int:
        return self.id

    def _known_worker_ids(self) -> set:
        return set(self.workers)

    def _send_functions(self) -> dict:
        return dict(self.sends)

    def _recv_functions(self) -> dict:
        return dict.fromkeys(range(self.received))

    def add_grads(self, leaves, grads) -> None:
        with self.lock, no_grad():
            for leaf, grad in zip(leaves, grads, strict=True):
                if grad is not None:
                    before = self.grads.get(leaf)
                    self.grads[leaf] = grad.detach() if before is None else before + grad


class _Receive(Function):
    """Tensors that came in a message."""

    @staticmethod
    def forward(ctx, anchor, place, *tensors):
        ctx.place = place
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        run = getattr(_local, "run", None)
        if run is None:
            raise RuntimeError("backward: the graph goes on on another worker: call distributed.autograd.backward(context_id, roots)")
        run.reached(ctx.place, grads)
        return (None,) * (2 + len(grads))


class _Gate(Function):
    """Tensors that were sent, whose gradients come from another worker."""

    @staticmethod
    def forward(ctx, run, number, *tensors):
        ctx.run, ctx.number, ctx.forms = run, number, [(t.device, t.dtype) for t in tensors]
        return empty(())

    @staticmethod
    def backward(ctx, _):
        grads = ctx.run.wait(ctx.number)
        if len(grads) != len(ctx.forms):
            raise RuntimeError(f"backward: {len(grads)} gradients came for {len(ctx.forms)} tensors")
        return None, None, *(g if g is None else g.to(device, dtype) for g, (device, dtype) in zip(grads, ctx.forms, strict=True))


class Pass:
    """One backward pass, on one worker."""

    def __init__(self, context: Context, number: tuple, send) -> None:
        self.context, self.number, self._send = context, number, send
        self.gates: dict = {}  # message -> (worker, tensors, time)
        self.leaves: list = []
        self._seen: set = set()
        self._nodes: list = []  # keeps the ids in `_seen` those of these objects
        self._least = 1 << 62  # the lowest number of a node
        self._arrived: dict = {}
        self._changed = threading.Condition()
        self._failed: BaseException | None = None
        self._outbox: dict = {}
        self._later = -1  # when the newest tensors were sent whose gate is in a later run

    # First phase.
    def visit(self, messages: list) -> list:
        """The graph of what was sent in these messages takes part. Returns [worker, message] of all that it was received in, once."""
        tensors = []
        for message in messages:
            if message not in self.context.sends:
                raise RuntimeError(f"backward: message {message} belongs to no such context")
            if message not in self.gates:
                self.gates[message] = self.context.sends[message]
                tensors += self.gates[message][1]
        return self.walk(tensors)

    def walk(self, tensors) -> list:
        reached, stack, seen = [], [], self._seen
        for t in tensors:
            node = t.grad_fn
            if node is not None:
                stack.append(node)
            elif id(t) not in seen:
                seen.add(id(t))
                self.leaves.append(t)
        while stack:
            node = stack.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            self._nodes.append(node)
            name = node.name()
            if name == "AccumulateGrad":
                leaf = node.variable
                if leaf is not _anchor and id(leaf) not in seen:
                    seen.add(id(leaf))
                    self.leaves.append(leaf)
                continue
            self._least = min(self._least, node._sequence_nr())
            if name == "_ReceiveBackward":
                _, worker, message, _ = node.place
                reached.append([worker, message])
            else:
                stack += [n for n, _ in node.next_functions]
        return reached

    # Second phase.
    def run(self, roots, retain_graph: bool) -> None:
        """Runs the tape of this worker; waits for gradients from others."""
        gates = sorted(self.gates.items(), key=lambda item: -item[1][2])
        self._seen, self._nodes = set(), []
        if len(gates) < self._least:
            groups = [gates]
        else:  # nodes older than the first call of their thread that belonged to a context: one message after the other, the newest first
            groups = [[], *([gate] for gate in gates)]
        leaves = (*self.leaves, _anchor)
        before, _local.run = getattr(_local, "run", None), self
        try:
            for i, group in enumerate(groups):
                rest = groups[i + 1:]
                self._later = rest[0][0][1][2] if rest else -1
                if len(groups) > 1:
                    for message, _ in group:
                        self.wait(message)
                tokens = [*(roots if i == 0 else ()), *self._tokens(group)]
                if tokens:
                    keep = retain_graph or bool(rest)
                    if self.context.reduces:
                        grads = self._reduced(tokens, keep)
                    else:
                        grads = _autograd.grad(tuple(tokens), leaves, (None,) * len(tokens), keep, False, True)[:-1]
                    self.context.add_grads(self.leaves, grads)
                for place in [p for p in self._outbox if p[3] > self._later]:
                    self._send(place[1], place[2], self._outbox.pop(place))
        finally:
            _local.run = before

    def _reduced(self, tokens: list, keep: bool) -> list:
        """The gradients of leaves some of which DistributedDataParallel reduces, which it does as they come into `.grad`."""
        with _in_grad:
            before = [leaf.grad for leaf in self.leaves]
            try:
                for leaf in self.leaves:
                    leaf.grad = None
                _autograd.run_backward(tuple(tokens), (None,) * len(tokens), (), keep, False)
                return [leaf.grad for leaf in self.leaves]
            finally:
                for leaf, grad in zip(self.leaves, before, strict=True):
                    leaf.grad = grad

    def _tokens(self, group: list) -> list:
        tokens: list = []

        def make():
            with enable_grad():
                for message, (_, tensors, _) in reversed(group):
                    tokens.append(_Gate.apply(self, message, *tensors))

        if group:
            thread = threading.Thread(target=make, daemon=True)
            thread.start()
            thread.join()
            if len(tokens) != len(group):
                raise RuntimeError("backward: what was sent has no gradient any more")
        return tokens

    def reached(self, place: tuple, grads) -> None:
        """The gradients of what was received; they are complete where no later run adds to them."""
        if self._failed is not None:
            raise self._failed
        if place in self._outbox:
            grads = [a if b is None else b if a is None else a + b for a, b in zip(self._outbox.pop(place), grads, strict=True)]
        if place[3] > self._later:
            self._send(place[1], place[2], grads)
        else:
            self._outbox[place] = list(grads)

    def wait(self, message: int) -> list:
        """The gradients of what was sent."""
        with self._changed:
            while message not in self._arrived:
                if self._failed is not None:
                    raise self._failed
                self._changed.wait()
            return self._arrived[message]

    def arrive(self, message: int, grads: list) -> None:
        with self._changed:
            self._arrived[message] = grads
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()

    def depends_on(self, worker: int) -> bool:
        return worker == self.number[0] or any(to == worker for to, _, _ in self.gates.values())


class Contexts:
    """The contexts of a worker. Numbers of contexts, messages and passes are its own."""

    def __init__(self, rank: int, send_grads) -> None:
        """send_grads(context, pass, worker, message, grads) sends gradients of tensors that came from a worker."""
        self.rank, self._send_grads = rank, send_grads
        self.all: dict = {}
        self._released: deque = deque(maxlen=1024)
        self._ids = itertools.count(rank << 48)
        self._messages = itertools.count(1)
        self._passes = itertools.count(1)
        self._lock = threading.Lock()

    def new(self) -> Context:
        context = Context(next(self._ids))
        self.all[context.id] = context
        return context

    def of(self, number: int) -> Context:
        """RuntimeError where there is none."""
        context = self.all.get(number)
        if context is None:
            raise RuntimeError(f"Could not find autograd context with id: {number}")
        return context

    def of_message(self, number: int) -> Context:
        """The context of a message, which may be its first."""
        with self._lock:
            context = self.all.get(number)
            if context is None:
                context = Context(number)
                if number not in self._released:  # a call that was under way when the context ended leaves nothing behind
                    self.all[number] = context
        return context

    def release(self, number: int) -> set:
        """Forgets a context; the workers that may know it, too."""
        with self._lock:
            self._released.append(number)
            context = self.all.pop(number, None)
        return set() if context is None else context.workers - {self.rank}

    def sent(self, context, to: int, tensors: list, attachable: list):
        """What a message says of its context: [context, number of the message, which tensors]; None outside of one."""
        if context is None:
            return None
        context.workers.add(to)
        if not attachable:
            return [context.id, 0, []]
        _leave_numbers()
        number = next(self._messages)
        context.sends[number] = (to, [tensors[i] for i in attachable], context.time())
        return [context.id, number, attachable]

    def received(self, source: int, attached, tensors: list) -> Context | None:
        """The context of a message that has come; gradients pass through its tensors from now on."""
        if attached is None:
            return None
        number, message, which = attached
        context = self.of_message(number)
        context.workers.add(source)
        if which:
            _leave_numbers()
            context.received += 1
            with enable_grad():
                made = _Receive.apply(_anchor, (context.id, source, message, context.time()), *(tensors[i] for i in which))
            for i, t in zip(which, made, strict=True):
                tensors[i] = t
        return context

    def begin(self, context: Context) -> Pass:
        return self.pass_of(context, (self.rank, next(self._passes)))

    def pass_of(self, context: Context, number: tuple) -> Pass:
        with context.lock:
            if number not in context.passes:
                context.passes[number] = Pass(context, number, functools.partial(self._send_grads, context.id, number))
            return context.passes[number]

    def worker_gone(self, worker: int, error: BaseException) -> None:
        """Passes that need this worker fail."""
        for context in list(self.all.values()):
            for one in list(context.passes.values()):
                if one.depends_on(worker):
                    one.fail(error)
                    if one.number[0] == worker:
                        context.passes.pop(one.number, None)
