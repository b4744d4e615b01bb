"""Storages as Python sees them: the memory that tensors look into."""

from __future__ import annotations

import weakref

from . import _C

__all__ = ["TypedStorage", "UntypedStorage"]

_known: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # storage id -> UntypedStorage: one object per storage
_shared: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # address -> mmap


class UntypedStorage:
    """A run of bytes. Several tensors may look into one; pickle and deepcopy keep it so."""

    __slots__ = ("_bytes", "__weakref__")

    def __init__(self, size: int = 0):
        self._bytes = _C._functions[""]["empty"](size, dtype=_C.uint8)
        _known[self._bytes._storage_id()] = self

    @classmethod
    def _over(cls, tensor) -> UntypedStorage:
        self = cls.__new__(cls)
        self._bytes = tensor
        _known[tensor._storage_id()] = self
        return self

    @classmethod
    def _new_shared(cls, nbytes: int) -> UntypedStorage:
        import mmap

        memory = mmap.mmap(-1, max(nbytes, 1))
        tensor = _C._functions[""]["frombuffer"](memory, dtype=_C.uint8)
        _shared[tensor.data_ptr()] = memory
        return cls._over(tensor)

    def nbytes(self) -> int:
        return self._bytes.numel()

    size = nbytes
    __len__ = nbytes

    def data_ptr(self) -> int:
        return self._bytes.data_ptr()

    def element_size(self) -> int:
        return 1

    @property
    def device(self):
        return self._bytes.device

    @property
    def is_cuda(self) -> bool:
        return self._bytes.is_cuda

    def is_shared(self) -> bool:
        return self.data_ptr() in _shared

    def tolist(self) -> list:
        return self._bytes.tolist()

    def __getitem__(self, index):
        return self._bytes.tolist()[index]

    def clone(self) -> UntypedStorage:
        return UntypedStorage._over(self._bytes.clone())

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]

    def __reduce__(self):
        return _rebuild_storage, (bytes(memoryview(self._bytes)),)

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self._bytes._storage_id() == other._bytes._storage_id()

    def __hash__(self):
        return hash(self._bytes._storage_id())

    def __repr__(self) -> str:
        return f"<tapegrad.UntypedStorage of {self.nbytes()} bytes on {self.device}>"


class TypedStorage:
    """A storage as elements of one dtype."""

    __slots__ = ("_untyped", "dtype")

    def __init__(self, untyped: UntypedStorage, dtype):
        self._untyped = untyped
        self.dtype = dtype

    def untyped(self) -> UntypedStorage:
        return self._untyped

    def nbytes(self) -> int:
        return self._untyped.nbytes()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def size(self) -> int:
        return self.nbytes() // self.element_size()

    __len__ = size

    def data_ptr(self) -> int:
        return self._untyped.data_ptr()

    @property
    def device(self):
        return self._untyped.device

    def _tensor(self):
        return _C._tensor_over(self._untyped._bytes, self.dtype, (self.size(),), (1,), 0)

    def tolist(self) -> list:
        return self._tensor().tolist()

    def __getitem__(self, index):
        return self.tolist()[index]

    def __iter__(self):
        return iter(self.tolist())

    def is_shared(self) -> bool:
        return self._untyped.is_shared()

    def __repr__(self) -> str:
        return f"<tapegrad.TypedStorage of {self.size()} {self.dtype} on {self.device}>"


def storage_of(tensor) -> UntypedStorage:
    """The one Python object of a tensor's storage."""
    found = _known.get(tensor._storage_id())
    # Ids are addresses: an entry of a storage that has gone is replaced.
    return found if found is not None else UntypedStorage._over(_C._storage_bytes(tensor))


def _rebuild_storage(data: bytes) -> UntypedStorage:
    storage = UntypedStorage(len(data))
    if data:
        memoryview(storage._bytes).cast("B")[:] = data
    return storage
