"""Children that end when their parent does, however it ends."""

from .. import _C


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
    _C._end_with(parent, signum)
