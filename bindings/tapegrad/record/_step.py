"""RecordedStep: when a call is recorded, compared, replayed or left to run eagerly."""

from __future__ import annotations

import functools
import logging
import sys
import threading
import types
import weakref

from .. import _C, OutOfMemoryError, is_grad_enabled
from .._root.recording import is_recording, state
from ._flow import tells_apart
from ._memory import default_budget, in_bytes, parse_budget
from ._reads import Reads
from ._watch import observer as new_observer
from ._watch import watch

logger = logging.getLogger("tapegrad.record")

# Recordings in vain until a step is left to run eagerly; forward passes whose backward pass may still come, and those that did not
# come, after which each more counts as in vain; recordings that wait for a second one, and those that waited in vain; plans that
# were dropped because something changed, until it is asked whether recording pays.
_TRIES, _MOST_WAITING, _MOST_MISSING, _MOST_PENDING, _MOST_ALONE, _MOST_CHANGES = 4, 4, 16, 16, 24, 8

_all: weakref.WeakSet = weakref.WeakSet()
_stance = ["default"]  # or "force_eager"


def reset() -> None:
    """Forgets the plans of all recorded functions."""
    for step in list(_all):
        step.reset()


def stance(name: str | None = None) -> str:
    """Sets what recorded functions do from now on, where given: "default", or "force_eager", all run eagerly. Returns the former one."""
    before = _stance[0]
    if name is not None:
        _stance[0] = name
        _C._RecordedCall._set_replaying(name == "default")
    return before


