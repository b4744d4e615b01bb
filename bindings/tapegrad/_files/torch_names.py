"""The names that PyTorch's files may contain, and what they stand for here: tensors, storages, containers, numbers, NumPy arrays.
All else goes to the program's own list (`objects.Policy`).
"""

import codecs
import datetime
import enum
import pathlib
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace

import numpy as np

import tapegrad

from .. import (
    Size,
    Tensor,
    conj_physical,
    device,
    empty_strided,
    from_numpy,
    neg,
    sparse_bsc,
    sparse_bsr,
    sparse_compressed_tensor,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from ..nn._state import _WithModule
from ..nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from ..storage import TypedStorage, UntypedStorage
from ..utils.hooks import RemovableHandle
from .container_reader import checked_sparse, over
from .errors import FileError, guarded
from .objects import Policy, check_attribute, check_key, numpy_array, numpy_dtype, numpy_scalar, program_class
from .unpickle import Placeholder, Unpickler

STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
            "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
            "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
            "ComplexDoubleStorage": "complex128", "UntypedStorage": "uint8"}
_ABSENT_STORAGES = ("QInt8Storage", "QInt32Storage", "QUInt8Storage", "QUInt4x2Storage", "QUInt2x4Storage", "TypedStorage")
NEW_DTYPES = frozenset(("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"))  # without storage classes: PyTorch writes their bytes and the dtype
_DTYPES = {*STORAGES.values(), *NEW_DTYPES, "float", "double", "half", "long", "int", "short", "chalf"}
_ABSENT_DTYPES = ("float8", "float4", "uint", "int", "qint", "quint", "bits")
_LAYOUTS = {f"torch.{str(layout).rpartition('.')[2]}": layout for layout in (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)}
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric", "numpy")


class StorageKind:
    """Stands for PyTorch's storage classes, which name a dtype. dtype None: bytes."""

    def __init__(self, dtype, typed: bool = True) -> None:
        self.dtype, self.typed = dtype, typed


# Tensors.
def _memory(storage):
    if isinstance(storage, TypedStorage):
        return storage.untyped()._bytes, storage.dtype
    if isinstance(storage, UntypedStorage):
        return storage._bytes, tapegrad.uint8
    raise FileError("load: a tensor has no storage")


def _rebuild_tensor(storage, offset, size, stride, dtype=None):
    memory, own = _memory(storage)
    return over(memory, dtype or own, tuple(size), tuple(stride), offset)


def _finish(t, requires_grad, metadata):
    if metadata:
        t = conj_physical(t) if metadata.get("conj") else t
        t = neg(t) if metadata.get("neg") else t
    return t.requires_grad_() if requires_grad else t


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks=None, metadata=None):
    return _finish(_rebuild_tensor(storage, offset, size, stride), requires_grad, metadata)


def _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None):
    return _finish(_rebuild_tensor(storage, offset, size, stride, dtype), requires_grad, metadata)


def _attributes(t, state):
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        for name, value in (part or {}).items():
            check_attribute(name)
            t.__dict__[name] = value
    return t


def _rebuild_parameter(data, requires_grad, hooks=None):
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, hooks=None, state=None):
    return _attributes(Parameter(data, requires_grad), state)


def _rebuild_meta(dtype, size, stride, requires_grad):
    t = empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
    return t.requires_grad_() if requires_grad else t


def _rebuild_sparse(layout, data):
    if layout in (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc):
        return sparse_compressed_tensor(*data, layout=layout)
    if layout is not sparse_coo:
        raise FileError(f"load: sparse tensors of layout {layout} do not exist here")
    indices, values, size, *coalesced = data
    return checked_sparse(indices, values, size, bool(coalesced and coalesced[0]))


def _layout(name):
    if name not in _LAYOUTS:
        raise FileError(f"load: the layout {str(name)[:50]} does not exist here")
    return _LAYOUTS[name]


