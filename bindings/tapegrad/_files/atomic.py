"""Writing a file so that the old one is there, whole, until the new one is."""

from __future__ import annotations

import contextlib
import os
import tempfile


@contextlib.contextmanager
def atomic_writer(path):
    """A binary file that takes the place of `path` when the block ends without an exception."""
    path = os.path.realpath(os.fspath(path))
    folder = os.path.dirname(path)
    if isinstance(path, bytes):
        path, folder = os.fsdecode(path), os.fsdecode(folder)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", suffix=".tmp", dir=folder)
    except FileNotFoundError:
        raise RuntimeError(f"save: the folder does not exist: {folder}") from None
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's files are private
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # the new name itself should survive a power cut
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
