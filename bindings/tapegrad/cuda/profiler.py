"""Start and stop of NVIDIA's profiler."""

from __future__ import annotations

import contextlib as _contextlib

from . import _missing

__all__ = ["init", "profile", "start", "stop"]

init = _missing("cuda.profiler.init")
start = _missing("cuda.profiler.start")
stop = _missing("cuda.profiler.stop")


@_contextlib.contextmanager
def profile():
    """Profiles a with block; RuntimeError without a GPU."""
    start()
    try:
        yield
    finally:
        stop()