# Hooks of lazy layers.
def _method(layer, name):
    """What the name getattr stands for: the two methods that a lazy layer has as hooks of its own, and nothing else."""
    from ..nn.lazy import LazyModuleMixin

    if not isinstance(layer, LazyModuleMixin) or name not in ("_infer_parameters", "_lazy_load_hook"):
        raise FileError(f"load: the file asks for the attribute {str(name)[:50]!r} of a {type(layer).__name__}, and nothing is looked up for a file")
    return getattr(layer, name)


def _build_handle(handle, state) -> None:
    if not (isinstance(state, tuple) and len(state) == 3 and type(state[1]) is int and 0 <= state[1] < 1 << 62
            and isinstance(state[0], (OrderedDict, type(None)))
            and isinstance(state[2], tuple) and all(isinstance(d, (OrderedDict, type(None))) for d in state[2])):
        raise FileError("load: the handle of a hook is damaged")
    handle.__setstate__(state)


def _build_hook(hook, state) -> None:
    from ..nn import Module

    if not isinstance(state, dict) or not callable(state.get("hook")) or not isinstance(state.get("module"), (Module, type(None))):
        raise FileError("load: a hook is damaged")
    hook.__setstate__(state)


_HOOKS = {("builtins", "getattr"): _method, ("torch.nn.modules.module", "_WrappedHook"): _WithModule,
          ("torch.utils.hooks", "RemovableHandle"): RemovableHandle}
_BUILD_HOOKS = {_WithModule: _build_hook, RemovableHandle: _build_handle}


# Plain data.
def _encode(text, encoding="latin1"):
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise FileError("load: unexpected encoding of bytes")
    return text.encode("latin1")


def _items(make, keys: bool = False):
    def call(items=()):
        if not isinstance(items, (list, tuple, set, frozenset)):
            raise FileError(f"load: expected a list of the contents of a {make.__name__}")
        for item in items if keys else ():
            check_key(item)
        return make(items)
    return call


def _bytearray(data=b"", encoding=None):
    if isinstance(data, str):
        return bytearray(_encode(data, encoding))
    if not isinstance(data, (bytes, bytearray)):
        raise FileError("load: expected bytes")
    return bytearray(data)


def _bytes(data=b""):
    return bytes(_bytearray(data))


def _ordered(pairs=()):
    result = OrderedDict()
    for key, value in pairs:
        check_key(key)
        result[key] = value
    return result


def _counter(counts=None):
    result = Counter()
    for key, value in dict(counts or {}).items():
        check_key(key)
        result[key] = value
    return result


def _default_dict(factory=None, *rest):
    if factory is not None and factory not in (list, dict, set, int, float, str, bool, tuple):
        raise FileError("load: a defaultdict has a factory that is not list, dict, set, int, float, str, bool or tuple")
    return defaultdict(factory)


def _deque(items=(), most=None):
    return deque(_items(list)(items), most)


def _datetime(state, *rest):
    if isinstance(state, (bytes, str)) and not rest:
        return datetime.datetime(state if isinstance(state, bytes) else state.encode("latin1"))
    return datetime.datetime(state, *rest)


def _path(*parts):
    return pathlib.Path(*[p for p in parts if isinstance(p, str)])


