"""The file format: a safetensors file (any reader of that format finds the tensors by name) whose metadata hold the rest.

Layout: eight bytes with the header's length, the header as JSON (name -> dtype, shape, place), the tensors' bytes without
gaps. `__metadata__` has two entries: `tapegrad`, a JSON text with the tree of plain data, the views and a CRC-32 per
tensor, and `tapegrad_crc32`, the checksum of that text.

A tensor that is only a part of its memory is cut to what it needs. Tensors that share bytes are written as one piece of
memory, of which each is a view, so that they share again when loaded.
"""

from __future__ import annotations

import json
import math
import struct
import zlib

from .. import (
    Tensor,
    as_strided,
    bfloat16,
    empty,
    float16,
    float32,
    float64,
    from_numpy,
    frombuffer,
    int8,
    int16,
    int32,
    int64,
    uint8,
    view_as_complex,
    view_as_real,
)
from .. import (
    bool as bool_,
)
from .tree import Decoder, Encoder

CODES = {float64: "F64", float32: "F32", float16: "F16", bfloat16: "BF16", int64: "I64", int32: "I32", int16: "I16",
         int8: "I8", uint8: "U8", bool_: "BOOL"}
DTYPES = {code: dtype for dtype, code in CODES.items()}
ITEMSIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
VERSION = 1
_MOST_HEADER = 1 << 30


def tensor_bytes(t) -> memoryview:
    """The bytes of a contiguous CPU tensor."""
    if t.numel() == 0:
        return memoryview(b"")
    flat = t.reshape(-1)
    if flat.dtype == bfloat16:  # NumPy has no such type
        flat = flat.view(int16)
    return memoryview(flat.numpy()).cast("B")


def _extent(t) -> tuple[int, int]:
    """First and last element (exclusive) that the tensor reaches in its memory, counted in elements."""
    if t.numel() == 0:
        return t.storage_offset(), t.storage_offset()
    reach = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.storage_offset(), t.storage_offset() + reach + 1


class _Pieces:
    """Collects tensors and decides which of them are one piece of memory."""

    def __init__(self) -> None:
        self.tensors: list = []  # (tensor, path)
        self.numbers: dict[int, int] = {}

    def add(self, t, path: str) -> int:
        number = self.numbers.get(id(t))
        if number is None:
            number = self.numbers[id(t)] = len(self.tensors)
            self.tensors.append((t, path))
        return number

    def groups(self):
        """Lists of numbers of tensors that share bytes."""
        by_memory: dict = {}
        for number, (t, _) in enumerate(self.tensors):
            detached = t.detach()
            size = detached.element_size()
            first, last = (n * size for n in _extent(detached))
            if detached.numel() == 0 or detached.is_meta:
                yield [number]
            else:
                base = detached.data_ptr() - detached.storage_offset() * size
                by_memory.setdefault((str(detached.device), base), []).append((first, last, number))
        for spans in by_memory.values():
            spans.sort()
            group, end = [], -1
            for first, last, number in spans:
                if first >= end and group:
                    yield group
                    group = []
                group.append(number)
                end = max(end, last)
            yield group


def _plain(t):
    return view_as_real(t) if t.is_complex() else t


def _describe(t) -> dict:
    """What the reference says of the tensor besides where its bytes are."""
    from ..nn.parameter import Parameter

    data = {}
    if isinstance(t, Parameter):
        data["parameter"] = True
    if t.requires_grad and t.is_leaf:
        data["requires_grad"] = True
    if t.device.type != "cpu":
        data["device"] = str(t.device)
    if t.is_complex():
        data["complex"] = True
    return data


def write(obj, file) -> None:
    """Writes an object to a binary file."""
    pieces = _Pieces()

    def tensor(t, path):
        if t.is_meta:
            raise ValueError(f"save: the tensor at {path!r} is on the meta device and has no values")
        return {"$tensor": pieces.add(t, path), **_describe(t)}

    def array(a, path):
        return pieces.add(_own(from_numpy(a if a.flags.c_contiguous and a.flags.writeable else a.copy()), keep), path)

    keep: list = []  # tensors made here live until their ids are no longer needed
    tree = Encoder(tensor, array).encode(obj)
    names: dict[str, int] = {}
    blobs: list = []   # (name, contiguous tensor)
    places: list = [None] * len(pieces.tensors)
    for group in sorted(pieces.groups(), key=min):
        _place(group, pieces, names, blobs, places)
    blobs.sort(key=lambda b: -b[1].element_size())  # every tensor then lies at a multiple of its element size
    header, checks, at = {}, {}, 0
    contents = []
    for name, t in blobs:
        content = tensor_bytes(t)
        contents.append((t, content))
        header[name] = {"dtype": CODES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(content)]}
        checks[name] = zlib.crc32(content)
        at += len(content)
    text = json.dumps({"version": VERSION, "tree": tree, "places": places, "crc32": checks,
                       "table_crc32": _table_checksum(header)}, separators=(",", ":"))
    metadata = {"tapegrad": text, "tapegrad_crc32": str(zlib.crc32(text.encode()))}
    head = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    file.write(struct.pack("<Q", len(head)))
    file.write(head)
    for _, content in contents:
        file.write(content)


def _own(t, keep: list):
    keep.append(t)
    return t


def _unused(name: str, names: dict) -> str:
    name = name or "value"
    if name == "__metadata__":
        name = "metadata"
    unique, n = name, 2
    while unique in names:
        unique, n = f"{name}#{n}", n + 1
    return unique


