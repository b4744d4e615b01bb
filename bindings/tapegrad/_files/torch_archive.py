"""Reading PyTorch's .pt archives: zip files of a stream of plain data and one entry per storage."""

import contextlib
import errno
import io
import os
import struct
import zipfile
import zlib

from .. import empty, uint8
from .errors import FileError, damaged
from .objects import Policy
from .source import Checks, MappedSource, Source
from .torch_names import Reader, storage_id, wrap
from .unpickle import modern_name

_MOST_CONTENTS = 1 << 29  # bytes of the stream of plain data
_MOST_INFLATION = 1100    # more than this deflate cannot do; smaller entries may be of any ratio
_FREE, _SQUEEZED = 4 << 20, 64  # so many bytes of plain data, and so many for each of the file's, may be inflated
_STEP = 1 << 16


def is_archive(start: bytes) -> bool:
    """Whether a file that begins so is a zip archive."""
    return start[:4] == b"PK\x03\x04"


class Archive:
    """The entries of a zip file. Refuses entries that overlap or claim more bytes than there are."""

    def __init__(self, file) -> None:
        self.file = file
        try:
            self.zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError, EOFError, LookupError) as error:
            raise FileError(f"load: the archive is damaged or cut off: {str(error)[:100]}") from None
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise FileError("load: the archive is damaged: its table of contents lies outside of it") from None
        self.size = file.seek(0, os.SEEK_END)
        entries = self.zip.infolist()
        self.entries = {e.filename: e for e in entries}
        if sum(e.compress_size for e in entries) > self.size or len(self.entries) != len(entries):
            raise FileError("load: the archive is damaged: its entries overlap")
        contents = next((n for n in self.entries if n.endswith("/data.pkl") or n == "data.pkl"), None)
        if contents is None:
            raise FileError("load: this zip archive is not one that PyTorch's save wrote")
        self.root = contents[:-len("data.pkl")]
        if self.root + "constants.pkl" in self.entries:
            raise FileError("load: this is a TorchScript archive, which holds a program, and only tensors and plain data are read\n"
                            "load it with torch.jit.load and save its state_dict()")
        self.swapped = False
        if self.root + "byteorder" in self.entries:
            with self.stream("byteorder", 16) as stream:
                order = stream.read()
            if order not in (b"little", b"big"):
                raise FileError(f"load: the archive has an unknown order of bytes: {order!r}")
            self.swapped = order == b"big"

    def entry(self, name: str) -> zipfile.ZipInfo:
        found = self.entries.get(self.root + name)
        if found is None:
            raise FileError(f"load: the archive lacks {name[:100]!r}")
        if found.flag_bits & 0x1 or found.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(f"load: {name[:100]!r} in the archive is encrypted, or compressed in a way that is not read")
        return found

    def offset(self, entry: zipfile.ZipInfo) -> int:
        """Where the bytes of an entry begin: behind its own header, whose length stands in it."""
        if not 0 <= entry.header_offset <= self.size - 30:
            raise FileError(f"load: {entry.filename[-100:]!r} in the archive has no header")
        self.file.seek(entry.header_offset)
        header = self.file.read(30)
        if len(header) != 30 or header[:4] != b"PK\x03\x04":
            raise FileError(f"load: {entry.filename[-100:]!r} in the archive has no header")
        name, extra = struct.unpack_from("<HH", header, 26)
        begin = entry.header_offset + 30 + name + extra
        if begin + entry.compress_size > self.size:
            raise FileError(f"load: the archive ends within {entry.filename[-100:]!r}")
        return begin

    def span(self, key: str) -> tuple[int, int, int]:
        """Where the bytes of a storage lie, how many they are, and their checksum (0: none that bytes in the file have)."""
        entry = self.entries.get(f"{self.root}data/{key}")
        if entry is None or entry.compress_type != zipfile.ZIP_STORED:
            return 0, 0, 0
        return self.offset(entry), entry.file_size, entry.CRC

    @contextlib.contextmanager
    def stream(self, name: str, most: int):
        """The bytes of an entry as a file, made piece by piece. They are checked when the block ends; where it ends with an
        exception, that they are damaged is the better answer."""
        entry = self.entry(name)
        if entry.file_size > most:
            raise FileError(f"load: {name[:100]!r} in the archive claims {entry.file_size} bytes: at most {most} are read")
        raw = _Entry(self.file, self.offset(entry), entry, name)
        try:
            yield io.BufferedReader(raw, _STEP)
        except Exception:
            raw.check()
            raise
        raw.check()

    def contents(self):
        """The stream of plain data. Few bytes of the file must not become many."""
        entry = self.entry("data.pkl")
        packed = None if entry.compress_type == zipfile.ZIP_STORED else entry.compress_size
        return self.stream("data.pkl", _MOST_CONTENTS if packed is None else min(_MOST_CONTENTS, _FREE + _SQUEEZED * packed)), packed


