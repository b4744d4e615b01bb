"""What a program may ask while it runs: whether it is recorded, compiled or exported. Programs written for PyTorch then leave out checks
that read values."""

import contextlib
import threading


class _State(threading.local):
    recording = compiling = exporting = pure = False


state = _State()


def is_recording() -> bool:
    """Whether this thread runs a step that is being recorded."""
    return state.recording


def is_compiling() -> bool:
    """Whether this thread runs a function that is being exported, or recorded after a first attempt that failed because it read values."""
    return state.compiling or state.exporting


def is_exporting() -> bool:
    """Whether this thread runs a function that is being exported."""
    return state.exporting


@contextlib.contextmanager
def exporting():
    """The time in which a program is made."""
    before, state.exporting = state.exporting, True
    try:
        yield
    finally:
        state.exporting = before
