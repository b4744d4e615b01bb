"""Traces in the format of chrome://tracing: complete events per thread, arrows from forward calls to their backward."""

import gzip
import json
import os

from ._events import _ANNOTATION, _ENGINE, _MODULE, _NODE, _OPERATOR

_CATEGORY = {_OPERATOR: "cpu_op", _ENGINE: "cpu_op", _NODE: "cpu_op", _MODULE: "python_function", _ANNOTATION: "user_annotation"}


def _arguments(e) -> dict:
    args: dict = {"External id": e.id}
    if e.sequence_nr >= 0:
        args["Sequence number"] = e.sequence_nr
    if e.fwd_thread is not None:
        args["Fwd thread id"] = e.fwd_thread
    if e.inputs:
        args["Input Dims"] = e.input_shapes
        args["Input type"] = [str(a[0]).rpartition(".")[2] if isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], list) else "" for a in e.inputs]
        args["Concrete Inputs"] = ["" if a is None else str(a) for a in e.concrete_inputs]
    if e.stack:
        args["Call stack"] = ";".join(reversed(e.stack))
    if e.module_path is not None:
        args["Module Hierarchy"] = e.module_path
    if e.cpu_memory_usage:
        args["Bytes"] = e.cpu_memory_usage
    return args


def _arrows(events, pid: int):
    makers = {e.sequence_nr: e for e in events if e.kind == _OPERATOR and e.sequence_nr >= 0}
    for e in events:
        maker = makers.get(e.sequence_nr) if e.kind == _ENGINE else None
        if maker is not None:
            common = {"cat": "fwdbwd", "name": "fwdbwd", "id": e.sequence_nr, "pid": pid}
            yield {"ph": "s", **common, "tid": maker.thread, "ts": maker.time_range.start}
            yield {"ph": "f", **common, "tid": e.thread, "ts": e.time_range.start, "bp": "e"}


def _memory(events, pid: int):
    """What is allocated, after each event with nothing around it."""
    held = 0
    for e in sorted((e for e in events if e.cpu_parent is None and e.cpu_memory_usage), key=lambda e: e.time_range.end):
        held += e.cpu_memory_usage
        yield {"ph": "C", "name": "CPU memory", "pid": pid, "ts": e.time_range.end, "args": {"bytes": held}}


def write_trace(events, path, metadata: dict) -> None:
    """See EventList.export_chrome_trace."""
    pid = os.getpid()
    entries = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "python"}}]
    entries += [{"ph": "M", "name": "thread_name", "pid": pid, "tid": t, "ts": 0, "args": {"name": f"thread {t}"}} for t in sorted({e.thread for e in events})]
    entries += [{"ph": "X", "cat": _CATEGORY[e.kind], "name": e.name, "pid": pid, "tid": e.thread, "ts": e.time_range.start,
                 "dur": e.time_range.elapsed_us(), "args": _arguments(e)} for e in events]
    entries += [*_arrows(events, pid), *_memory(events, pid)]
    document = {"schemaVersion": 1, "deviceProperties": [], **metadata, "displayTimeUnit": "ms", "traceEvents": entries, "traceName": str(path)}
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wt") as file:
        json.dump(document, file)