# NumPy.
_UNITS = (b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as", b"generic")


def _numpy_dtype(text, *rest):
    return np.dtype(numpy_dtype(text), copy=True)


def _numpy_empty(cls=None, shape=None, kind=None):
    return np.empty(0, np.uint8)


def _numpy_scalar(kind, data):
    return numpy_scalar(kind, data.encode("latin1") if isinstance(data, str) else data)


def _numpy_from_buffer(data, kind, shape, order="C"):
    return numpy_array(kind, shape, data, "F" if order == "F" else "C")


def _build_array(a, state) -> None:
    _, shape, kind, fortran, data = state
    data = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(data, (bytes, bytearray)) or not isinstance(kind, np.dtype) or kind.hasobject:
        raise FileError("load: an array does not hold numbers, texts or times")
    numpy_array(kind, shape, data)  # checks that shape and bytes fit
    a.__setstate__((1, tuple(shape), kind, bool(fortran), bytes(data)))


def _build_dtype(kind, state) -> None:
    order, tail = state[1], (None, None, None)
    if any(part is not None for part in state[2:5]) or order not in ("<", ">", "=", "|"):
        raise FileError("load: an array has a dtype that is not one of numbers, texts or times")
    if kind.kind in "mM":
        if len(state) > 8:  # the unit: its letters, how many of it
            unit, count = state[8][1][:2]
            unit = unit.encode() if isinstance(unit, str) else unit
            if unit not in _UNITS or type(count) is not int or not 0 < count < 1 << 31:
                raise FileError("load: an array of times has an unknown unit")
            kind.__setstate__((4, order, *tail, -1, -1, 0, ({}, (unit, count, 1, 1))))
    elif order == ">" and kind.kind in "iufcb":
        kind.__setstate__((3, ">", *tail, -1, -1, 0))
    elif order == ">" and kind.kind == "U":
        kind.__setstate__((3, ">", *tail, kind.itemsize, kind.alignment, 8))


_CALLED = {
    ("torch", "Size"): (Size, Size), ("torch", "device"): (device, device),
    ("torch.serialization", "_get_layout"): (_layout, _layout),
    ("torch._utils", "_rebuild_tensor"): (_rebuild_tensor, _rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): (_rebuild_tensor_v2, _rebuild_tensor_v2),
    ("torch._utils", "_rebuild_tensor_v3"): (_rebuild_tensor_v3, _rebuild_tensor_v3),
    ("torch._utils", "_rebuild_parameter"): (_rebuild_parameter, _rebuild_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): (_rebuild_parameter_with_state, _rebuild_parameter_with_state),
    ("torch.nn.parameter", "UninitializedParameter"): (UninitializedParameter, lambda grad=True: UninitializedParameter(bool(grad))),
    ("torch.nn.parameter", "UninitializedBuffer"): (UninitializedBuffer, lambda grad=False: UninitializedBuffer(bool(grad))),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): (_rebuild_meta, _rebuild_meta),
    ("collections", "OrderedDict"): (OrderedDict, _ordered), ("collections", "Counter"): (Counter, _counter),
    ("collections", "defaultdict"): (defaultdict, _default_dict), ("collections", "deque"): (deque, _deque),
    ("builtins", "set"): (set, _items(set, True)), ("builtins", "frozenset"): (frozenset, _items(frozenset, True)),
    ("builtins", "list"): (list, _items(list)), ("builtins", "tuple"): (tuple, _items(tuple)),
    ("builtins", "dict"): (dict, lambda: {}), ("builtins", "complex"): (complex, complex), ("builtins", "bytes"): (bytes, _bytes),
    ("builtins", "bytearray"): (bytearray, _bytearray), ("builtins", "slice"): (slice, slice), ("builtins", "range"): (range, range),
    ("_codecs", "encode"): (codecs.encode, _encode),
    ("argparse", "Namespace"): (Namespace, Namespace), ("types", "SimpleNamespace"): (SimpleNamespace, lambda: SimpleNamespace()),
    ("datetime", "datetime"): (datetime.datetime, _datetime), ("datetime", "date"): (datetime.date, datetime.date),
    ("datetime", "timedelta"): (datetime.timedelta, datetime.timedelta),
    **{(module, name): (pathlib.PurePath, _path) for module in ("pathlib", "pathlib._local")
       for name in ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")},
    **{(module, "_reconstruct"): (_numpy_empty, _numpy_empty) for module in _NUMPY[:2]},
    **{(module, "scalar"): (_numpy_scalar, _numpy_scalar) for module in _NUMPY[:2]},
    **{(module, "_frombuffer"): (_numpy_from_buffer, _numpy_from_buffer) for module in _NUMPY[2:4]},
    ("numpy", "dtype"): (np.dtype, _numpy_dtype),
}
_VALUES = {("torch", "Tensor"): Tensor, ("torch.nn.parameter", "Parameter"): Parameter, ("torch.nn", "Parameter"): Parameter,
           ("torch.nn.parameter", "Buffer"): Buffer, ("numpy", "ndarray"): np.ndarray, ("builtins", "int"): int, ("builtins", "object"): object,
           ("builtins", "float"): float, ("builtins", "str"): str, ("builtins", "bool"): bool}
_NEW = {OrderedDict: _ordered, Counter: _counter, Namespace: lambda: Namespace(), SimpleNamespace: lambda: SimpleNamespace(),
        set: _items(set, True), complex: complex, Size: Size}


class Reader:
    """Reads one stream of a PyTorch file. `persistent_load(id)` gives the storages; `place(memory, location)` moves them."""

    def __init__(self, persistent_load, place, policy: Policy, encoding: str = "utf-8", errors: str = "strict",
                 dry: bool = False, packed: int | None = None) -> None:
        """dry: values of tensors are not there yet; nothing is made that depends on them, and nothing of the program is called.
        packed: the bytes that the stream takes in the file, where it is compressed there."""
        self.dry, self.packed = dry, packed
        self.persistent_load, self.place, self.policy = persistent_load, place, policy
        self.encoding, self.errors = encoding, errors
        self.calls = {id(value): call for value, call in _CALLED.values()}
        self.allowed: dict[int, object] = {}  # classes and functions of the caller that were named
        self.only_named: dict[int, FileError] = {}  # classes that are data, and why no object is made of them
        for name, function in (("_rebuild_from_type_v2", self._from_type), ("_rebuild_device_tensor_from_cpu_tensor", self._from_cpu),
                               ("_rebuild_device_tensor_from_numpy", self._from_numpy), ("_rebuild_xla_tensor", self._from_numpy),
                               ("_rebuild_sparse_tensor", self._sparse)):
            setattr(self, name, function)
            self.calls[id(function)] = function
        self._reconstructor = self._reconstruct
        self.calls[id(self._reconstructor)] = self._reconstruct

    def read(self, file):
        """Once: then the reader forgets all. It holds itself (by its methods), and the storages would live on until Python's
        collector runs, which is long after a program has let go of what it loaded."""
        try:
            return Unpickler(file, self.find, self.calls, self.new, self.build, self.persistent_load, self.encoding, self.errors,
                             self.packed).load()
        finally:
            vars(self).clear()

    def find(self, module: str, name: str):
        known = _CALLED.get((module, name))
        if known is not None:
            return known[0]
        if (module, name) in _VALUES:
            return _VALUES[module, name]
        if module in ("torch", "torch.storage", "torch.cuda"):
            found = self._of_torch(name)
            if found is not None:
                return found
        if module == "torch._utils" and hasattr(self, name) and name.startswith("_rebuild_"):
            return getattr(self, name)
        if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
            return self._rebuild_from_type_v2
        if (module, name) == ("copyreg", "_reconstructor"):
            return self._reconstructor
        found = None if self.policy.weights_only else _HOOKS.get((module, name))
        if found is _method:
            self.calls[id(found)] = (lambda *args: Placeholder()) if self.dry else _method
            return found
        if found is None:
            try:
                found = self.policy.find(module, name)
            except FileError as error:  # a class may still stand in the data itself: nothing is made of it
                found = None if self.policy.weights_only else program_class(module, name)
                if found is None:
                    raise
                self.only_named[id(found)] = error
                return found
        self.allowed[id(found)] = found
        if isinstance(found, type) and issubclass(found, enum.Enum):
            self.calls[id(found)] = (lambda *args: Placeholder()) if self.dry else lambda *args: self.policy.member(found, *args)
        elif self.policy.is_own(found):
            self.calls[id(found)] = (lambda *args: Placeholder()) if self.dry else lambda *args: guarded(found, *args)
        return found

    def _of_torch(self, name: str):
        if name in STORAGES:
            return StorageKind(getattr(tapegrad, STORAGES[name]), name != "UntypedStorage")
        if name in _DTYPES:
            return getattr(tapegrad, name)
        if name.endswith("Tensor") and name[:-6] + "Storage" in STORAGES:
            return Tensor  # the types of old tensors: they are only named
        if name in _ABSENT_STORAGES or name.startswith(_ABSENT_DTYPES):
            raise FileError(f"load: the file holds tensors of torch.{name[:50]}, and this dtype does not exist here")
        return None

    def new(self, cls, args):
        if not isinstance(cls, type):
            raise FileError("load: an object has no class")
        if id(cls) in self.only_named:
            raise self.only_named[id(cls)]
        if id(cls) in self.allowed:
            return Placeholder() if self.dry else self.policy.new(cls, *args)
        if cls not in _NEW:
            raise FileError(f"load: the file makes a {cls.__name__} in a way that is not read")
        return _NEW[cls](*args)

    def build(self, instance, state) -> None:
        kind = type(instance)
        if kind is Placeholder:
            return
        if kind in _BUILD_HOOKS:
            _BUILD_HOOKS[kind](instance, state)
        elif id(kind) in self.allowed or self.policy.is_own(kind):
            self.policy.set_state(instance, state)
        elif kind is np.ndarray:
            _build_array(instance, state)
        elif isinstance(instance, np.dtype):
            _build_dtype(instance, state)
        elif kind in (OrderedDict, Namespace, SimpleNamespace, Parameter, Tensor, Buffer) and isinstance(state, dict):
            _attributes(instance, state)
        else:
            raise FileError(f"load: the file sets attributes of a {kind.__name__}")

    def _reconstruct(self, cls, base=object, state=None):
        """How protocols 0 and 1 make objects."""
        if base is not object:
            raise FileError("load: the file makes an object in a way that is not read")
        return self.new(cls, ())

    def _from_type(self, function, cls, args, state):
        call = self.calls.get(id(function))
        if call is None or type(args) is not tuple:
            raise FileError("load: a tensor is made by what makes no tensors")
        t = call(*args)
        if type(t) is Placeholder:
            return t
        if not isinstance(t, Tensor):
            raise FileError("load: a tensor is made by what makes no tensors")
        if isinstance(state, dict) and state.pop("_is_buffer", None):
            return Buffer(t, persistent=bool(state.get("persistent", True)))
        if cls is Buffer:
            t = Buffer(t)
        elif cls not in (Tensor, type(t)):
            if id(cls) not in self.allowed:
                raise FileError("load: a tensor has an unknown class")
            t = Tensor._make_subclass(cls, t.detach(), t.requires_grad)
        return _attributes(t, state)

    def _sparse(self, layout, data):
        return Placeholder() if self.dry else _rebuild_sparse(layout, data)

    def _from_cpu(self, data, dtype, where, requires_grad):
        t = self.place(data.to(dtype), str(where))
        return t.requires_grad_() if requires_grad else t

    def _from_numpy(self, data, dtype, where, requires_grad):
        return self._from_cpu(from_numpy(data), dtype, where, requires_grad)


def text(value) -> str:
    """Names in old files are bytes."""
    return value.decode("ascii") if isinstance(value, bytes) else value


def wrap(memory, kind: StorageKind):
    """The storage object that tensors are rebuilt from."""
    untyped = UntypedStorage._over(memory)
    return TypedStorage(untyped, kind.dtype) if kind.typed else untyped


def storage_id(pid, most: int) -> list:
    """The parts of ("storage", kind, key, location, count, ...), checked."""
    if not isinstance(pid, tuple) or len(pid) < 5 or text(pid[0]) != "storage" or not isinstance(pid[1], StorageKind):
        raise FileError("load: the file refers to something that is no storage")
    key, location, count = pid[2], text(pid[3]), pid[4]
    if not isinstance(key, (str, int, bytes)) or not isinstance(location, str) or type(count) is not int or count < 0:
        raise FileError("load: the file refers to something that is no storage")
    size = count * pid[1].dtype.itemsize
    if size > most:
        raise FileError(f"load: the file claims a storage of {size} bytes and has {most}")
    return [pid[1], text(key) if isinstance(key, bytes) else key, location, size, *pid[5:]]
