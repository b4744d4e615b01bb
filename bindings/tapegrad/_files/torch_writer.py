"""Writing PyTorch's zip format, so that torch.load (also with weights_only=True) reads it. The stream of plain data in it is written
here, without Python's pickle: it names only what makes tensors and plain data.
"""

import copyreg
import datetime
import enum
import io
import struct
import zlib
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import PurePath
from types import SimpleNamespace

import numpy as np

from .. import Size, Tensor, uint8
from .. import device as device_type
from .. import dtype as dtype_type
from .. import layout as layout_type
from .._root.sparse import compressed_parts
from ..nn.parameter import Buffer, Parameter, is_lazy
from ..nn.recurrent import RNNBase
from ..storage import TypedStorage, UntypedStorage
from . import objects, steps
from .pieces import PARALLEL, Pieces, host_bytes
from .torch_names import NEW_DTYPES, STORAGES
from .tree import FACTORIES, enter

_ALIGN = 64
_STORAGE_OF = {**{dtype: f"ctorch\n{name}\n" for name, dtype in STORAGES.items() if name != "UntypedStorage"},
               **dict.fromkeys(NEW_DTYPES, "ctorch.storage\nUntypedStorage\n")}


def _integer(n: int) -> bytes:
    if 0 <= n < 256:
        return b"K%c" % n
    if 0 <= n < 65536:
        return b"M" + n.to_bytes(2, "little")
    if -1 << 31 <= n < 1 << 31:
        return b"J" + n.to_bytes(4, "little", signed=True)
    data = n.to_bytes((n.bit_length() >> 3) + 1, "little", signed=True)
    return b"\x8a%c%b" % (len(data), data) if len(data) < 256 else b"\x8b" + struct.pack("<i", len(data)) + data


def _text(s: str) -> bytes:
    data = s.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def _is_new(dtype) -> bool:
    return str(dtype).rpartition(".")[2] in NEW_DTYPES


def _numbers(values) -> bytes:
    """A tuple of whole numbers."""
    parts = b"".join([_integer(int(n)) for n in values])
    return parts + _TUPLES[len(values)] if len(values) <= 3 else b"(" + parts + b"t"


_TUPLES = (b")", b"\x85", b"\x86", b"\x87")
_EMPTY_ORDERED = b"ccollections\nOrderedDict\n)R"


