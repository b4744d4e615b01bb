"""Children that end when their parent does, however it ends."""

from __future__ import annotations

import os
import select
import threading


def _watch(parent: int, signum: int) -> None:
    try:
        fd = os.pidfd_open(parent)
        select.select([fd], [], [])
    except (OSError, AttributeError):  # it has gone already, or the system has no pidfd
        wait = threading.Event()
        while os.getppid() == parent and not wait.wait(0.2):
            pass
    if signum:
        os.kill(os.getpid(), signum)
    else:
        os._exit(1)


def end_with_parent(signum: int = 0, parent: int | None = None) -> None:
    """Sends this process the signal, or ends it at once for 0, as soon as the process that started it is gone.

    parent: its number, where it is not what multiprocessing says.
    """
    if parent is None:
        import multiprocessing

        process = multiprocessing.parent_process()
        if process is None:
            return
        parent = process.pid
    threading.Thread(target=_watch, args=(parent, signum), name="tapegrad-parent", daemon=True).start()