class _Entry(io.RawIOBase):
    """The bytes of an entry. Others may read the archive's file in between."""

    def __init__(self, file, begin: int, entry: zipfile.ZipInfo, name: str) -> None:
        self.file, self.at, self.left = file, begin, entry.compress_size
        self.inflate = zlib.decompressobj(-15) if entry.compress_type == zipfile.ZIP_DEFLATED else None
        self.entry, self.shown = entry, f"{name[:100]!r} in the archive"
        self.got = self.crc = 0

    def readable(self) -> bool:
        return True

    def _packed(self, n: int) -> bytes:
        self.file.seek(self.at)
        data = self.file.read(min(n, self.left))
        self.at += len(data)
        self.left -= len(data)
        return data

    def readinto(self, buffer) -> int:
        n = min(len(buffer), 1 << 20)
        if self.inflate is None:
            data = self._packed(n)
        else:
            data = b""
            while not data and n and not self.inflate.eof:
                packed = self.inflate.unconsumed_tail or self._packed(_STEP)
                data = self.inflate.decompress(packed, n)
                if not packed:
                    break
        buffer[:len(data)] = data
        self.got += len(data)
        self.crc = zlib.crc32(data, self.crc)
        if self.got > self.entry.file_size:
            raise self._wrong_size("more than")
        return len(data)

    def _wrong_size(self, have) -> FileError:
        return FileError(f"load: {self.shown} is damaged: it has {have} bytes of {self.entry.file_size}")

    def check(self) -> None:
        """Reads what is left, and compares size and checksum."""
        rest = memoryview(bytearray(_STEP))
        while self.readinto(rest):
            pass
        if self.got != self.entry.file_size:
            raise self._wrong_size(self.got)
        if self.entry.CRC and self.crc != self.entry.CRC:  # PyTorch writes 0 where it was told to compute none
            raise damaged(self.shown)


class _Storages:
    """Gives the storages of an archive, each once; which are damaged is known when all are read, and so are their tensors' names."""

    def __init__(self, archive: Archive, place, mapped: MappedSource | None, skip_data: bool) -> None:
        self.archive, self.place, self.mapped, self.skip_data = archive, place, mapped, skip_data
        self.loaded: dict[str, object] = {}
        self.checks = Checks({})

    def __call__(self, pid):
        kind, key, location, size = storage_id(pid, 1 << 62)[:4]
        key = str(key)
        if key not in self.loaded:
            self.loaded[key] = self.place(self._memory(f"data/{key}", size, kind.dtype), location)
        return wrap(self.loaded[key], kind)

    def _memory(self, name: str, size: int, dtype):
        archive = self.archive
        if size == 0 and archive.root + name not in archive.entries:
            return empty(0, dtype=uint8)
        entry = archive.entry(name)
        if entry.file_size != size:
            raise FileError(f"load: a storage claims {size} bytes, and {name[:100]!r} in the archive has {entry.file_size}")
        if entry.compress_type != zipfile.ZIP_STORED:
            if size > _MOST_INFLATION * max(entry.compress_size, 1):
                raise FileError(f"load: {name[:100]!r} in the archive claims {size} bytes in {entry.compress_size}")
            with archive.stream(name, size) as stream:
                memory = empty(size, dtype=uint8)
                if size:
                    stream.readinto(memoryview(memory).cast("B"))
        elif entry.compress_size != size:
            raise FileError(f"load: {name[:100]!r} in the archive is damaged: it has {entry.compress_size} bytes of {size}")
        elif self.skip_data:
            return empty(size, dtype=uint8)
        elif self.mapped is not None:
            memory = self.mapped.storage(archive.offset(entry), size, name, dtype.itemsize)
        else:
            memory = self._read(entry, name, size)
        return _swap(memory.clone() if self.mapped else memory, dtype) if archive.swapped else memory

    def _read(self, entry, name: str, size: int):
        archive = self.archive
        if entry.CRC:
            self.checks.expected[name] = entry.CRC
        archive.file.seek(archive.offset(entry))
        return Source(archive.file).storage(size, f"{name[:100]!r} in the archive", self.checks.of(name, size))


def _swap(memory, dtype):
    """Big-endian numbers become little-endian ones."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if width > 1 and memory.numel():
        numbers = memory.reshape(-1, width)
        numbers.copy_(numbers.flip(1))
    return memory


def name_of(value, memory, path: str = "", left=None) -> str | None:
    """The path of the first tensor over a storage in nested data."""
    from .. import Tensor

    left = [100_000] if left is None else left
    left[0] -= 1
    if left[0] < 0 or len(path) > 2000:
        return None
    if isinstance(value, Tensor):
        return path if value._storage_id() == memory._storage_id() else None
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, part in pairs:
        found = name_of(part, memory, f"{path}.{key}" if path else str(key), left)
        if found is not None:
            return found
    return None


def read(file, place, policy: Policy, mapped: MappedSource | None = None, skip_data: bool = False, encoding: str = "utf-8",
         errors: str = "strict", opened: list | None = None) -> object:
    """Reads an archive; `place(memory, location)` moves a storage of bytes to where it should be. `file` can be seeked."""
    archive = Archive(file)
    storages = _Storages(archive, place, mapped, skip_data)
    if opened is not None:
        opened.append(storages)
    stream, packed = archive.contents()
    try:
        with stream as contents:
            result = Reader(storages, place, policy, encoding, errors, packed=packed).read(contents)
    finally:
        wrong = storages.checks.wrong()
    for name in wrong:
        tensor = name_of(result, storages.loaded[name.removeprefix("data/")])
        raise damaged(f"the tensor {tensor!r} ({name} in the archive)" if tensor else f"{name!r} in the archive")
    file.seek(archive.size)
    return result


def refused_names(file, policy: Policy) -> list[str]:
    """The names in an archive's stream that reading it would refuse, sorted."""
    import pickletools

    reader, refused, texts = Reader(None, None, policy), set(), []
    with Archive(file).contents()[0] as stream:
        contents = stream.read()
    for operation, argument, _ in pickletools.genops(contents):
        if isinstance(argument, str) and "UNICODE" in operation.name:
            texts.append(argument)
        if operation.name in ("GLOBAL", "INST"):
            module, _, name = argument.partition(" ")
        elif operation.name == "STACK_GLOBAL" and len(texts) > 1:
            module, name = texts[-2:]
        else:
            continue
        module, name = modern_name(module, name)
        try:
            reader.find(module, name)
        except FileError:
            refused.add(f"{module}.{name}")
    return sorted(refused)