class _Stream:
    """Writes a pickle of protocol 2. Objects that were written before are referred to, so that ties stay."""

    def __init__(self, pieces: Pieces) -> None:
        self.out = io.BytesIO()
        self.put = self.out.write
        self.pieces = pieces
        self.memo: dict[int, int] = {}
        self.keep: list = []
        self.open: set[int] = set()
        self.patches: list = []  # (number of the tensor, where its place goes, whether that is of its storage alone)
        self.kinds: dict = {}    # (dtype, device) -> what a reference to a storage of it says

    # Small things.
    def name(self, module: str, name: str) -> None:
        self.put(f"c{module}\n{name}\n".encode())

    def call(self, module: str, name: str, *args, path: str = "") -> None:
        self.name(module, name)
        self.values(args, path)
        self.put(b"R")

    def values(self, values, path: str) -> None:
        """A tuple."""
        if len(values) > 3:
            self.put(b"(")
        for k, value in enumerate(values):
            self.write(value, f"{path}.{k}" if path else str(k))
        self.put(_TUPLES[len(values)] if len(values) <= 3 else b"t")

    def remember(self, value) -> None:
        number = self.memo[id(value)] = len(self.memo)
        self.keep.append(value)
        self.put(b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number))

    def recall(self, value) -> bool:
        number = self.memo.get(id(value))
        if number is not None:
            self.put(b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number))
        return number is not None

    # Values.
    def write(self, value, path: str) -> None:
        kind = type(value)
        if value is None:
            self.put(b"N")
        elif kind is bool:
            self.put(b"\x88" if value else b"\x89")
        elif kind is int:
            self.put(_integer(value))
        elif kind is float:
            self.put(b"G" + struct.pack(">d", value))
        elif kind is str:
            self.put(_text(value))
        elif kind is bytes:
            self.call("_codecs", "encode", value.decode("latin1"), "latin1")
        elif kind is bytearray:
            self.name("__builtin__", "bytearray")
            self.put(b"(")
            self.write(bytes(value), path)
            self.put(b"tR")
        elif kind is complex:
            self.call("__builtin__", "complex", value.real, value.imag)
        elif isinstance(value, dtype_type):
            self.name("torch", str(value).rpartition(".")[2])
        elif isinstance(value, device_type):
            self.call("torch", "device", *((value.type,) if value.index is None else (value.type, value.index)))
        elif not self.recall(value):
            self.larger(value, kind, path)

    def larger(self, value, kind, path: str) -> None:
        if isinstance(value, Tensor):
            self.tensor(value, path)
            self.remember(value)
        elif isinstance(value, (np.ndarray, np.generic)) and type(value) is not np.matrix:
            self.numpy(value, path)
        elif isinstance(value, np.dtype) and not value.hasobject and not value.names:
            self.numpy_dtype(value)
        elif isinstance(value, (TypedStorage, UntypedStorage)):
            self.storage(value, path)
        else:
            enter(self.open, value, path)
            try:
                self.container(value, kind, path)
            finally:
                self.open.discard(id(value))

    def container(self, value, kind, path: str) -> None:
        if isinstance(value, Size):
            self.name("torch", "Size")
            self.put(b"(")
            self.put(_numbers(value))
            self.put(b"tR")
        elif kind is tuple:
            self.values(value, path)
        elif kind is list:
            self.put(b"]")
            self.remember(value)
            self.items(value, path)
        elif kind is dict:
            self.put(b"}")
            self.remember(value)
            self.pairs(value, path)
        elif kind is OrderedDict:
            self.call("collections", "OrderedDict")
            self.remember(value)
            self.pairs(value, path)
            if vars(value):
                self.write(dict(vars(value)), path)
                self.put(b"b")
        elif kind in (set, frozenset):
            self.call("__builtin__", kind.__name__, sorted(value, key=repr), path=path)
        elif kind is Counter:
            self.call("collections", "Counter", dict(value), path=path)
        else:
            self.rarer(value, kind, path)

    def rarer(self, value, kind, path: str) -> None:
        if kind is defaultdict:
            factory = value.default_factory
            if factory is not None and FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
                raise TypeError(f"save: cannot save a defaultdict whose factory is {factory!r}{f' at {path!r}' if path else ''}\n"
                                f"factories that are kept: {', '.join(FACTORIES)}; save dict(x) instead")
            self.name("collections", "defaultdict")
            if factory is not None:
                self.name("__builtin__", factory.__name__)
            self.put(b")R" if factory is None else b"\x85R")
            self.pairs(value, path)
        elif kind is deque:
            self.call("collections", "deque", list(value), value.maxlen, path=path)
        elif kind in (Namespace, SimpleNamespace):
            self.name("argparse" if kind is Namespace else "types", kind.__name__)
            self.put(b")R")
            self.remember(value)
            self.write(dict(vars(value)), path)
            self.put(b"b")
        elif kind in (slice, range):
            self.call("__builtin__", "slice" if kind is slice else "xrange", value.start, value.stop, value.step)
        elif isinstance(value, PurePath):
            self.call("pathlib", type(value).__name__, *value.parts)
        elif kind in (datetime.datetime, datetime.date, datetime.timedelta):
            self.call("datetime", kind.__name__, *_moment(value))
        elif objects.function_named(value) is not None:
            place, _, name = objects.function_named(value).rpartition(".")
            self.name(f"torch.{place}" if place else "torch", name)
        elif (named := objects.class_named(value)) is not None:
            self.name("torch.nn" if named[0].startswith("tapegrad.nn") else named[0], named[1])
        elif isinstance(value, layout_type):
            self.layout(value)
        elif (named := objects.global_named(value)) is not None:
            self.global_name(*named)
        elif (parts := objects.reduced(value, path)) is not None:
            self.reduced(value, parts, path)
        else:
            (module, name), state = objects.take_apart(value, path)
            if module.startswith("tapegrad.nn"):  # PyTorch has the same layers
                if isinstance(value, RNNBase):  # which wants the parameters in a list, too
                    state = {**state, "_flat_weights": value._flat_weights}
                module = "torch.nn.modules.linear" if name == "NonDynamicallyQuantizableLinear" else "torch.nn"
            if isinstance(value, enum.Enum):
                self.name(module, name)
                self.values((state,), path)
                self.put(b"R")
                return
            self.name(module, name)
            self.put(b")\x81")
            self.remember(value)
            self.write(state, path)
            self.put(b"b")

    def layout(self, layout) -> None:
        self.call("torch.serialization", "_get_layout", f"torch.{str(layout).rpartition('.')[2]}")

    def global_name(self, module: str, name: str) -> None:
        """Of a function, by PyTorch's name where it is of this library."""
        top, dot, rest = module.partition(".")
        self.name(f"torch{dot}{rest}" if top == "tapegrad" else module, name)

    def reduced(self, value, parts, path: str) -> None:
        """An object of the program's own, as pickle writes it."""
        function, args, state, elements, pairs = parts
        if function is copyreg.__newobj__:
            self.write(args[0], path)
            self.values(args[1:], path)
            self.put(b"\x81")
        else:
            self.global_name(*objects.global_named(function))
            self.values(args, path)
            self.put(b"R")
        self.remember(value)
        self.items(list(elements or ()), path)
        self.pairs(dict(pairs or ()), path)
        if state is not None:
            self.write(state, path)
            self.put(b"b")

    def items(self, values, path: str) -> None:
        if values:
            self.put(b"(")
            for k, value in enumerate(values):
                self.write(value, f"{path}.{k}" if path else str(k))
            self.put(b"e")

    def pairs(self, mapping, path: str) -> None:
        if mapping:
            self.put(b"(")
            for key, value in mapping.items():
                self.write(key, path)
                self.write(value, f"{path}.{key}" if path else str(key))
            self.put(b"u")

    # Tensors.
    def tensor(self, t, path: str) -> None:
        if is_lazy(t):
            self.call("torch.nn.parameter", type(t).__name__, t.requires_grad, path=path)
            return
        attributes = dict(getattr(t, "__dict__", None) or ())
        if not attributes and type(t) is Tensor:
            self.data(t, path, t.requires_grad and t.is_leaf)
        elif isinstance(t, Parameter):
            self.name("torch._utils", "_rebuild_parameter_with_state" if attributes else "_rebuild_parameter")
            self.put(b"(")
            self.data(t.detach(), path, False)
            self.put((b"\x88" if t.requires_grad else b"\x89") + _EMPTY_ORDERED)
            if attributes:
                self.write(attributes, path)
            self.put(b"tR")
        elif attributes or isinstance(t, Buffer):
            function, inner, args = self.parts(t)
            self.name("torch._tensor", "_rebuild_from_type_v2")
            self.put(b"(")
            self.name("torch._utils", function)
            self.name("torch", "Tensor")
            if isinstance(t, Buffer):  # PyTorch's mark
                attributes["_is_buffer"] = True
            inner(t.detach(), path, args)
            self.write(attributes, path)
            self.put(b"tR")
        else:
            self.data(t, path, t.requires_grad and t.is_leaf)

    def parts(self, t):
        wanted = t.requires_grad and t.is_leaf
        if t._is_any_sparse:
            return "_rebuild_sparse_tensor", self.sparse, wanted
        if t.is_meta:
            return "_rebuild_meta_tensor_no_storage", self.meta, wanted
        return "_rebuild_tensor_v3" if _is_new(t.dtype) else "_rebuild_tensor_v2", self.dense, wanted

    def data(self, t, path: str, requires_grad: bool) -> None:
        function, arguments, _ = self.parts(t)
        self.name("torch._utils", function)
        arguments(t, path, requires_grad)
        self.put(b"R")

    def sparse(self, t, path: str, requires_grad: bool) -> None:
        self.layout(t.layout)
        self.put(b"(")
        parts = [t._indices(), t._values()] if t.is_sparse else compressed_parts(t)[1:]
        for at, part in enumerate(parts):
            self.data(part.detach(), f"{path}.{'values' if part is parts[-1] else f'indices{at}'}", False)
        self.write(Size(t.shape), path)
        if t.is_sparse:
            self.write(bool(t.is_coalesced()), path)
        self.put(b"t\x86")

    def meta(self, t, path: str, requires_grad: bool) -> None:
        self.values((t.dtype, tuple(t.shape), tuple(t.stride()), requires_grad), path)

    def dense(self, t, path: str, requires_grad: bool) -> None:
        """The arguments of _rebuild_tensor_v2, or of _v3, which takes the dtype, too. Where the tensor lies is known when all tensors are: the bytes are put in then."""
        self.keep.append(t)
        number = self.pieces.add(t, path)
        self.put(b"(")
        self.patches.append((number, self.out.tell(), False))
        self.put((b"\x88" if requires_grad else b"\x89") + _EMPTY_ORDERED)
        if _is_new(t.dtype):
            self.write(t.dtype, path)
        self.put(b"t")

    def place(self, t, key: str, piece, view) -> bytes:
        """storage, offset, shape and strides; without a view the storage alone."""
        before = self.kinds.get((t.dtype, t.device))
        if before is None:
            kind, device = _STORAGE_OF[str(t.dtype).rpartition(".")[2]], t.device
            where = "cpu" if device.type == "cpu" else f"{device.type}:{device.index or 0}"
            before = self.kinds[t.dtype, device] = (b"(" + _text("storage") + kind.encode(), _text(where))
        count = piece.source.numel() * piece.source.element_size() // (1 if _is_new(t.dtype) else t.element_size())
        storage = (before[0], _text(key), before[1], _integer(count), b"tQ")
        if view is None:
            return b"".join(storage)
        shape, stride, offset = view
        return b"".join((*storage, _integer(offset), _numbers(shape), _numbers(stride)))

    def storage(self, value, path: str) -> None:
        """The memory itself, by a tensor over all of it."""
        if isinstance(value, TypedStorage) and _is_new(value.dtype):
            raise TypeError(f"save: cannot save a storage of {value.dtype} at {path!r}: PyTorch's format has no name for it\nsave the tensor that looks into it")
        over = value._as_elements(uint8 if isinstance(value, UntypedStorage) else None)
        self.keep.append(over)
        self.patches.append((self.pieces.add(over, path), self.out.tell(), True))

    # NumPy.
    def numpy_dtype(self, kind) -> None:
        _, args, state = kind.__reduce__()
        self.call("numpy", "dtype", *args)
        self.put(b"(")
        for part in state:
            self.write(part, "")
        self.put(b"tb")

    def numpy(self, value, path: str) -> None:
        if value.dtype.hasobject or value.dtype.kind not in "biufcSUmM":
            raise TypeError(f"save: cannot save a NumPy array of dtype {value.dtype} at {path!r}: files hold numbers and texts only")
        if isinstance(value, np.generic):
            self.name("numpy.core.multiarray", "scalar")
            self.numpy_dtype(value.dtype)
            self.write(value.tobytes(), path)
            self.put(b"\x86R")
            return
        self.name("numpy.core.multiarray", "_reconstruct")
        self.name("numpy", "ndarray")
        self.put(_numbers((0,)))
        self.write(b"b", path)
        self.put(b"\x87R")
        self.remember(value)
        self.put(b"(K\x01")
        self.put(_numbers(value.shape))
        self.numpy_dtype(value.dtype)
        self.write(False, path)
        self.write(np.ascontiguousarray(value).tobytes(), path)
        self.put(b"tb")


