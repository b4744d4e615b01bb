"""What a rank tells the others when its program ends: the traceback of an uncaught exception, or that it has left in order.

Also where the program is, for ranks that wait for this one. Installed once, with the first group of the process.
"""

import atexit
import os
import sys
import threading
import traceback
import weakref

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_groups: list = []  # weak references to native groups of whole jobs, of this process
_senders: list = []  # the same of all groups
_process = 0
_LONGEST_END = 60_000  # ms that a process waits at its end for those who are to receive what it sent


def where() -> str:
    """The line of the program at which the main thread is, outside of this package: "train.py:31 in step"."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return "its end"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def tell_of_the_end(world) -> None:
    """Ties a group of a whole job to the end of this process. `world` has abort(why) and leave()."""
    global _process
    if _process != os.getpid():  # also in a forked child, which has no part in its parent's groups
        from ..._C import _set_where

        if _process == 0:
            _chain_excepthook()
            atexit.register(_at_exit)
        _process = os.getpid()
        _groups.clear()
        _senders.clear()
        _set_where(where)
    _groups.append(weakref.ref(world))


def receive_at_the_end(group) -> None:
    """What was sent through a group is received before this process ends."""
    _senders.append(weakref.ref(group))


def _alive() -> list:
    if _process != os.getpid():
        return []
    return [g for g in (r() for r in _groups) if g is not None]


def _chain_excepthook() -> None:
    before = sys.excepthook

    def hook(kind, value, trace):
        groups = _alive()
        if groups:
            try:
                lines = traceback.format_exception(kind, value, trace, limit=-8)
                text = "an uncaught exception\n" + "".join(lines).rstrip()
            except Exception:
                text = f"{kind.__name__}, uncaught"
            for group in groups:
                group.abort(text)
        before(kind, value, trace)

    sys.excepthook = hook


def _at_exit() -> None:
    if _process == os.getpid():
        for group in [r() for r in _senders]:
            if group is not None:
                group.flush(_LONGEST_END)
    for group in _alive():
        group.leave()
