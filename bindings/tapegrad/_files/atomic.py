"""Atomic writes: at any moment the path has the complete old file or the complete new one."""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile

from .steps import sync


def _nameless(folder: str):
    """A file without a name: nothing is left of it when the process is killed. None where the system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            return None
        raise


def _mode(path: str) -> int:
    """The permissions of the file that is replaced, or those that a new file gets."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # the new name itself should survive a power cut; not every file system can say so
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Takes the lock that marks the writer of this file as alive. The system releases it when the process ends, in any way."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another one has it, or the file system knows no locks
        return False
    return True


def _remove_left_behind(name: str) -> bool:
    """Removes the temporary file of a process that was killed; False where its writer is alive or cannot be asked."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not _lock(descriptor):
            return False
        with contextlib.suppress(FileNotFoundError):  # another process may have been here first, and have taken the name itself
            if os.path.samestat(os.fstat(descriptor), os.stat(name, follow_symlinks=False)):
                os.unlink(name)
        return True
    finally:
        os.close(descriptor)


def _give_name(file, folder: str, base: str) -> str:
    """Links a nameless file into its folder: under a name known to all, so that the next save finds what a killed one left there,
    or, while a living process has that, under one by chance."""
    def link(name: str) -> str:
        os.link(f"/proc/self/fd/{file.fileno()}", name, src_dir_fd=descriptor, follow_symlinks=True)
        return name

    _lock(file.fileno())
    usual = os.path.join(folder, f".{base[:80]}.tmp")
    descriptor = os.open(folder, os.O_RDONLY)  # naming a folder makes Python call linkat, which follows the link in /proc; plain link does not
    try:
        for _ in range(3):  # another process can take the name in between
            with contextlib.suppress(FileExistsError):
                return link(usual)
            if not _remove_left_behind(usual):
                break
        return link(os.path.join(folder, f".{base[:80]}.{secrets.token_hex(6)}.tmp"))
    finally:
        os.close(descriptor)


def _copied(file, folder: str, base: str) -> str:
    descriptor, name = tempfile.mkstemp(prefix=f".{base[:80]}.", suffix=".tmp", dir=folder)
    try:
        with open(descriptor, "wb") as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
            sync(copy.fileno())
    except BaseException:
        os.unlink(name)
        raise
    return name


@contextlib.contextmanager
def _special(path: str):
    with open(path, "wb") as file:
        yield file


@contextlib.contextmanager
def _replacing(path: str):
    folder, base = os.path.split(path)
    if not os.path.isdir(folder):
        raise RuntimeError(f"save: the folder does not exist: {folder}")
    temporary = None
    descriptor = _nameless(folder)
    if descriptor is None:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{base[:80]}.", suffix=".tmp", dir=folder)
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _mode(path))
            sync(file.fileno())
            if temporary is None:  # a rename needs a name: it gets one for a moment
                try:
                    temporary = _give_name(file, folder, base)
                except OSError:  # some systems hide /proc
                    temporary = _copied(file, folder, base)
            os.replace(temporary, path)
            with contextlib.suppress(OSError):  # a process forked meanwhile has the descriptor as well, and would keep the lock
                fcntl.flock(file.fileno(), fcntl.LOCK_UN)
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    _sync_folder(folder)


@contextlib.contextmanager
def atomic_writer(path):
    """A binary file that takes the place of `path` when the block ends without an exception.

    The bytes are on the disk before the name changes. A pipe or a device is written to as it is. Where the system fails (no
    space left, no permission) the OSError says so and that the old file is as it was.
    """
    path = os.fsdecode(os.path.realpath(os.fspath(path)))
    try:
        is_special = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
        with (_special if is_special else _replacing)(path) as file:
            yield file
    except OSError as error:
        if error.errno is None:
            raise
        old = "; the file that was there is as it was" if os.path.isfile(path) else ""
        raise type(error)(error.errno, f"save: {os.strerror(error.errno)}{old}", path) from error