def _moment(value) -> tuple:
    if isinstance(value, datetime.timedelta):
        return value.days, value.seconds, value.microseconds
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise TypeError("save: cannot save a time with a time zone in PyTorch's format: save its isoformat()")
        return value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    return value.year, value.month, value.day


# The archive.
class _Hole:
    """Zeros in place of data that are not written."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def write(self, file) -> None:
        left = self.size
        while left:
            part = min(left, 1 << 20)
            file.write(bytes(part))
            left -= part


class _Zip:
    """Entries without compression, their bytes at multiples of 64, as PyTorch wants them for mapping into memory."""

    def __init__(self, file, root: str) -> None:
        self.file, self.root = file, root.encode()
        self.at = 0
        self.entries: list[tuple] = []  # name, size, crc, where its header begins

    def _header(self, name: bytes, size: int, crc: int, at: int) -> bytes:
        large = size >= 0xFFFFFFFF
        extra = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
        pad = -(at + 30 + len(name) + len(extra) + 4) % _ALIGN
        extra += b"FB" + struct.pack("<H", pad) + b"Z" * pad
        shown = 0xFFFFFFFF if large else size
        return struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 45 if large else 20, 0x800, 0, 0, 0x21, crc, shown, shown, len(name),
                           len(extra)) + name + extra

    def add(self, name: str, content, crc: int | None) -> None:
        """crc None: it is computed later, and `finish` puts it in."""
        name = self.root + b"/" + name.encode()
        head = self._header(name, len(content), crc or 0, self.at)
        self.entries.append([name, len(content), crc, self.at])
        self.file.write(head)
        if isinstance(content, _Hole):
            content.write(self.file)
        else:
            steps.write(self.file, content)
        self.at += len(head) + len(content)

    def finish(self) -> None:
        """The table of contents at the end."""
        table = io.BytesIO()
        for name, size, crc, at in self.entries:
            extra = b""
            if size >= 0xFFFFFFFF or at >= 0xFFFFFFFF:
                extra = struct.pack("<HHQQQ", 1, 24, size, size, at)
                size = at = 0xFFFFFFFF
            table.write(struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 45 if extra else 20, 45 if extra else 20, 0x800, 0, 0, 0x21, crc, size,
                                    size, len(name), len(extra), 0, 0, 0, 0, at) + name + extra)
        data, count, at = table.getvalue(), len(self.entries), self.at
        if at >= 0xFFFFFFFF or count >= 0xFFFF:
            data += struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(table.getvalue()), at)
            data += struct.pack("<4sIQI", b"PK\x06\x07", 0, at + len(table.getvalue()), 1)
        self.file.write(data + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF),
                                           min(len(table.getvalue()), 0xFFFFFFFF), min(at, 0xFFFFFFFF), 0))


def write(obj, file, root: str = "archive", owned: bool = False, skip_data: bool = False) -> None:
    """Writes an object to a binary file. `owned`: the file is new, empty and seekable, and no other writer has it open."""
    stream = _Stream(Pieces(flat=True))
    stream.put(b"\x80\x02")
    stream.write(obj, "")
    stream.put(b".")
    places, contents, keep, alone = {}, {}, [], {number for number, _, alone in stream.patches if alone}
    for key, piece in enumerate(stream.pieces.pieces()):
        kept, content = host_bytes(piece.source)
        keep.append(kept)
        contents[f"data/{key}"] = content
        if len(piece.views) > 1 and len({stream.pieces.tensors[n][0].dtype for n in piece.views}) > 1:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types: "
                               + ", ".join(repr(stream.pieces.tensors[n][1]) for n in piece.views))
        for number, view in piece.views.items():
            places[number] = stream.place(stream.pieces.tensors[number][0], str(key), piece, None if number in alone else view)
    raw, parts, at = stream.out.getvalue(), [], 0
    for number, position, _ in stream.patches:
        parts += [raw[at:position], places[number]]
        at = position
    pickled = b"".join([*parts, raw[at:]])
    archive = _Zip(file, root)
    for name, content in (("data.pkl", pickled), ("byteorder", b"little"), ("version", b"3\n")):
        archive.add(name, content, zlib.crc32(content))
    if skip_data:
        for name, content in contents.items():
            archive.add(name, _Hole(len(content)), 0)
        archive.finish()
        return

    if not owned or sum(map(len, contents.values())) < PARALLEL:
        for name, content in contents.items():
            archive.add(name, content, steps.checksum(content))
        archive.finish()
        return
    with steps.Checksums(contents) as checks:
        for name, content in contents.items():
            archive.add(name, content, None)
    for entry in archive.entries[3:]:
        entry[2] = checks[entry[0].decode().partition("/")[2]]
        file.seek(entry[3] + 14)  # the checksum's place in the header
        file.write(struct.pack("<I", entry[2]))
    file.seek(0, 2)
    archive.finish()
