"""Reading PyTorch's .pt archives. Their table of contents is a pickle, which could name any function; this reader knows
the few names that tensors and plain data need and refuses all others, so that no file can run code.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import Counter, OrderedDict, defaultdict

import tapegrad

from .. import Size, as_strided, device, empty, frombuffer
from ..nn.parameter import Parameter

_STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
             "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
             "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
             "ComplexDoubleStorage": "complex128", "UntypedStorage": "uint8"}
_DTYPES = {*_STORAGES.values(), "float", "double", "half", "long", "int", "short"}
_MOST_CONTENTS = 512 << 20  # bytes of the pickle: far more than any list of tensors takes


class _StorageType:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


def _tensor(storage, offset, size, stride, requires_grad, hooks=None, metadata=None):
    result = as_strided(storage, tuple(size), tuple(stride), offset)
    return result.requires_grad_() if requires_grad else result


def _parameter(data, requires_grad, hooks=None):
    return Parameter(data, requires_grad)


def _parameter_with_state(data, requires_grad, hooks=None, state=None):
    return Parameter(data, requires_grad)


def _encode(text: str, encoding: str) -> bytes:
    """How old pickle protocols write bytes."""
    if encoding != "latin1":
        raise RuntimeError(f"load: unexpected encoding in the archive: {encoding}")
    return text.encode(encoding)


_FUNCTIONS = {
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): OrderedDict, ("collections", "Counter"): Counter,
    ("collections", "defaultdict"): defaultdict, ("torch", "Size"): Size, ("torch", "device"): device,
    ("builtins", "set"): set, ("__builtin__", "set"): set, ("builtins", "dict"): dict, ("builtins", "list"): list,
    ("builtins", "complex"): complex, ("__builtin__", "complex"): complex, ("builtins", "bytearray"): bytearray,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor, ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter_with_state,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, storage) -> None:
        super().__init__(file, encoding="utf-8")
        self.storage = storage

    def find_class(self, module: str, name: str):
        found = _FUNCTIONS.get((module, name))
        if found is not None:
            return found
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _StorageType(_STORAGES[name])
        if module == "torch" and name in _DTYPES:
            return getattr(tapegrad, name)
        raise RuntimeError(f"load: the file needs {module}.{name}, and only tensors and plain data are read\n"
                           "load it with torch and save its state_dict")

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise RuntimeError(f"load: unknown reference in the archive: {pid!r}")
        _, kind, key, location, count = pid[:5]
        return self.storage(kind.dtype, str(key), location, count)


def is_archive(start: bytes) -> bool:
    """Whether a file that begins so is a zip archive."""
    return start[:4] == b"PK\x03\x04"


def read(file, place) -> object:
    """Reads an archive; `place(tensor, device)` moves a tensor to where it should be."""
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        raise RuntimeError("load: the archive is damaged or cut off") from None
    with archive:
        names = archive.namelist()
        contents = next((n for n in names if n.endswith("/data.pkl") or n == "data.pkl"), None)
        if contents is None:
            raise RuntimeError("load: this zip archive is not one that PyTorch's save wrote")
        root = contents[:-len("data.pkl")]
        if root + "byteorder" in names and archive.read(root + "byteorder") != b"little":
            raise RuntimeError("load: the archive holds big-endian numbers, which are not read")
        if archive.getinfo(contents).file_size > _MOST_CONTENTS:
            raise RuntimeError("load: the archive's table of contents is too large")
        storages: dict = {}

        def storage(dtype: str, key: str, location: str, count: int):
            if key not in storages:
                data = bytearray(_entry(archive, f"{root}data/{key}"))
                kind = getattr(tapegrad, dtype)
                flat = frombuffer(data, dtype=kind) if data else empty(0, dtype=kind)
                storages[key] = place(flat, location)
            return storages[key]

        return _Unpickler(io.BytesIO(_entry(archive, contents)), storage).load()


def _entry(archive, name: str) -> bytes:
    try:
        return archive.read(name)
    except KeyError:
        raise RuntimeError(f"load: the archive lacks {name!r}") from None
    except zipfile.BadZipFile:
        raise RuntimeError(f"load: {name!r} in the archive is damaged: its checksum is wrong") from None
