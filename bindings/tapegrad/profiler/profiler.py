"""profile: which operators run, how long, for which module and line, and what memory they take."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum

from .. import _C
from .._warn import warn
from ._events import EventList, read_logs

__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]


class ProfilerActivity(Enum):
    """What can be recorded. Only the CPU's activity is, as long as there are no kernels for another device."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(Enum):
    """What a profiler does during a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def supported_activities() -> set:
    """{ProfilerActivity.CPU}"""
    return {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0) -> Callable:
    """A schedule for profile: after `skip_first` steps, cycles of `wait` idle steps, `warmup` steps and `active` recorded ones,
    `repeat` times (0: until the end). The first cycle has no wait where skip_first_wait is not 0."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(f"schedule: expected counts of at least 0 and an active step: got wait={wait}, warmup={warmup}, active={active}, "
                             f"repeat={repeat}, skip_first={skip_first}")
    if warmup == 0:
        warn("Profiler won't be using warmup, this can skew profiler results")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"schedule: steps count from 0: got {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait != 0:
            step += wait
        cycle = wait + warmup + active
        if repeat and step >= repeat * cycle:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable:
    """For on_trace_ready: writes WORKER.TIME.pt.trace.json into a folder, where TensorBoard's profiler plug-in looks."""

    def handler(prof) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")))

    return handler


class record_function:
    """A name for a part of the program in the profile: a context, or a decorator of functions."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._open = []

    def __enter__(self):
        self._open.append(_C._profiler_begin(self.name))
        return self

    def __exit__(self, *error) -> None:
        _C._profiler_end(self._open.pop())

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def named(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


class Recording:
    """One session of the recorder: this thread, and those that are started while it runs."""

    def __init__(self, shapes: bool, memory: bool, stack: bool, modules: bool, flops: bool):
        self.memory, self.flops = memory, flops
        _C._profiler_start(shapes or flops, memory, stack, modules)
        self._hook_before = threading.getprofile() if hasattr(threading, "getprofile") else None
        if self._hook_before is None:
            threading.setprofile(self._attach)

    @staticmethod
    def _attach(frame, event, arg) -> None:
        """Python calls this once in a new thread: it takes part from there on."""
        import sys

        sys.setprofile(None)
        _C._profiler_attach()

    def finish(self) -> EventList:
        if self._hook_before is None:
            threading.setprofile(None)
        events, dropped = read_logs(*_C._profiler_stop(), self.flops)
        if dropped:
            warn(f"profiler: {dropped} events after the first {1 << 24} of a thread were not kept; profile fewer steps")
        return EventList(sorted(events, key=lambda e: e.time_range.start), profile_memory=self.memory, with_flops=self.flops)


class profile:
    """Records operators forward and backward, with their times, between start() and stop(), or as a context.

    Args:
        activities: of ProfilerActivity; only CPU is recorded.
        schedule: from the number of a step to a ProfilerAction, see `schedule`; call step() after each. Default: all is recorded.
        on_trace_ready: called with this object whenever a recording is complete.
        record_shapes: the sizes of tensors and integers among the arguments.
        profile_memory: bytes that each call allocated less those it freed.
        with_stack: the lines of the program that led to each call; and the modules.
        with_flops: multiplications and additions of products and convolutions.
        with_modules: the modules that were called, and to which of them operators (of backward, too) belong.
        acc_events: events of all recordings stay, not only those of the last.

    RuntimeError where another profiler runs. Threads that are started meanwhile take part; one that ran before does when
    it calls `tapegrad.profiler.attach()`.
    """

    def __init__(self, *, activities: Iterable | None = None, schedule: Callable | None = None, on_trace_ready: Callable | None = None,
                 record_shapes: bool = False, profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False, experimental_config=None, execution_trace_observer=None, acc_events: bool = False,
                 use_cuda: bool | None = None, custom_trace_id_callback=None, post_processing_timeout_s=None):
        self.activities = set(activities) if activities is not None else supported_activities()
        if use_cuda is not None:
            warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning)
        if use_cuda:
            self.activities.add(ProfilerActivity.CUDA)
        if not self.activities:
            raise AssertionError("profile: no valid profiler activities found")
        if ProfilerActivity.CUDA in self.activities:
            warn("CUDA is not available, disabling CUDA profiling")
        if experimental_config is not None or execution_trace_observer is not None:
            warn("profile: experimental_config and execution_trace_observer are taken and ignored")
        self.schedule = schedule if schedule is not None else (lambda step: ProfilerAction.RECORD)
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.acc_events = with_flops, with_modules, acc_events
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._recording: Recording | None = None
        self._events: EventList | None = None
        self._step_mark: record_function | None = None
        self._metadata: dict = {}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, exc_type, exc, traceback) -> None:
        self.stop()

    # --- recording ---

    def _begin(self) -> None:
        if self._recording is None:
            self._recording = Recording(self.record_shapes, self.profile_memory, self.with_stack, self.with_stack or self.with_modules, self.with_flops)

    def _end(self, complete: bool) -> None:
        if self._recording is None:
            return
        recording, self._recording = self._recording, None
        events = recording.finish()
        if self.acc_events and self._events is not None:
            events[:0] = self._events
        self._events = events
        if complete and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _mark_step(self, on: bool) -> None:
        if self._step_mark is not None:
            self._step_mark.__exit__(None, None, None)
            self._step_mark = None
        if on and self.record_steps:
            self._step_mark = record_function(f"ProfilerStep#{self.step_num}")
            self._step_mark.__enter__()

    def start(self) -> None:
        """Begins with step 0."""
        if self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._begin()
        self._mark_step(True)

    def stop(self) -> None:
        """Ends the profile; a recording that is under way is complete with it."""
        self._mark_step(False)
        self._end(True)

    def step(self) -> None:
        """Says that the next step of the program begins."""
        self._mark_step(False)
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = self.schedule(self.step_num)
        records = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._end(True)
        elif before is ProfilerAction.RECORD and not records:
            warn(f"profile: incorrect schedule: RECORD followed by {self.current_action.name}")
            self._end(False)
        if records:
            self._begin()
        self._mark_step(True)

    # --- results ---

    def events(self) -> EventList:
        """The events of the last recording (of all with acc_events)."""
        if self._events is None:
            raise AssertionError("profile: nothing is recorded yet: events are there when a recording is complete")
        self._events._metadata = self._metadata
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """One row per operator; and per shapes of its inputs (record_shapes), and per its innermost lines (with_stack)."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def module_averages(self) -> EventList:
        """One row per module (with_modules): the operators that it calls itself, and their backward."""
        return self.events().module_averages()

    def line_averages(self) -> EventList:
        """One row per line of the program (with_stack): the operators that it calls, and their backward."""
        return self.events().line_averages()

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events for chrome://tracing or Perfetto; compressed where the path ends with .gz."""
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes stacks with a metric for flame graphs (with_stack)."""
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device=None) -> None:
        raise NotImplementedError("profile: export_memory_timeline is not there\nexport_chrome_trace has a track of the memory (profile_memory=True)")

    def add_metadata(self, key: str, value: str) -> None:
        """Text that the trace carries."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A JSON text that the trace carries as the value it stands for."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json
