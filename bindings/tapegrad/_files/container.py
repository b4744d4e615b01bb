"""The file format: a safetensors file (any reader of that format finds the tensors by name) whose metadata hold the rest.

Layout: eight bytes with the header's length, the header as JSON (name -> dtype, shape, place), the tensors' bytes without
gaps. `__metadata__` has two entries: `tapegrad`, a JSON text with the tree of plain data, how tensors lie in the pieces of memory
and a CRC-32 per piece, and `tapegrad_crc32`, the checksum of that text.

A tensor that is only a part of its memory is cut to what it needs. Tensors that share bytes are written as one piece of
memory, of which each is a view, so that they share again when loaded.
"""

import json
import struct
import zlib

from .. import (
    Tensor,
    bfloat16,
    complex64,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    from_numpy,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    view_as_real,
)
from .. import (
    bool as bool_,
)
from .._root.sparse import compressed_parts
from ..nn.parameter import Buffer, Parameter, is_lazy
from ..storage import TypedStorage
from . import steps
from .pieces import PARALLEL, Pieces, host_bytes
from .tree import Encoder

CODES = {float64: "F64", float32: "F32", float16: "F16", bfloat16: "BF16", int64: "I64", int32: "I32", int16: "I16",
         int8: "I8", uint64: "U64", uint32: "U32", uint16: "U16", uint8: "U8", bool_: "BOOL", float8_e4m3fn: "F8_E4M3", float8_e5m2: "F8_E5M2",
         float8_e4m3fnuz: "F8_E4M3FNUZ", float8_e5m2fnuz: "F8_E5M2FNUZ", float8_e8m0fnu: "F8_E8M0"}
DTYPES = {**{code: dtype for dtype, code in CODES.items()}, "C64": complex64}
VERSION = 2
_ALIGN = 64  # of the first tensor in the file: the kernel copies to and from other places at a seventh of the speed on some processors
MOST_HEADER = 100_000_000  # bytes: the limit of the safetensors format


def _describe(t, encode, path: str) -> dict:
    """What a reference says of the tensor besides where its bytes are."""
    data = {}
    attributes = getattr(t, "__dict__", None)
    if isinstance(t, Parameter):
        data["parameter"] = True
    elif isinstance(t, Buffer):
        data["buffer"] = bool(t.persistent)
        attributes = {k: v for k, v in attributes.items() if k != "persistent"}
    if t.requires_grad and t.is_leaf:
        data["requires_grad"] = True
    if t.device.type not in ("cpu", "meta"):
        data["device"] = str(t.device)
    if attributes:
        data["attributes"] = [[k, encode(v, f"{path}.{k}")] for k, v in attributes.items()]
    return data


class _TensorEncoder:
    """Gives the references that stand for tensors and arrays in the tree, and collects what they refer to."""

    def __init__(self) -> None:
        self.pieces = Pieces()
        self.keep: list = []
        self.encoder = Encoder(self.tensor, self.array, self.storage)

    def _number(self, t, path: str) -> int:
        self.keep.append(t)
        return self.pieces.add(t, path)

    def tensor(self, t, path: str) -> dict:
        if is_lazy(t):
            return {"$uninitialized": [isinstance(t, Parameter), t.requires_grad, str(t.data.dtype).rpartition(".")[2]]}
        described = _describe(t, self.encoder.encode, path)
        if t.is_meta:
            return {"$meta": [str(t.dtype).rpartition(".")[2], list(t.shape), list(t.stride())], **described}
        if t._is_any_sparse:
            name = str(t.layout)[-3:]
            if not t.is_sparse and (name[0] == "b" or t.dim() - t.dense_dim() > 2):  # blocks and batches as they are
                starts, *parts = (self._number(p.detach(), f"{path}.{i}") for i, p in enumerate(compressed_parts(t)[1:]))
                return {"$sparse": [*parts, list(t.shape), False, name, starts], **described}
            parts = [self._number(p.detach(), f"{path}.{name}") for p, name in ((t._indices(), "indices"), (t._values(), "values"))]
            layout = [] if t.is_sparse else [name]  # another compressed one is kept in coordinate form
            return {"$sparse": [*parts, list(t.shape), bool(t.is_coalesced()), *layout], **described}
        return {"$tensor": self._number(t, path), **described}

    def storage(self, value, path: str) -> dict:
        """The memory itself, by a tensor over all of it."""
        typed = isinstance(value, TypedStorage)
        over = value._as_elements(None if typed else uint8)
        where = {} if over.device.type == "cpu" else {"device": str(over.device)}
        return {"$storage": self._number(over, path), "dtype": str(value.dtype).rpartition(".")[2] if typed else None, **where}

    def array(self, a, path: str) -> dict:
        if a.dtype.hasobject or a.dtype.kind not in "biufcSUmMV" or a.dtype.names:
            raise TypeError(f"save: cannot save a NumPy array of dtype {a.dtype} at {path!r}: files hold numbers and texts only")
        source = a if a.flags.c_contiguous and a.flags.writeable else a.copy()
        native = a.dtype.isnative and a.dtype.kind in "biufc" and a.dtype.str[1:] not in ("f16", "c32", "f12")
        if native:
            t = from_numpy(source)
        else:  # a dtype that only NumPy has: its bytes
            t = from_numpy(source.reshape(-1).view("u1"))
        self.keep.append(source)
        reference = {"$array": self._number(t, path)}
        return reference if native else {**reference, "dtype": a.dtype.str, "shape": list(a.shape)}


