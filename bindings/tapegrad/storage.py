"""Storages: the memory behind tensors."""

from __future__ import annotations

import weakref

from . import _C

__all__ = ["TypedStorage", "UntypedStorage"]

_known: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # storage id -> UntypedStorage: one object per storage


def _buffer_bytes(buffer, byte_order, count: int, offset: int, dtype) -> bytearray:
    """Elements of a buffer as bytes in this machine's order; of bool, as 0 and 1."""
    import operator
    import sys

    if not isinstance(dtype, _C.dtype):
        raise RuntimeError(f"from_buffer: dtype must be a dtype: got {dtype!r}")
    size = dtype.itemsize
    if byte_order is None and dtype not in (_C.uint8, _C.int8):
        raise RuntimeError(f"from_buffer: byte_order is needed for {dtype}")
    if byte_order is not None and not isinstance(byte_order, str):
        raise TypeError(f"from_buffer: byte_order must be a string: got {type(byte_order).__name__}")
    if byte_order not in (None, "native", "little", "big"):
        raise ValueError(f"from_buffer: byte_order is native, little or big: got {byte_order!r}")
    count, offset = operator.index(count), operator.index(offset)
    with memoryview(buffer) as view:
        if not view.c_contiguous:
            raise BufferError("from_buffer: the buffer must be contiguous")
        length = view.nbytes
        if not 0 <= offset <= length:
            raise ValueError(f"from_buffer: offset must lie in the buffer of {length} bytes: got {offset}")
        if count < 0 and (length - offset) % size:
            raise ValueError(f"from_buffer: expected a multiple of {size} bytes behind offset {offset}: got {length - offset}")
        count = (length - offset) // size if count < 0 else count
        if count > (length - offset) // size:
            raise ValueError(f"from_buffer: expected at least {count * size} bytes behind offset {offset}: got {length - offset}")
        if count == 0:
            return bytearray()
        with view.cast("B") as data:
            elements = bytearray(data[offset:offset + count * size])
    if dtype == _C.bool:
        return bytearray(map(bool, elements))
    width = size // 2 if dtype.is_complex else size  # of what is turned: both parts of a complex number by themselves
    if byte_order not in (None, "native", sys.byteorder):
        for k in range(width // 2):
            elements[k::width], elements[width - 1 - k::width] = elements[width - 1 - k::width], elements[k::width]
    return elements


class _Memory:
    """What storages of bytes and of elements say of their memory alike."""

    __slots__ = ()

    def data_ptr(self) -> int:
        return self.untyped()._bytes.data_ptr()

    @property
    def device(self):
        return self.untyped()._bytes.device

    @property
    def is_cuda(self) -> bool:
        return self.untyped()._bytes.is_cuda

    def is_shared(self) -> bool:
        return self.is_cuda or _C._shared_is(self.untyped()._bytes)

    def resizable(self) -> bool:
        """Whether resize_ works: the memory is owned by this library and not shared."""
        return _C._storage_resizable(self.untyped()._bytes)

    @property
    def _cdata(self) -> int:
        """A number for the memory, equal for storages that share it."""
        return self.untyped()._bytes._storage_id()

    def _share_fd_cpu_(self, *args, **kwargs):
        self.untyped()._need_cpu("_share_fd_cpu_")
        raise NotImplementedError("_share_fd_cpu_: memory is sent between processes by handles: see multiprocessing.reductions")

    _share_filename_cpu_ = _share_fd_cpu_

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()


class UntypedStorage(_Memory):
    """A run of bytes. Several tensors may look into one; pickle and deepcopy keep it so."""

    __slots__ = ("_seen", "filename", "__dict__", "__weakref__")

    def __init__(self, size=0, *, device=None):
        functions = _C._functions[""]
        self._bytes = functions["empty"](size, dtype=_C.uint8, device=device) if isinstance(size, int) else functions["tensor"](list(size), dtype=_C.uint8, device=device)
        self.filename = None
        _known[self._bytes._storage_id()] = self

    @classmethod
    def from_file(cls, filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` bytes of a file in memory: nothing is read before it is needed.

        With `shared` what is written goes to the file, which is made or lengthened if need be; else it stays in this process.
        Raises RuntimeError where the file cannot be opened or is too short.
        """
        import mmap
        import os

        try:
            with open(os.open(filename, (os.O_RDWR | os.O_CREAT) if shared else os.O_RDONLY, 0o600), "r+b" if shared else "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < nbytes:
                    if not shared:
                        raise RuntimeError(f"from_file: {os.fsdecode(filename)} has {size} bytes: expected at least {nbytes}")
                    file.truncate(nbytes)
                memory = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY) if nbytes else bytearray()
        except OSError as error:
            raise RuntimeError(f"from_file: cannot map {os.fsdecode(filename)}: {error.strerror or error}") from None
        self = cls._over(_C._functions[""]["frombuffer"](memory, dtype=_C.uint8)) if nbytes else cls()
        self.filename = filename if shared else None
        return self

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, dtype=None) -> UntypedStorage:
        """A copy of `count` elements of a buffer from byte `offset` on; without a count of all that are left.

        byte_order is that of the buffer's elements: native, little or big; it may be left out for uint8 and int8.
        Raises ValueError where the elements do not fit the buffer.
        """
        data = _buffer_bytes(buffer, byte_order, count, offset, dtype)
        return cls._over(_C._functions[""]["frombuffer"](data, dtype=_C.uint8).clone()) if data else cls()

    @classmethod
    def _over(cls, tensor) -> UntypedStorage:
        self = cls.__new__(cls)
        self._bytes = tensor
        self.filename = None
        _known[tensor._storage_id()] = self
        return self

    @classmethod
    def _new_shared(cls, nbytes: int) -> UntypedStorage:
        return cls._over(_C._shared_empty(nbytes, False))

    @property
    def _bytes(self):
        """All bytes as a tensor: a tensor over the storage may have made it longer since (resize_, set_)."""
        now = _C._storage_bytes(self._seen)
        if now.numel() != self._seen.numel():
            self._seen = now
        return self._seen

    @_bytes.setter
    def _bytes(self, tensor) -> None:
        self._seen = tensor

    def nbytes(self) -> int:
        return self._bytes.numel()

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def share_memory_(self) -> UntypedStorage:
        """Moves the bytes to memory that other processes can share; every tensor over them follows, unless the memory was
        that belongs to another library (NumPy, DLPack). On CUDA devices nothing happens before they are sent."""
        if self.device.type == "meta":
            self._need_cpu("share_memory_")
        return self if self.is_cuda else self._to_shared_memory()

    def _to_shared_memory(self) -> UntypedStorage:
        bytes_ = _C._shared_share(self._bytes)
        if bytes_._storage_id() != self._bytes._storage_id():
            self._bytes = bytes_
            _known[bytes_._storage_id()] = self
        return self

    def tolist(self) -> list:
        self._need_data()
        return self._bytes.tolist()

    def _need_data(self) -> None:
        if self.device.type == "meta":
            raise NotImplementedError("storage: Not available for 'meta' device: there are no bytes")

    def _need_cpu(self, name: str) -> None:
        if self.device.type != "cpu":
            raise RuntimeError(f"{name}: only available on CPU: the storage is on {self.device}")

    def _write_file(self, file, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """Writes the number of elements, if asked for, and the bytes to an open file."""
        if self.device.type == "meta":
            raise NotImplementedError("_write_file: Cannot copy out of meta tensor; no data!")
        if save_size:
            file.write((self.nbytes() // element_size).to_bytes(8, "little"))
        file.write(memoryview(self._bytes.cpu()))

    def _as_elements(self, dtype=None, strict: bool = False):
        """A tensor over the bytes, for tensor and asarray: of the default dtype unless one is given."""
        dtype = dtype or _C._functions[""]["get_default_dtype"]()
        return self._bytes[:len(self) // dtype.itemsize * dtype.itemsize].view(dtype)

    def _fix_weakref(self) -> None:
        """For programs of PyTorch, where a weak reference to a storage can go stale; here none does."""

    def untyped(self) -> UntypedStorage:
        return self

    def _at(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return index

    def __getitem__(self, index):
        """A byte as a number, or a storage over the memory of a slice without steps."""
        self._need_data()
        if not isinstance(index, slice):
            if not hasattr(index, "__index__"):
                raise TypeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
            return self._bytes[self._at(index.__index__())].item()
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
        if stop <= start:
            return UntypedStorage()
        part = memoryview(self._bytes).cast("B")[start:stop]
        return UntypedStorage._over(_C._functions[""]["frombuffer"](part, dtype=_C.uint8))

    def __setitem__(self, index, value) -> None:
        self._bytes[index if isinstance(index, slice) else self._at(index)] = value

    def fill_(self, value) -> UntypedStorage:
        self._bytes.fill_(value)
        return self

    def copy_(self, source, non_blocking=None) -> UntypedStorage:
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"copy_: the storages differ in size: {self.nbytes()} and {source.nbytes()} bytes")
        self._bytes.copy_(source.untyped()._bytes)
        return self

    def byteswap(self, dtype) -> None:
        """Turns the order of the bytes of each element; of both parts of complex ones."""
        width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        self._bytes.copy_(self._bytes.view(-1, width).flip(1).reshape(-1))

    def resize_(self, size: int) -> UntypedStorage:
        """Makes it `size` bytes long; the bytes are kept, and the tensors over it follow. What is cut off is given back to the
        system, and tensors that still look at it see zeros. Raises RuntimeError where the memory is not owned by this library
        (NumPy, DLPack) or is shared by processes."""
        if not isinstance(size, int):
            raise TypeError(f"resize_: expected a number of bytes: got {type(size).__name__}")
        _C._storage_resize(self._seen, size)
        return self

    def cpu(self) -> UntypedStorage:
        if self.device.type == "meta":
            raise NotImplementedError("cpu: Cannot copy out of meta tensor; no data!")
        return UntypedStorage._over(self._bytes.cpu()) if self.is_cuda else self

    def clone(self) -> UntypedStorage:
        return UntypedStorage._over(self._bytes.clone())

    __copy__ = clone

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]

    def __reduce__(self):
        data = bytes(memoryview(self._bytes.cpu()))
        return _rebuild_storage, (data, str(self.device)) if self.is_cuda else (data,)

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self._bytes._storage_id() == other._bytes._storage_id()

    def __hash__(self):
        return hash(self._bytes._storage_id())

    def __repr__(self) -> str:
        return f"<tapegrad.UntypedStorage of {self.nbytes()} bytes on {self.device}>"


class TypedStorage(_Memory):
    """A storage as elements of one dtype."""

    __slots__ = ("_untyped", "dtype")

    def __init__(self, data=0, dtype=None, *, device=None, wrap_storage=None, _internal: bool = False):
        """`data`: a number of elements, a sequence of them, or a storage of bytes to look at, which may also be given as wrap_storage."""
        self.dtype = _C._functions[""]["get_default_dtype"]() if dtype is None else dtype
        if wrap_storage is not None:
            data = wrap_storage
        if isinstance(data, UntypedStorage):
            self._untyped = data
        elif isinstance(data, int):
            if data < 0:
                raise RuntimeError(f"TypedStorage: the size must not be negative: got {data}")
            self._untyped = UntypedStorage(data * self.dtype.itemsize, device=device)
        else:
            self._untyped = storage_of(_C._functions[""]["tensor"](list(data), dtype=self.dtype, device=device))

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, dtype=None) -> TypedStorage:
        """The bytes of a buffer, copied, as elements of dtype (the default dtype unless one is given): see UntypedStorage.from_buffer."""
        dtype = _C._functions[""]["get_default_dtype"]() if dtype is None else dtype
        return cls(UntypedStorage.from_buffer(buffer, byte_order, count, offset, dtype), dtype)

    def untyped(self) -> UntypedStorage:
        return self._untyped

    def nbytes(self) -> int:
        return self._untyped.nbytes()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def size(self) -> int:
        return self.nbytes() // self.element_size()

    __len__ = size

    def _as_elements(self, dtype=None, strict: bool = False):
        """A tensor over the elements, for tensor and asarray; `strict`: they are not read as another dtype."""
        if strict and dtype not in (None, self.dtype):
            raise RuntimeError(f"tensor: Expected a Storage of type {dtype}: got {self.dtype}")
        return self._tensor() if dtype in (None, self.dtype) else self._tensor().view(dtype)

    def _tensor(self):
        return _C._tensor_over(self._untyped._bytes, self.dtype, (self.size(),), (1,), 0)

    def tolist(self) -> list:
        self._untyped._need_data()
        return self._tensor().tolist()

    def resize_(self, size: int) -> TypedStorage:
        """Makes it `size` elements long: see UntypedStorage.resize_."""
        self._untyped.resize_(size * self.element_size())
        return self

    def __getitem__(self, index):
        self._untyped._need_data()
        return self.tolist()[index]

    def __setitem__(self, index, value) -> None:
        self._tensor()[index] = _C._functions[""]["tensor"](value, dtype=self.dtype)

    def __iter__(self):
        return iter(self.tolist())

    def fill_(self, value) -> TypedStorage:
        self._tensor().fill_(value)
        return self

    def copy_(self, source, non_blocking=None) -> TypedStorage:
        if source.size() != self.size():
            raise RuntimeError(f"copy_: the storages differ in size: {self.size()} and {source.size()} elements")
        self._tensor().copy_(source._tensor())
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(self._untyped.clone(), self.dtype)

    __copy__ = clone

    def cpu(self) -> TypedStorage:
        return TypedStorage(self._untyped.cpu(), self.dtype)

    def type(self, dtype=None):
        """The name of its class, "torch.FloatStorage"; with a dtype, or one of the classes, a storage of the elements as that dtype."""
        if dtype is None:
            return f"torch.{_STORAGE_OF[self.dtype].__name__}"
        dtype = getattr(dtype, "dtype", dtype)
        return self if dtype == self.dtype else TypedStorage(storage_of(self._tensor().to(dtype)), dtype)

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self._untyped

    def share_memory_(self) -> TypedStorage:
        self._untyped.share_memory_()
        return self

    def _write_file(self, *args, **kwargs) -> None:
        self._untyped._write_file(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tapegrad.TypedStorage of {self.size()} {self.dtype} on {self.device}>"


class _StorageType(type):
    """Classes that stand for TypedStorage with a dtype: FloatStorage(3), isinstance(s, ByteStorage)."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype == cls.dtype

    def __call__(cls, data=0, *, device=None, wrap_storage=None, _internal: bool = False):
        return TypedStorage(data, cls.dtype, device=device, wrap_storage=wrap_storage)

    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, dtype=None):
        """The bytes of a buffer, copied, as elements: see UntypedStorage.from_buffer."""
        if dtype is not None:
            raise RuntimeError(f"from_buffer: {cls.__name__} has its dtype: got dtype {dtype}")
        return TypedStorage(UntypedStorage.from_buffer(buffer, byte_order, count, offset, cls.dtype), cls.dtype)

    def from_file(cls, filename, shared=False, size=0):
        """`size` elements over a file: see UntypedStorage.from_file."""
        return TypedStorage(UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize), cls.dtype)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _storage_type(name, dtype):
    __all__.append(name)
    return _StorageType(name, (), {"dtype": dtype, "__module__": "tapegrad", "__doc__": f"A storage of dtype {dtype}."})


BFloat16Storage = _storage_type("BFloat16Storage", _C.bfloat16)
BoolStorage = _storage_type("BoolStorage", _C.bool)
ByteStorage = _storage_type("ByteStorage", _C.uint8)
CharStorage = _storage_type("CharStorage", _C.int8)
ComplexDoubleStorage = _storage_type("ComplexDoubleStorage", _C.complex128)
ComplexFloatStorage = _storage_type("ComplexFloatStorage", _C.complex64)
DoubleStorage = _storage_type("DoubleStorage", _C.float64)
FloatStorage = _storage_type("FloatStorage", _C.float32)
HalfStorage = _storage_type("HalfStorage", _C.float16)
IntStorage = _storage_type("IntStorage", _C.int32)
LongStorage = _storage_type("LongStorage", _C.int64)
ShortStorage = _storage_type("ShortStorage", _C.int16)


_STORAGE_OF = {kind.dtype: kind for kind in list(globals().values()) if isinstance(kind, _StorageType)}
for _kind in _STORAGE_OF.values():  # float(), half(), ...: the elements as another dtype
    _method = str(_kind.__name__).removesuffix("Storage").lower().replace("complexfloat", "complex_float").replace("complexdouble", "complex_double")
    setattr(TypedStorage, _method, lambda self, _dtype=_kind.dtype: self.type(_dtype))


def _dtype_to_storage_type_map() -> dict:
    """The names of the classes by dtype."""
    return {dtype: kind.__name__ for dtype, kind in _STORAGE_OF.items()}


def _default_storage():
    """The class of storages of the default dtype."""
    return _STORAGE_OF[_C._functions[""]["get_default_dtype"]()]


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, pin_memory=False):
    """A vector of `size` elements over a file: see UntypedStorage.from_file."""
    functions = _C._functions[""]
    dtype = functions["get_default_dtype"]() if dtype is None else dtype
    if layout not in (None, _C.strided) or pin_memory or device is not None and functions["empty"](0, device=device).device.type != "cpu":
        raise RuntimeError(f"from_file: a file is memory of the CPU with the layout strided: got {device=}, {layout=}, {pin_memory=}")
    return TypedStorage(UntypedStorage.from_file(filename, bool(shared), size * dtype.itemsize), dtype)._tensor()


def storage_of(tensor) -> UntypedStorage:
    """The one Python object of a tensor's storage."""
    found = _known.get(tensor._storage_id())
    # Ids are addresses: an entry of a storage that has gone is replaced.
    return found if found is not None else UntypedStorage._over(_C._storage_bytes(tensor))


def _rebuild_storage(data: bytes, device: str = "cpu") -> UntypedStorage:
    made = _C._functions[""]["empty"](len(data), dtype=_C.uint8, device="cpu")
    if data:
        memoryview(made).cast("B")[:] = data
    return UntypedStorage._over(made.to(device))
