"""The exceptions of reading files, and how errors of hostile or damaged files are told from those of the caller's functions."""

import contextlib
import pickle
import struct
import zlib


class FileError(RuntimeError, pickle.UnpicklingError):
    """A file cannot be read: damaged, cut off, of an unknown format, or with contents that only running code could make."""

    __module__ = "tapegrad.serialization"


class UnknownFormat(FileError):
    """The file is in none of the formats that are read."""

    __module__ = "tapegrad.serialization"


class FromCaller(Exception):  # noqa: N818
    """Carries what a function of the caller raised (map_location, a safe global) through the readers."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def guarded(function, *args):
    """function(*args), with its exceptions marked as the caller's."""
    try:
        return function(*args)
    except Exception as error:
        raise FromCaller(error) from error


_TYPICAL = (ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError, MemoryError, NotImplementedError,
            RuntimeError, TypeError, ValueError, struct.error, zlib.error)


@contextlib.contextmanager
def reading(what: str):
    """Turns what a reader trips over in a damaged file into a FileError; errors of the system and of the caller pass."""
    try:
        yield
    except FromCaller as error:
        raise error.error from error.error.__cause__
    except FileError:
        raise
    except _TYPICAL as error:
        detail = str(error)
        raise FileError(f"load: {what} is damaged: {type(error).__name__}{': ' if detail else ''}{detail[:300]}") from error


def damaged(what: str) -> FileError:
    return FileError(f"load: {what} is damaged: its checksum is wrong\nthe file was changed or cut after it was saved")
