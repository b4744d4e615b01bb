"""Reading safetensors files and tapegrad's own, whole, mapped into memory or tensor by tensor."""

import json
import math
import struct
import zlib

import tapegrad

from .. import _C, Tensor, empty, empty_strided, no_grad
from ..storage import TypedStorage, UntypedStorage
from .container import DTYPES, MOST_HEADER, VERSION, table_checksum
from .errors import FileError, UnknownFormat, damaged
from .objects import check_attribute, dtype_named, numpy_dtype
from .source import Checks
from .steps import checksum
from .tree import Decoder

MOST_REPEATED = 1 << 32  # elements of a tensor that shows the same memory several times


def described(t: Tensor, data: dict, decode):
    """Restores the kind of the tensor that `container._describe` recorded: a parameter, a buffer, with a gradient, with attributes."""
    wanted = bool(data.get("requires_grad"))
    if data.get("parameter"):
        from ..nn.parameter import Parameter

        t = Parameter(t, requires_grad=wanted)
    elif "buffer" in data:
        from ..nn.parameter import Buffer

        t = Buffer(t, persistent=bool(data["buffer"]))
    elif wanted:
        t.requires_grad_()
    for key, attribute in data.get("attributes", ()):
        check_attribute(key)
        t.__dict__[key] = decode(attribute)
    return t


class Header:
    """What stands before the tensors. `entries`: name -> (code, shape, begin, end), in the order of the file's bytes."""

    def __init__(self, length: int, table: dict, entries: dict, metadata: dict) -> None:
        self.data_at = 8 + length
        self.metadata = metadata
        self.names = list(table)
        self.entries = entries
        self.own = _own(metadata, table)
        at = 0
        for name, (_, _, begin, end) in self.entries.items():
            if begin != at or end < begin:
                raise FileError(f"load: the tensor {name[:200]!r} does not lie where the one before it ends")
            at = end
        self.data_bytes = at
        self.checks: dict = self.own.get("crc32", {}) if self.own else {}


def _checked_entries(table) -> dict[str, tuple]:
    """The table of a header, whose values may be anything, in the order of the file's bytes."""
    entries, at, in_order = {}, 0, True
    for name, entry in table.items():
        if type(entry) is not dict:
            raise ValueError(f"{name[:100]!r} is not described")
        code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if type(code) is not str or type(shape) is not list or len(shape) > 64:
            raise ValueError(f"{name[:100]!r} has no dtype and shape")
        if type(offsets) is not list or len(offsets) != 2:
            raise ValueError(f"{name[:100]!r} has no place")
        for n in shape:
            if type(n) is not int or not 0 <= n < 9223372036854775808:
                raise ValueError(f"{name[:100]!r} has no dtype and shape")
        begin, end = offsets
        if type(begin) is not int or type(end) is not int or not (0 <= begin < 9223372036854775808 and 0 <= end < 9223372036854775808):
            raise ValueError(f"{name[:100]!r} has no place")
        in_order = in_order and begin == at
        at = end
        entries[name] = (code, shape, begin, end)
    return entries if in_order else dict(sorted(entries.items(), key=lambda item: item[1][2:]))


def _own(metadata: dict, table: dict) -> dict | None:
    """tapegrad's part of the header, checked."""
    text = metadata.get("tapegrad")
    if text is None and "tapegrad_crc32" not in metadata:
        return None
    if text is None or f"{zlib.crc32(text.encode(errors='replace')):010}" != metadata.get("tapegrad_crc32"):
        raise damaged("the header")
    own = json.loads(text, object_pairs_hook=_each_once)
    if not isinstance(own, dict) or own.get("version") != VERSION:
        raise FileError(f"load: the file has version {own.get('version') if isinstance(own, dict) else None}, and this program "
                        f"reads version {VERSION}")
    if own["table_crc32"] != table_checksum(table):
        raise damaged("the table of tensors")
    if not isinstance(own["places"], list) or not isinstance(own["crc32"], dict):
        raise FileError("load: the header has no places of tensors")
    return own


