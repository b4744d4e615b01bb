"""The old tensor classes: FloatTensor(2, 3), isinstance(x, LongTensor)."""

from .. import _C, _tensor


class _TensorType(type):
    """Classes that stand for Tensor with a dtype; calling one makes such a tensor. There are no subclasses of them."""

    def __new__(mcls, name, bases, namespace):
        if bases:
            raise TypeError(f"type '{_tensor._root_name}.{bases[0].__name__}' is not an acceptable base type\nderive from Tensor")
        return super().__new__(mcls, name, bases, namespace)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, _C.Tensor) and instance.is_cpu and instance.dtype == cls.dtype

    def __call__(cls, *args, size=None, device=None):
        if device is not None and _C.device(device).type != "cpu":
            raise RuntimeError(f"{cls.__name__}: legacy constructor expects device type: cpu but device type: {_C.device(device).type} was passed")
        return _tensor.legacy_tensor(cls.__name__, cls.dtype, args, size)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


class _SparseTensorType(_TensorType):
    """The same of sparse tensors: FloatTensor(indices, values, size), FloatTensor(2, 3) without entries."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, _C.Tensor) and instance.is_sparse and instance.device.type == "cpu" and instance.dtype == cls.dtype

    def __call__(cls, *args, device=None):
        from .sparse import sparse_coo_tensor

        if len(args) in (2, 3) and isinstance(args[0], _C.Tensor) and isinstance(args[1], _C.Tensor):
            return sparse_coo_tensor(*args, device=device)  # of the values' dtype, as in PyTorch
        size = tuple(args[0]) if len(args) == 1 and isinstance(args[0], _C.Size) else args or (0,)
        if not all(isinstance(n, int) for n in size):
            raise TypeError(f"{cls.__name__}: expected sizes, or indices and values as tensors: got {', '.join(type(a).__name__ for a in args)}")
        return sparse_coo_tensor(size=size, dtype=cls.dtype, device=device)


def _make(name, dtype):
    return _TensorType(name, (), {"dtype": dtype, "__module__": "tapegrad", "__doc__": f"A tensor of dtype {dtype}."})


def sparse_types() -> dict:
    """The classes that tapegrad.sparse has by these names."""
    dtypes = {name: globals()[name].dtype for name in __all__ if name != "BoolTensor"}
    return {name: _SparseTensorType(name, (), {"dtype": dtype, "layout": _C.sparse_coo, "__module__": "tapegrad.sparse",
                                               "__doc__": f"A sparse tensor of dtype {dtype}."}) for name, dtype in dtypes.items()}


FloatTensor = _make("FloatTensor", _C.float32)
DoubleTensor = _make("DoubleTensor", _C.float64)
HalfTensor = _make("HalfTensor", _C.float16)
BFloat16Tensor = _make("BFloat16Tensor", _C.bfloat16)
ByteTensor = _make("ByteTensor", _C.uint8)
CharTensor = _make("CharTensor", _C.int8)
ShortTensor = _make("ShortTensor", _C.int16)
IntTensor = _make("IntTensor", _C.int32)
LongTensor = _make("LongTensor", _C.int64)
BoolTensor = _make("BoolTensor", _C.bool)

__all__ = ["BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
           "LongTensor", "ShortTensor"]
