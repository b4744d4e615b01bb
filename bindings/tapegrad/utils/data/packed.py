"""Long lists of small objects, packed into a few shared pages.

A worker made by fork shares the pages of its parent until one of the two writes to them, and looking at an object writes
its reference count: a list of a million file names is copied page by page into every worker. Packed, it is three
objects.
"""

import collections.abc

import numpy as np

from ... import empty as _empty
from ... import from_numpy, int64, tensor, uint8

__all__ = ["PackedList"]

_LEAST = 1000  # shorter lists cost less than the trouble


class PackedList(collections.abc.Sequence):
    """A list of strings, bytes or arrays of one dtype that do not change. Looks like a list; slices are lists.

    `data` holds the elements one after the other as bytes, `ends` where each ends, both as shared tensors.
    """

    def __init__(self, values) -> None:
        values = list(values)
        first = values[0] if values else ""
        self.kind = "str" if isinstance(first, str) else "bytes" if isinstance(first, bytes) else "array"
        self.dtype = self.shapes = None
        if self.kind == "array":
            self.dtype = first.dtype
            if any(not isinstance(v, np.ndarray) or v.dtype != self.dtype for v in values):
                raise TypeError("PackedList: expected strings, bytes, or arrays of one dtype")
            self.shapes = [v.shape for v in values] if len({v.shape for v in values}) > 1 else first.shape
            if isinstance(self.shapes, list):
                self.shapes = PackedList([np.asarray(s, dtype=np.int64) for s in self.shapes])
            pieces = [np.ascontiguousarray(v).tobytes() for v in values]
        else:
            wanted = str if self.kind == "str" else bytes
            if any(type(v) is not wanted for v in values):
                raise TypeError("PackedList: expected strings, bytes, or arrays of one dtype")
            pieces = [v.encode("utf-8", "surrogatepass") for v in values] if self.kind == "str" else values
        joined = b"".join(pieces)
        self.data = _empty(len(joined), dtype=uint8)
        if joined:
            self.data.numpy()[:] = np.frombuffer(joined, dtype=np.uint8)
        self.ends = from_numpy(np.cumsum([len(p) for p in pieces], dtype=np.int64)) if pieces else tensor([], dtype=int64)
        self.data.share_memory_()
        self.ends.share_memory_()
        self._open()

    def _open(self) -> None:
        self._data, self._ends = self.data.numpy(), self.ends.numpy()

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        n = len(self._ends)
        i = i.__index__()
        if i < -n or i >= n:
            raise IndexError("list index out of range")
        i %= n
        piece = self._data[self._ends[i - 1] if i else 0:self._ends[i]].tobytes()
        if self.kind == "str":
            return piece.decode("utf-8", "surrogatepass")
        if self.kind == "bytes":
            return piece
        shape = self.shapes if isinstance(self.shapes, tuple) else tuple(self.shapes[i].tolist())
        return np.frombuffer(piece, dtype=self.dtype).reshape(shape).copy()

    def __eq__(self, other):
        return isinstance(other, (list, PackedList)) and len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None

    def __add__(self, other):
        return list(self) + list(other)

    def __radd__(self, other):
        return list(other) + list(self)

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k not in ("_data", "_ends")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()

    def copy(self) -> list:
        """An ordinary list of the elements."""
        return list(self)

    def __repr__(self) -> str:
        return f"PackedList of {len(self)} x {self.kind}"


def _packable(value) -> bool:
    if type(value) is not list or len(value) < _LEAST:
        return False
    kind = type(value[0])
    if kind is np.ndarray:
        dtype = value[0].dtype
        return dtype.kind in "biufc" and all(type(v) is np.ndarray and v.dtype == dtype for v in value)
    return kind in (str, bytes) and all(type(v) is kind for v in value)


def _parts(dataset):
    """The dataset and the datasets that it passes on to, each with how to get there."""
    yield (), dataset
    inner = getattr(dataset, "__dict__", {}).get("dataset")
    if inner is not None and hasattr(inner, "__dict__"):
        for path, part in _parts(inner):
            yield ("dataset", *path), part
    several = getattr(dataset, "__dict__", {}).get("datasets")
    items = several.items() if isinstance(several, dict) else enumerate(several) if isinstance(several, (list, tuple)) else ()
    for key, part in items:
        if hasattr(part, "__dict__"):
            for path, inner in _parts(part):
                yield (("datasets", key), *path), inner


def pack(dataset) -> dict:
    """Packed forms of the long lists among the attributes of a dataset, by where they are."""
    if not hasattr(dataset, "__dict__"):
        return {}
    return {(path, name): PackedList(value) for path, part in _parts(dataset) for name, value in list(part.__dict__.items())
            if _packable(value)}


def unpack_into(dataset, packed: dict) -> list:
    """Puts packed lists in the place of the lists; returns these, which must not be freed: that would touch every element."""
    replaced = []
    for (path, name), value in packed.items():
        part = dataset
        for step in path:
            part = getattr(part, step) if isinstance(step, str) else getattr(part, step[0])[step[1]]
        replaced.append(part.__dict__[name])
        part.__dict__[name] = value
    return replaced