def _each_once(pairs: list) -> dict:
    """A JSON object. Readers disagree on which of two equal names counts."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{twice[:100]!r} is there twice")
    return result


def read_header(read, start: bytes) -> Header:
    """`read(n, what)` gives bytes; `start`: the first eight."""
    (length,) = struct.unpack("<Q", start)
    if length < 2 or length > MOST_HEADER:
        raise UnknownFormat("load: this is neither a safetensors file nor a file of PyTorch"
                            if length > 1 << 40 or length < 2 else f"load: the header claims {length} bytes: at most {MOST_HEADER} are read")
    text = bytes(read(length, "the header"))
    if text[:1] != b"{":
        raise UnknownFormat("load: this is neither a safetensors file nor a file of PyTorch")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_each_once)
        metadata = header.pop("__metadata__", None) or {}
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise ValueError("the metadata are not texts")
        entries = _checked_entries(header)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnknownFormat("load: the header is damaged, or this is neither a safetensors file nor a file of PyTorch\n"
                            f"{type(error).__name__}: {str(error)[:200]}") from None
    return Header(length, header, entries, metadata)


def _form(name: str, entry: tuple):
    """dtype and shape of a tensor, checked against its bytes."""
    code, shape, begin, end = entry
    dtype = DTYPES.get(code)
    if dtype is None:
        raise FileError(f"load: the tensor {name[:200]!r} has the dtype {code}, which does not exist here\n"
                        "the other tensors can be read with tapegrad.serialization.open_file(path).load([names])")
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise FileError(f"load: the tensor {name[:200]!r} has the shape {shape} and {end - begin} bytes")
    return dtype, shape


def over(memory, dtype, shape, stride=None, offset: int = 0):
    """A tensor over a storage of bytes; refuses what reaches out of it or repeats it without measure."""
    if stride is None:
        if 0 in shape:
            return empty(shape, dtype=dtype, device=memory.device)
        return _C._tensor_over(memory, dtype, tuple(shape), _dense(shape), offset)
    if any(s < 0 for s in stride) or len(shape) > 64:
        raise FileError("load: a tensor has strides that do not exist")
    count = math.prod(shape)
    if count > MOST_REPEATED and count * dtype.itemsize > memory.numel():
        raise FileError(f"load: a tensor claims {count} elements in a memory of {memory.numel()} bytes")
    if count == 0:
        return empty(tuple(shape), dtype=dtype, device=memory.device)
    return _C._tensor_over(memory, dtype, tuple(shape), tuple(stride), offset)


def _dense(shape) -> tuple:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def read_memories(header: Header, source, skip_data: bool = False) -> dict:
    """name -> storage of bytes, for a file that is read from here to its end."""
    left = source.remaining()
    if left is not None and left < header.data_bytes:
        name = next(n for n, e in header.entries.items() if e[3] > left)
        raise FileError(f"load: the file ends within the tensor {name[:200]!r}: {left} of {header.data_bytes} bytes are there")
    checks, memories = Checks({} if skip_data else header.checks), {}
    try:
        for name, entry in header.entries.items():
            _form(name, entry)
            size = entry[3] - entry[2]
            if skip_data and left is not None:
                memories[name] = tapegrad.empty(size, dtype=tapegrad.uint8)
            else:
                memories[name] = source.storage(size, f"the tensor {name[:200]!r}", checks.of(name, size))
    finally:
        wrong = checks.wrong()
    for name in wrong:
        raise damaged(f"the tensor {name[:200]!r}")
    if skip_data and left is not None:
        source.file.seek(header.data_bytes, 1)
    return memories


class Mapped:
    """name -> storage of bytes over a file in memory."""

    def __init__(self, header: Header, source) -> None:
        self.header, self.source = header, source
        self.odd = {p.get("in") for p in (header.own or {}).get("places", ()) if isinstance(p, dict) and "dtype" in p}

    def __getitem__(self, name: str):
        _, _, begin, end = entry = self.header.entries[name]
        dtype, _ = _form(name, entry)
        align = 8 if name in self.odd else dtype.itemsize
        return self.source.storage(self.source.begin + self.header.data_at + begin, end - begin, f"the tensor {name[:200]!r}", align)

    def check(self, name: str, shown: str) -> None:
        """Compares the checksum of one piece, where the file has one; an error shows the tensor's name."""
        if name in self.header.checks:
            _, _, begin, end = self.header.entries[name]
            part = self.source.view(self.source.begin + self.header.data_at + begin, end - begin, f"the tensor {shown!r}")
            if checksum(part) != self.header.checks[name]:
                raise damaged(f"the tensor {shown[:200]!r}")


def check_end(header: Header, more: bool) -> None:
    """A plain file ends with its last tensor: the format says so, and other readers refuse it otherwise. One of tapegrad's may be
    followed by another in the same stream."""
    if header.own is None and more:
        raise FileError("load: the file goes on behind its last tensor, as no safetensors file does: "
                        f"that ends at byte {header.data_at + header.data_bytes}")


def read_plain(header: Header, memories, place) -> dict:
    """A file written by another program: a dictionary of tensors, in the order of its header."""
    result = {}
    for name in header.names:
        dtype, shape = _form(name, header.entries[name])
        result[name] = over(place(memories[name], "cpu"), dtype, shape)
    return result