def _place(group, pieces: _Pieces, names: dict, blobs: list, places: list) -> None:
    """Where the tensors of one group go: each by itself, or as views of one piece of memory."""
    members = sorted(group)
    plain = [_plain(pieces.tensors[n][0].detach()) for n in members]
    same = all(p.dtype == plain[0].dtype and p.shape == plain[0].shape and p.stride() == plain[0].stride()
               and p.storage_offset() == plain[0].storage_offset() for p in plain)
    name = _unused(pieces.tensors[members[0]][1], names)
    names[name] = 1
    if same:
        blobs.append((name, plain[0].cpu().contiguous()))
        for n in members:
            places[n] = [name]
        return
    if any(p.dtype != plain[0].dtype for p in plain):
        raise ValueError("save: tensors of different dtypes share memory: "
                         + ", ".join(repr(pieces.tensors[n][1]) for n in members) + "\nsave a clone() of one of them")
    first = min(_extent(p)[0] for p in plain)
    last = max(_extent(p)[1] for p in plain)
    blobs.append((name, as_strided(plain[0], (last - first,), (1,), first).cpu().contiguous()))
    for n, p in zip(members, plain, strict=True):
        places[n] = [name, list(p.shape), list(p.stride()), p.storage_offset() - first]


def _table_checksum(header: dict) -> int:
    return zlib.crc32(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())


# Reading.
class UnknownFormat(RuntimeError):
    """The file is not what this module reads."""


def read_exactly(file, n: int, what: str) -> bytearray:
    """n bytes, or an error that says what is cut off."""
    data = bytearray(n)
    view, got = memoryview(data), 0
    while got < n:
        count = file.readinto(view[got:]) if hasattr(file, "readinto") else None
        if count is None:
            chunk = file.read(n - got)
            count = len(chunk)
            view[got:got + count] = chunk
        if not count:
            raise RuntimeError(f"load: the file ends within {what}: {got} of {n} bytes are there")
        got += count
    return data


def _damaged(what: str):
    return RuntimeError(f"load: {what} is damaged: its checksum is wrong\nthe file was changed or cut after it was saved")


def read_header(file, start: bytes) -> tuple[dict, dict | None]:
    """The table of tensors and, where tapegrad wrote the file, its own part. `start`: the first eight bytes."""
    (length,) = struct.unpack("<Q", start)
    if length > _MOST_HEADER or length < 2:
        raise UnknownFormat("load: this is neither a safetensors file nor a PyTorch archive")
    try:
        header = json.loads(bytes(read_exactly(file, length, "the header")))
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict):
            raise ValueError("no metadata")
        for entry in header.values():
            entry["dtype"], entry["shape"], entry["data_offsets"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnknownFormat("load: the header is damaged, or this is neither a safetensors file nor a PyTorch archive") from None
    text = metadata.get("tapegrad")
    if text is None and "tapegrad_crc32" not in metadata:
        return header, None
    if text is None or str(zlib.crc32(text.encode(errors="replace"))) != metadata.get("tapegrad_crc32"):
        raise _damaged("the header")
    own = json.loads(text)
    if own["version"] > VERSION:
        raise RuntimeError(f"load: the file has version {own['version']}, this program reads versions up to {VERSION}")
    if own["table_crc32"] != _table_checksum(header):
        raise _damaged("the table of tensors")
    return header, own


def _make(data: bytearray, entry: dict, name: str):
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise RuntimeError(f"load: the tensor {name!r} has the dtype {entry['dtype']}, which does not exist here")
    shape = entry["shape"]
    if math.prod(shape) * ITEMSIZES[entry["dtype"]] != len(data) or any(n < 0 for n in shape):
        raise RuntimeError(f"load: the tensor {name!r} has the shape {shape} and {len(data)} bytes")
    if not data:
        return empty(shape, dtype=dtype)
    return frombuffer(data, dtype=dtype).reshape(shape)


def read(file, start: bytes, place) -> object:
    """Reads an object; `place(tensor, device)` moves a tensor to where it should be."""
    header, own = read_header(file, start)
    checks = own["crc32"] if own else {}
    tensors, at = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != at or end < begin:
            raise RuntimeError(f"load: the tensor {name!r} does not lie where the one before it ends")
        data = read_exactly(file, end - begin, f"the tensor {name!r}")
        if name in checks and zlib.crc32(data) != checks[name]:
            raise _damaged(f"the tensor {name!r}")
        tensors[name] = _make(data, entry, name)
        at = end
    if own is None:
        return {name: place(tensors[name], "cpu") for name in header}
    return _Reader(tensors, own["places"], place).decode(own["tree"])


class _Reader(Decoder):
    """Makes the tensors of references, each once."""

    def __init__(self, tensors: dict, places: list, place) -> None:
        super().__init__(self._tensor, self._array)
        self.bases, self.places, self.place = tensors, places, place
        self.moved: dict = {}
        self.made: dict = {}

    def _view(self, number: int, device: str):
        name, *view = self.places[number]
        key = (name, device)
        if key not in self.moved:
            self.moved[key] = self.place(self.bases[name], device)
        base = self.moved[key]
        return as_strided(base, *view) if view else base

    def _tensor(self, data: dict) -> Tensor:
        number = data["$tensor"]
        if number in self.made:
            return self.made[number]
        t = self._view(number, data.get("device", "cpu"))
        if data.get("complex"):
            t = view_as_complex(t)
        if data.get("parameter"):
            from ..nn.parameter import Parameter

            t = Parameter(t, requires_grad=bool(data.get("requires_grad")))
        else:
            if len(self.places[number]) == 1:
                t = t.detach()  # another tensor over the same memory, for tied tensors
            if data.get("requires_grad"):
                t.requires_grad_()
        self.made[number] = t
        return t

    def _array(self, number: int):
        return self._view(number, "cpu").numpy()
