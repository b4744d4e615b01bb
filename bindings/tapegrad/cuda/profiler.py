"""Start and stop of NVIDIA's profiler."""

import contextlib as _contextlib

from .. import _C

__all__ = ["init", "profile", "start", "stop"]


def init(output_file=None, flags=None, output_mode: str = "key_value") -> None:
    """Files and modes are the profiler's own to choose; RuntimeError without a GPU."""
    _C._cuda_current_device("cuda.profiler.init")


def start() -> None:
    """Starts the profiler."""
    _C._cuda_profiler("cuda.profiler.start", True)


def stop() -> None:
    """Stops the profiler."""
    _C._cuda_profiler("cuda.profiler.stop", False)


@_contextlib.contextmanager
def profile():
    """Profiles a with block; RuntimeError without a GPU."""
    start()
    try:
        yield
    finally:
        stop()
