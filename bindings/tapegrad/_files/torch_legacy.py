"""Reading PyTorch's older files: a row of pickle streams and raw storages (before 1.6), and tar archives (before 0.1.10)."""

import io
import os
import struct
import tarfile

from .. import empty, uint8
from .errors import FileError
from .objects import Policy
from .source import Source, read_exactly
from .torch_archive import _swap
from .torch_names import Reader, StorageKind, storage_id, text, wrap

MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


class _Memories:
    """The storages that a stream refers to, made before their bytes are read."""

    def __init__(self, place, most: int) -> None:
        self.place, self.most, self.left = place, most, most
        self.own: dict = {}     # key -> memory
        self.kinds: dict = {}   # key -> (kind, location)
        self.placed: dict = {}  # key -> moved memory, in the second pass

    def __call__(self, pid):
        if isinstance(pid, tuple) and pid and text(pid[0]) == "module":
            return pid[1]
        kind, key, location, size, *rest = storage_id(pid, self.most)
        if key not in self.own:
            if size > self.left:
                raise FileError(f"load: the file claims a storage of {size} bytes and has {self.left}")
            self.left -= size
            self.own[key] = empty(size, dtype=uint8)
            self.kinds[key] = (kind, location)
        memory = self.placed.get(key, self.own[key])
        if rest and rest[0] is not None:  # a storage that is a part of another
            _, offset, count = rest[0]
            width = kind.dtype.itemsize
            if not (type(offset) is int and type(count) is int and 0 <= offset <= offset + count <= memory.numel() // width):
                raise FileError("load: a storage is a part of another that is not there")
            memory = _part(memory, offset * width, count * width)
        return wrap(memory, kind)

    def place_all(self) -> None:
        self.placed = {key: self.place(self.own[key], self.kinds[key][1]) for key in self.own}


def _part(memory, begin: int, size: int):
    from .. import frombuffer

    if not size:
        return empty(0, dtype=uint8)
    return frombuffer(memoryview(memory).cast("B")[begin:begin + size], dtype=uint8)


def _simple(file, policy: Policy):
    """The next stream, which refers to no storages."""
    def no_storage(pid):
        raise FileError("load: the file refers to a storage before there are any")

    return Reader(no_storage, None, policy).read(file)


def _fill(memory, file, what: str) -> None:
    size = memory.numel()
    source = Source(file)
    if size:
        memory.copy_(source.storage(size, what))


def read(file, place, policy: Policy, skip_data: bool = False, encoding: str = "utf-8", errors: str = "strict") -> object:
    """Reads a row of streams. `file` can be seeked and stands at the first byte."""
    size = _remaining(file)
    magic = _simple(file, policy)
    if magic != MAGIC:
        raise FileError("load: this is a bare pickle, which could run code and is not read: PyTorch's files begin with a number "
                        "that is not there\nload it with Python's pickle if you trust it, and save its tensors and plain data")
    if _simple(file, policy) != _PROTOCOL:
        raise FileError("load: the file has another protocol version than 1001")
    system = _simple(file, policy)
    swapped = isinstance(system, dict) and system.get("little_endian") is False
    begin = file.tell()
    memories = _Memories(place, size)
    Reader(memories, place, policy, encoding, errors, dry=True).read(file)  # which storages there are; their bytes come behind
    keys = _simple(file, policy)
    if not isinstance(keys, list) or len(keys) > len(memories.own):
        raise FileError("load: the list of storages is damaged")
    for key in keys:
        key = text(key) if isinstance(key, bytes) else key
        if not isinstance(key, (str, int)) or key not in memories.own:
            raise FileError("load: the file has a storage to which nothing refers")
        kind = memories.kinds[key][0]
        _read_storage(file, memories.own[key], kind, f"the storage {str(key)[:100]!r}", skip_data)
        if swapped:
            _swap(memories.own[key], kind.dtype)
    end = file.tell()
    memories.place_all()
    file.seek(begin)
    result = Reader(memories, place, policy, encoding, errors).read(file)
    file.seek(end)
    return result


def _remaining(file) -> int:
    at = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(at)
    return end - at


def _read_storage(file, memory, kind: StorageKind, what: str, skip_data: bool = False) -> None:
    (count,) = struct.unpack("<q", read_exactly(file, 8, what))
    if count * kind.dtype.itemsize != memory.numel():
        raise FileError(f"load: {what} has {count} elements, and {memory.numel() // kind.dtype.itemsize} are expected")
    if skip_data:
        file.seek(memory.numel(), os.SEEK_CUR)
    else:
        _fill(memory, file, what)


# Tar archives.
def is_tar(file) -> bool:
    """Whether the file, which can be seeked, is a tar archive with the three entries that PyTorch wrote."""
    at = file.tell()
    file.seek(at + 257)
    found = file.read(5) == b"ustar"
    file.seek(at)
    return found


def _entries(file) -> dict[str, io.BytesIO]:
    """The three entries. Only their sizes and bytes are looked at: nothing is unpacked to the disk."""
    wanted, left = {}, _remaining(file)
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for _ in range(16):
                member = tar.next()
                if member is None:
                    break
                name = member.name.removeprefix("./")
                if name in ("storages", "tensors", "pickle") and member.isreg() and not member.issparse() and member.size <= left:
                    wanted[name] = io.BytesIO(tar.extractfile(member).read())
    except (tarfile.TarError, ValueError, OverflowError, EOFError, LookupError) as error:
        raise FileError(f"load: the tar archive is damaged: {str(error)[:100]}") from None
    if len(wanted) != 3:
        raise FileError("load: this tar archive is not one that PyTorch's save wrote")
    return wanted


def _count(value) -> int:
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise FileError("load: the tar archive is damaged: a count is no number")
    return value


def read_tar(file, place, policy: Policy, encoding: str = "utf-8", errors: str = "strict") -> object:
    """Reads a tar archive."""
    entries = _entries(file)
    storages, tensors = entries["storages"], entries["tensors"]
    known: dict = {}
    for _ in range(_count(_simple(storages, policy))):
        key, location, kind = _simple(storages, policy)
        if not isinstance(kind, StorageKind):
            raise FileError("load: the tar archive is damaged: a storage has no dtype")
        (count,) = struct.unpack("<q", read_exactly(storages, 8, "a storage"))
        if not 0 <= count * kind.dtype.itemsize <= _remaining(storages):
            raise FileError(f"load: a storage claims {count} elements, which are not there")
        memory = empty(count * kind.dtype.itemsize, dtype=uint8)
        _fill(memory, storages, "a storage")
        known[key] = (place(memory, text(location)), kind)
    for key, root, offset, count in _simple(storages, policy):
        memory, kind = known[root]
        width = kind.dtype.itemsize
        if not 0 <= offset <= offset + count <= memory.numel() // width:
            raise FileError("load: a storage is a part of another that is not there")
        known[key] = (_part(memory, offset * width, count * width), kind)
    from .container_reader import over

    found: dict = {}
    for _ in range(_count(_simple(tensors, policy))):
        key, storage, _ = _simple(tensors, policy)
        (dims,) = struct.unpack("<i4x", read_exactly(tensors, 8, "a tensor"))
        if not 0 <= dims <= 64:
            raise FileError(f"load: a tensor has {dims} dimensions")
        numbers = struct.unpack(f"<{2 * dims + 1}q", read_exactly(tensors, 8 * (2 * dims + 1), "a tensor"))
        memory, kind = known[storage]
        found[key] = over(memory, kind.dtype, numbers[:dims], numbers[dims:2 * dims], numbers[-1])

    def persistent_load(pid):
        if isinstance(pid, tuple):
            return pid[1] if pid and text(pid[0]) == "module" else pid[0]
        key = int(pid)
        if key in found:
            return found[key]
        return wrap(*known[key])

    return Reader(persistent_load, place, policy, encoding, errors).read(entries["pickle"])