class RecordedStep(_C._RecordedCall):
    """A function whose calls are replayed once two recordings of it were equal.

    Called like the function. A call with other dtypes or values of arguments that are no tensors is recorded anew; one with other sizes where
    the program does something with sizes that is not understood (the logger says what), else a plan is made without Python. Up to 16 plans are kept. What cannot be replayed runs eagerly, and the logger "tapegrad.record" says why, once for each reason; with
    `fullgraph` that raises RuntimeError instead, after the call. `pure=True` promises that the function has no effect outside of
    tensors and reads no clock, file or random module: calls that are not known are allowed then. `memory` is what temporaries and
    results of a replay may take: bytes, a text such as "4 GiB", or a share of what they would take ("60 %", 0.6). On a GPU, calls between which
    the host does nothing are replayed as one CUDA graph, unless `graphs` is False.
    """

    def __init__(self, function, *, pure: bool = False, fullgraph: bool = False, name: str | None = None, memory=None, graphs: bool = True) -> None:
        if not callable(function):
            raise TypeError(f"record: expected a function: got {type(function).__name__}")
        functools.update_wrapper(self, function)
        self.function = function
        self.pure = pure
        self.fullgraph = fullgraph
        self.budget = parse_budget(memory)
        self.graphs = graphs
        self.name = name or getattr(function, "__qualname__", type(function).__name__)
        self._lock = threading.RLock()  # of all below; never held while the function runs
        self._pending: list = []  # recordings that wait for a second one, with what they watch and the code that ran
        self._waiting: list = []  # forward passes whose backward pass has not come
        self._missing = 0  # of them so far
        self._alone = 0  # recordings that found no second one
        self._changes = 0  # plans that were dropped
        self._split = False
        self._compiling = fullgraph  # whether recordings say so where they are asked, because values were read otherwise
        self._tries: dict[bool, int] = {}  # recordings in vain, with gradients on and off
        self._reasons: set[str] = set()
        self._notes: set[str] = set()
        _all.add(self)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def _bound_to(self, owner) -> RecordedStep:
        """This, or where it is a method of another object that method of `owner`, with plans of its own."""
        if getattr(self.function, "__self__", owner) is owner or not isinstance(self.function, types.MethodType):
            return self
        return RecordedStep(types.MethodType(self.function.__func__, owner), pure=self.pure, fullgraph=self.fullgraph, name=self.name, memory=self.budget,
                            graphs=self.graphs)

    def __reduce__(self):
        return functools.partial(RecordedStep, pure=self.pure, fullgraph=self.fullgraph, name=self.name, memory=self.budget,
                                 graphs=self.graphs), (self.function,)

    def __repr__(self) -> str:
        return f"RecordedStep({self.name}: {len(self._replays.plans())} plans)"

    def reset(self) -> None:
        """Forgets all plans and reasons: the next calls are recorded."""
        with self._lock:
            self._replays.clear()
            for kept in (self._pending, self._waiting, self._tries, self._reasons, self._notes):
                kept.clear()
            self._missing = self._alone = self._changes = 0

    def summary(self) -> str:
        """Of each plan the calls, the bytes of its temporaries, and how often it was replayed; then the reasons against others."""
        lines = []
        for (calls, nbytes, replays), use in zip(self._replays.plans(), self._replays.memory(), strict=True):
            lines.append(f"{self.name}: {calls} calls, {nbytes:,} bytes of temporaries, {replays} replays")
            if self.budget is not None or default_budget[0] is not None:
                lines.append(f"  memory: {use['planned']:,} bytes with results, {use['unlimited']:,} without a budget: {use['updates']} weights updated early, "
                             f"{use['again']} calls made again ({use['share']:.1%} of the time of all)" + (f"; {use['lacks']}" if use["lacks"] else ""))
            if use["same"] or use["folded"]:
                lines.append(f"  left out: {use['same']} calls that equal others, {use['folded']} that are the same in each call ({use['constants']:,} bytes are kept)")
            if use["graphs"]:
                lines.append(f"  {use['in_graphs']} of {use['in_graphs'] + use['apart']} calls on {use['device']} by {use['graphs']} launches of graphs"
                             + (f"; {use['no_graph']}" if use["no_graph"] else ""))
            elif use["no_graph"]:
                lines.append(f"  calls on {use['device']} are replayed one by one: {use['no_graph']}")
            if use["chains"]:
                lines.append(f"  {use['in_chains']} of them by {use['chains']} kernels made of chains")
            if use["awaited"]:
                lines.append(f"  {use['awaited']} kernels of chains are being compiled: until then it is replayed without them")
            if use["no_chains"]:
                lines.append(f"  chains are replayed call by call: {use['no_chains']}")
        if self._replays.made:
            lines.append(f"  {self._replays.made} plans were made for other sizes, without a recording")
        return "\n".join([*(lines or [f"{self.name}: no plan"]), *(f"  eager: {reason}" for reason in sorted(self._reasons))])

    def _eager(self, args, kwargs):
        """What a call does that is not replayed."""
        if is_recording() or _stance[0] != "default":
            return self.function(*args, **kwargs)
        news = self._replays.reason == "news"
        if news:
            for use in self._replays.memory():
                self._note_chains(use)
        if self._waiting or news:
            self._take()
            if (result := self._replays.run((args, kwargs))) is not NotImplemented:
                return result
        grad = is_grad_enabled()
        why = self._replays.reason
        if why in ("a mode is on", "busy") or self._tries.get(grad, 0) >= _TRIES:
            return self.function(*args, **kwargs)
        if why == "its arguments have other sizes in each call":
            self._note(f"{why}: without a recording a plan is made for few of them, the others run eagerly")
            return self.function(*args, **kwargs)
        if sys.getprofile() is not None:
            result = self.function(*args, **kwargs)
            self._tell("a profiler of Python is on")
            return result
        if why.endswith("has changed"):
            with self._lock:
                self._changed(why, grad)
        if sizes := self._replays.sizes:
            self._note(f"other sizes of its arguments are recorded by themselves: {sizes}")
        if why not in ("", "audit") and not why.endswith("has changed"):
            result = self.function(*args, **kwargs)
            self._tell(why)
            return result
        return self._record(args, kwargs, grad, why == "audit")

    def _record(self, args, kwargs, grad: bool, audit: bool):
        known = self._known(grad)
        split = self._split and grad
        reads = Reads(self.function, RecordedStep._record.__code__, values=not split)
        observer, contexts = new_observer(self.pure, reads.sizes)
        recorder = reader = None
        try:
            recorder = _C._Recorder(args, kwargs)
            if audit:
                recorder.audits(self._replays)
            before = None if audit else next((entry for entry, holds in known if holds and recorder.is_like(entry[0])), None)
            if before or self._waiting and not audit:  # of the first one no plan is made
                recorder.follow_sizes()
            state.recording, state.compiling, state.pure = True, self._compiling, self.pure
            reader = _C._set_reader(reads)
            with observer:
                result = self.function(*args, **kwargs)
            if observer.reason:
                recorder.refuse(observer.reason)
            _C._pin_sizes(reads.sizes.end())
            if any(map(tells_apart, observer.codes)):
                _C._tells_apart()
            if result is NotImplemented:
                recorder.refuse("it returns NotImplemented")
            watched = None if audit else self._watch(observer, recorder, before, contexts)
            if isinstance(watched, str):
                recorder.refuse(watched)
            if split:
                result = recorder.split(result)
            else:
                recording = recorder.finish(result, reads.found)
        finally:  # one call, for Ctrl-C may come between two
            state.recording = state.compiling = False
            if recorder is not None:
                recorder.stop(reads.sizes, reader)
        if split:
            with self._lock:
                if len(self._waiting) == _MOST_WAITING:
                    del self._waiting[0]
                    self._missed(grad)
                self._waiting.append((recorder, (watched, observer.codes, known), grad, audit))
        elif not audit and recording.reason.startswith("its result needs a gradient"):
            self._split = True  # a forward pass: its backward pass is recorded when it comes
        else:
            self._settle(recording, (watched, observer.codes, known), grad, audit)
        return result

    def _known(self, grad: bool) -> list:
        """What waits for a second recording, each with whether the values that it has read are the same now."""
        known = []
        with self._lock:
            for entry in list(self._pending):
                what = entry[1].changed()
                if not what or entry[1].only_values_changed():
                    known.append((entry, not what))
                else:
                    self._pending.remove(entry)
                    self._changed(f"{what} has changed", grad)
            if known and not self._replays.reason and not any(holds for _, holds in known):
                self._changed(f"{known[-1][0][1].changed()} has changed", grad)
        return known

    def _watch(self, observer, recorder, before, contexts: dict):
        """What is watched: where the same code has run as before, and nothing has changed, what was watched then."""
        if before is not None:
            _, watched, codes = before
            same = len(codes) == len(observer.codes) and all(codes.get(code) is variables for code, variables in observer.codes.items())
            if same and not watched.changed():
                return watched
        return watch(self.function, observer, recorder.objects(), contexts)

    def _take(self) -> None:
        """Settles recordings whose backward pass has come."""
        with self._lock:
            for entry in list(self._waiting):
                recorder, *rest = entry
                recording = recorder.take()
                if recording is not None:
                    self._waiting.remove(entry)
                    if recording:
                        self._settle(recording, *rest)
                    else:
                        self._missed(rest[1])

    def _changed(self, what: str, grad: bool) -> None:
        """Counts what was dropped because something changed; gives up where that is what recordings are for."""
        self._changes += 1
        if self._changes % _MOST_CHANGES == 0 and self._replays.count < self._changes:
            self._tries[grad] = _TRIES
            self._tell(f"{what}, again and again")

    def _missed(self, grad: bool) -> None:
        self._missing += 1
        if self._missing >= _MOST_MISSING:
            self._failed(grad, "its backward pass does not come")

    def _settle(self, recording, watched, grad: bool, audit: bool) -> None:
        if audit:
            if difference := self._replays.audit(recording):
                self._failed(grad, f"an audit found that it does something else than before: {difference}")
            return
        with self._lock:
            reason = recording.reason or self._compare(recording, *watched)
            if reason is None:
                self._tries[grad] = 0
            elif reason:
                self._failed(grad, reason)

    def _compare(self, recording, watched, codes, known):
        """None: the recording has become a plan; "": it waits for another one; else why it cannot."""
        if watched.holds(recording):
            return "an argument shares memory with a tensor that the function reads from elsewhere"
        for i, entry in enumerate(self._pending):
            earlier, before, _ = entry
            held = next((holds for other, holds in known if other is entry), None)  # when the step began; None: it came meanwhile
            if held is False or not recording.same_arguments(earlier):
                continue
            changed = "" if before is watched else before.changed()  # then it was asked when the step had run
            if changed and held is None:
                continue
            reason = f"it changes {changed}, outside of tensors" if changed else recording.difference(earlier)
            if reason:
                self._pending[i] = recording, watched, codes
                return reason
            del self._pending[i]
            try:
                use = self._replays.add(recording, watched, *in_bytes(self.budget if self.budget is not None else default_budget[0]), self.graphs)
            except (MemoryError, OutOfMemoryError):
                return "there is no memory for its temporaries"
            if use["lacks"]:
                self._note(f"a plan takes {use['planned']:,} bytes, more than its memory budget: {use['lacks']}")
            if use["no_graph"]:
                self._note(f"{use['apart']} calls on {use['device']} are replayed one by one: {use['no_graph']}")
            self._note_chains(use)
            return None
        self._pending.append((recording, watched, codes))
        if len(self._pending) <= _MOST_PENDING:
            return ""
        del self._pending[0]
        self._alone += 1
        if self._alone < _MOST_ALONE or self._replays.count > self._alone:
            return ""
        self._tries.update({True: _TRIES, False: _TRIES})
        if recording.read:
            return f"a value that it reads is another one in each call ({recording.read})"
        return "its arguments have other values, sizes or objects in each call"

    def _failed(self, grad: bool, reason: str) -> None:
        if not self._compiling and " reads a value" in reason:
            self._compiling = True  # many programs read none where they are told that they are compiled
            return
        self._tries[grad] = self._tries.get(grad, 0) + 1
        # The first run often differs: it makes state, fills caches.
        if self._tries[grad] > 1 or self.fullgraph:
            self._tell(reason)

    def _tell(self, reason: str) -> None:
        if reason in self._reasons:
            return
        self._reasons.add(reason)
        if self.fullgraph:
            raise RuntimeError(f"{self.name}: cannot be replayed: {reason}")
        logger.warning("%s: runs eagerly: %s", self.name, reason)

    def _note_chains(self, use: dict) -> None:
        if use["no_chains"]:
            self._note(f"chains of pointwise calls on {use['device']} are replayed call by call: {use['no_chains']}")

    def _note(self, what: str) -> None:
        if what not in self._notes:
            self._notes.add(what)
            logger.warning("%s: %s", self.name, what)


def record(function=None, *, pure: bool = False, fullgraph: bool = False, name: str | None = None, memory=None, graphs: bool = True):
    """A decorator that records a function of tensors and replays it: see RecordedStep."""
    if function is None:
        return functools.partial(record, pure=pure, fullgraph=fullgraph, name=name, memory=memory, graphs=graphs)
    return RecordedStep(function, pure=pure, fullgraph=fullgraph, name=name, memory=memory, graphs=graphs)