class TreeReader(Decoder):
    """Makes the values of references, each once."""

    def __init__(self, header: Header, memories, place, objects=None) -> None:
        super().__init__(objects)
        self.header, self.memories, self.place = header, memories, place
        self.places = header.own["places"]
        self.moved: dict = {}
        self.made: dict = {}

    def load(self):
        return self.decode(self.header.own["tree"])

    def _memory(self, name: str, device: str):
        key = (name, device)
        if key not in self.moved:
            self.moved[key] = self.place(self.memories[name], device)
        return self.moved[key]

    def _dense(self, number: int, device: str):
        place = self.places[number]
        name = place["in"]
        dtype, shape = _form(name, self.header.entries[name])
        memory = self._memory(name, device)
        if "dtype" in place:
            complex_of = dtype
            dtype = dtype_named(place["dtype"])
            if dtype.is_complex and not complex_of.is_complex and "shape" not in place:
                shape = shape[:-1]
        if "shape" in place:
            return over(memory, dtype, place["shape"], place["stride"], place["offset"])
        t = over(memory, dtype, shape)
        if "order" in place and t.numel():
            laid = empty_strided(tuple(shape), tuple(place["order"]), dtype=dtype, device=t.device)
            if laid.untyped_storage().nbytes() != laid.numel() * laid.element_size():
                raise FileError(f"load: the tensor {name[:200]!r} has strides that do not exist")
            return laid.copy_(t)
        return t

    def read_tensor(self, value, data) -> Tensor:
        if value not in self.made:
            self.made[value] = self._finish(self._dense(value, data.get("device", "cpu")), data)
        return self.made[value]

    def _finish(self, t, data: dict):
        return described(t, data, self.decode)

    def read_uninitialized(self, value, data):
        from ..nn.parameter import UninitializedBuffer, UninitializedParameter

        parameter, wanted, dtype = value
        return (UninitializedParameter if parameter else UninitializedBuffer)(bool(wanted), dtype=dtype_named(dtype))

    def read_meta(self, value, data):
        dtype, shape, stride = value
        return self._finish(empty_strided(tuple(shape), tuple(stride), dtype=dtype_named(dtype), device="meta"), data)

    def read_sparse(self, value, data):
        indices, values, shape, coalesced, *layout = value
        device = data.get("device", "cpu")
        if len(layout) == 2:  # blocks and batches, with where their entries begin
            return checked_compressed(*(self._dense(part, device) for part in (layout[1], indices, values)), shape, layout[0])
        return checked_sparse(self._dense(indices, device), self._dense(values, device), shape, bool(coalesced), *layout)

    def read_storage(self, value, data):
        memory = UntypedStorage._over(_C._storage_bytes(self._dense(value, data.get("device", "cpu"))))
        return memory if data["dtype"] is None else TypedStorage(memory, dtype_named(data["dtype"]))

    def read_array(self, value, data):
        with no_grad():
            a = self._dense(value, "cpu").numpy()
        if "dtype" not in data:
            return a
        return array_over(a, data["dtype"], data["shape"])


def array_over(raw, dtype: str, shape):
    """A NumPy array of a dtype that only NumPy has over its bytes."""
    kind = numpy_dtype(dtype)
    return raw.reshape(-1).view("u1").view(kind).reshape(shape)


def checked_compressed(starts, others, values, shape, layout: str):
    if layout not in ("csr", "csc", "bsr", "bsc"):
        raise FileError(f"load: a sparse tensor has the unknown layout {str(layout)[:50]!r}")
    try:
        return tapegrad.sparse_compressed_tensor(starts, others, values, tuple(shape), layout=getattr(tapegrad, f"sparse_{layout}"))
    except RuntimeError as error:
        raise FileError(f"load: the parts of a sparse tensor do not go together: {error}") from error


def checked_sparse(indices, values, shape, coalesced: bool, layout: str = "coo"):
    """A sparse tensor whose indices are within its shape; layout "csr" or "csc": compressed."""
    if layout not in ("coo", "csr", "csc"):
        raise FileError(f"load: a sparse tensor has the unknown layout {str(layout)[:50]!r}")
    shape = tuple(shape)
    if indices.dim() != 2 or indices.dtype != tapegrad.int64 or indices.size(0) > len(shape):
        raise FileError("load: a sparse tensor has indices of another form than (dimensions, entries) of int64")
    for row, n in zip(indices.tolist(), shape, strict=False):
        if row and not 0 <= min(row) <= max(row) < n:
            raise FileError(f"load: size is inconsistent with indices: a sparse tensor of shape {shape} has an index outside it")
    made = _C._sparse_make(indices, values, shape, coalesced)
    return made if layout == "coo" else getattr(made, f"to_sparse_{layout}")()