def _unused(name: str, taken) -> str:
    name = name or "value"
    if name == "__metadata__":
        name = "metadata"
    unique, n = name, 2
    while unique in taken:
        unique, n = f"{name}#{n}", n + 1
    return unique


def _lay_out(pieces: Pieces) -> tuple[dict, list, list]:
    """The pieces by name, in the order of the file, and where each tensor is."""
    named: dict = {}
    places: list = [None] * len(pieces.tensors)
    for piece in pieces.pieces():
        name = _unused(piece.name, named)
        named[name] = piece.source
        for n, view in piece.views.items():
            t = pieces.tensors[n][0]
            place = {"in": name}
            if t.dtype.is_complex or t.dtype != piece.source.dtype:
                place["dtype"] = str(t.dtype).rpartition(".")[2]
            if view is not None and not isinstance(view[0] if view else 0, tuple):
                place["order"] = list(view)
            elif view is not None:
                place.update(shape=list(view[0]), stride=list(view[1]), offset=view[2])
            places[n] = place
    # Sorted so that every tensor lies at a multiple of its element size.
    blobs = sorted(named.items(), key=lambda item: -min(item[1].element_size(), 8))
    return named, blobs, places


def table_checksum(header: dict) -> int:
    return zlib.crc32(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())


def _head(header: dict, own: dict | None, checks: dict, size: int = 0, extra: dict | None = None) -> bytes:
    metadata = dict(extra or {})
    if own is not None:
        text = json.dumps({**own, "crc32": checks}, separators=(",", ":"))
        metadata.update(tapegrad=text, tapegrad_crc32=f"{zlib.crc32(text.encode()):010}")
    named = {"__metadata__": metadata, **header} if metadata else header
    head = json.dumps(named, separators=(",", ":")).encode()
    size = max(size, len(head) + -(8 + len(head)) % _ALIGN)
    if size > MOST_HEADER:
        raise ValueError(f"save: the plain data take {size} bytes, and a file holds at most {MOST_HEADER}\n"
                         "put large texts and bytes into tensors or files of their own")
    return head + b" " * (size - len(head))


def _write(file, header: dict, contents: dict, own: dict | None, extra: dict | None, owned: bool) -> None:
    total = sum(len(c) for c in contents.values())
    if own is None or not owned or total < PARALLEL:
        checks = {} if own is None else {name: steps.checksum(content) for name, content in contents.items()}
        head = _head(header, own, checks, 0, extra)
        file.write(struct.pack("<Q", len(head)))
        file.write(head)
        for content in contents.values():
            steps.write(file, content)
        return
    # The file is owned and seekable: the checksums are computed while the bytes are written, the header comes last.
    size = len(_head(header, own, dict.fromkeys(contents, 0xFFFFFFFF), 0, extra))
    with steps.Checksums(contents) as checks:
        file.seek(8 + size)
        for content in contents.values():
            steps.write(file, content)
    file.seek(0)
    head = _head(header, own, checks, size, extra)
    file.write(struct.pack("<Q", len(head)))
    file.write(head)


def write(obj, file, owned: bool = False, skip_data: bool = False) -> None:
    """Writes an object to a binary file. `owned`: the file is new, empty and seekable, and no other writer has it open."""
    tensors = _TensorEncoder()
    try:
        tree = tensors.encoder.encode(obj)
    finally:
        del tensors.encoder  # which holds its owner: the tensors would live until Python's collector runs
    named, blobs, places = _lay_out(tensors.pieces)
    header, contents, keep, at = {}, {}, [], 0
    for name, source in blobs:
        plain = view_as_real(source) if source.is_complex() else source
        t, content = host_bytes(plain)
        keep.append(t)
        contents[name] = content
        header[name] = {"dtype": CODES[plain.dtype], "shape": list(plain.shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
    own = {"version": VERSION, "tree": tree, "places": places, "table_crc32": table_checksum(header)}
    if not skip_data:
        _write(file, header, contents, own, None, owned)
        return
    head = _head(header, own, {})
    file.write(struct.pack("<Q", len(head)) + head)
    if owned:
        file.truncate(8 + len(head) + at)  # a hole: its bytes are zeros and take no disk space
    else:
        for content in contents.values():
            file.write(bytes(len(content)))


def write_safetensors(tensors: dict, file, metadata: dict | None = None) -> None:
    """A plain safetensors file: a dictionary of tensors by name, and texts by name."""
    for name, t in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"save_file: a tensor's name must be a text other than '__metadata__': got {name!r}")
        if not isinstance(t, Tensor) or t.is_meta or t._is_any_sparse:
            raise ValueError(f"save_file: expected a dictionary of dense tensors: {name!r} is {type(t).__name__}")
    for key, text in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"save_file: metadata are texts by name: got {key!r}: {text!r}")
    header, contents, keep, at = {}, {}, [], 0
    for name, t in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        t = t.detach()
        if t.dtype not in CODES and t.dtype != complex64:
            raise ValueError(f"save_file: the safetensors format has no {t.dtype}: {name!r}")
        kept, content = host_bytes(t)
        keep.append(kept)
        contents[name] = content
        header[name] = {"dtype": CODES.get(t.dtype, "C64"), "shape": list(t.shape), "data_offsets": [at, at + len(content)]}
        at += len(content)
    _write(file, header, contents, None, metadata, False)
