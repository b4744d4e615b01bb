"""Where bytes come from when a file is read: a path (read or mapped into memory) or a file object. Never more memory than there
are bytes, whatever a header claims.
"""

import io
import os
import struct
import zlib

from .. import empty, frombuffer, uint8
from .errors import FileError

_STEP = 1 << 20


def read_exactly(file, n: int, what: str) -> bytes:
    """n bytes, or an error that says what is cut off. A claim of many bytes is believed piece by piece."""
    parts, got = [], 0
    while got < n:
        chunk = file.read(min(n - got, _STEP))
        if not chunk:
            raise FileError(f"load: the file ends within {what}: {got} of {n} bytes are there")
        parts.append(bytes(chunk))
        got += len(chunk)
    return b"".join(parts)


def can_seek(file) -> bool:
    """Whether there is a way back in it."""
    try:
        return file.seekable()
    except AttributeError:
        return hasattr(file, "seek") and hasattr(file, "tell")


class Source:
    """A file that is read forwards; `at(offset, n)` where it can be seeked."""

    def __init__(self, file) -> None:
        self.file = file
        self.size = None  # bytes in all, where that can be asked
        self.begin = 0    # where the object begins in the file
        try:
            if can_seek(file):
                self.begin = file.tell()
                self.size = file.seek(0, os.SEEK_END)
                file.seek(self.begin)
        except (AttributeError, OSError, io.UnsupportedOperation):
            self.size = None

    def remaining(self) -> int | None:
        return None if self.size is None else self.size - self.file.tell()

    def storage(self, n: int, what: str, progress=None):
        """The next n bytes as a tensor of bytes; progress(memoryview) is called with every part."""
        left = self.remaining()
        if left is not None and left < n:
            raise FileError(f"load: the file ends within {what}: {left} of {n} bytes are there")
        if left is None or not hasattr(self.file, "readinto"):
            data = read_exactly(self.file, n, what)
            t = empty(n, dtype=uint8)
            if n:
                memoryview(t).cast("B")[:] = data
                if progress:
                    progress(memoryview(t).cast("B"))
            return t
        t = empty(n, dtype=uint8)
        view, got = memoryview(t).cast("B") if n else memoryview(b""), 0
        while got < n:
            count = self.file.readinto(view[got:got + 16 * _STEP])
            if not count:
                raise FileError(f"load: the file ends within {what}: {got} of {n} bytes are there")
            if progress:
                progress(view[got:got + count])
            got += count
        return t


class MappedSource:
    """A file in memory: nothing is read before it is needed, and writing to a tensor changes the tensor only."""

    def __init__(self, path, begin: int = 0, shared: bool = False) -> None:
        import mmap

        with open(path, "rb" if not shared else "r+b") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size == 0:
                raise FileError(f"load: the file is empty: {os.fsdecode(path)}")
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        self.begin = begin
        self._bytes = frombuffer(self.memory, dtype=uint8)

    def view(self, offset: int, n: int, what: str) -> memoryview:
        if offset < 0 or n < 0 or offset + n > self.size:
            raise FileError(f"load: the file ends within {what}: it has {self.size} bytes and would need {offset + n}")
        return memoryview(self.memory)[offset:offset + n]

    def storage(self, offset: int, n: int, what: str, align: int = 8):
        """n bytes as a tensor of bytes over the file; a copy where they do not lie at a multiple of `align`."""
        self.view(offset, n, what)
        if n == 0:
            return empty(0, dtype=uint8)
        t = frombuffer(self.memory, dtype=uint8, count=n, offset=offset)
        return t if t.data_ptr() % align == 0 else t.clone()

    def unsigned(self, offset: int, form: str, what: str) -> tuple:
        return struct.unpack(form, self.view(offset, struct.calcsize(form), what))


class Checks:
    """Computes checksums in a second thread while the first reads on. `expected`: name -> CRC-32."""

    def __init__(self, expected: dict) -> None:
        self.expected = expected
        self.pool = None  # made for the first large tensor
        self.found: dict[str, int] = {}

    def _add(self, name: str, part) -> None:
        self.found[name] = zlib.crc32(part, self.found.get(name, 0))

    def of(self, name: str, size: int):
        """The callback for the parts of a tensor, which computes its checksum; None if there is no checksum to compare."""
        if name not in self.expected:
            return None
        self.found[name] = 0
        if size < 1 << 18:
            return lambda part: self._add(name, part)
        if self.pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self.pool = ThreadPoolExecutor(1, "tapegrad-checksums")
        return lambda part: self.pool.submit(self._add, name, part)

    def wrong(self) -> list[str]:
        """Waits, and names those whose checksums differ."""
        if self.pool is not None:
            self.pool.shutdown()
        return [name for name, value in self.found.items() if value != self.expected[name]]
