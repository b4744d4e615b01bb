"""The old classes of sparse tensors on a GPU: torch.cuda.sparse.FloatTensor and the like."""

from .. import _C
from .._root import legacy
from .._root.legacy import _SparseTensorType
from ._types import _CudaTensorType


class _CudaSparseTensorType(_SparseTensorType):
    """Classes that stand for a sparse Tensor with a dtype on a GPU."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, _C.Tensor) and instance.is_sparse and instance.is_cuda and instance.dtype == cls.dtype

    def __call__(cls, *args):
        _CudaTensorType.need_device(cls)
        return super().__call__(*args, device="cuda")


__all__ = [name for name in legacy.__all__ if name != "BoolTensor"]
for _name in __all__:
    _dtype = getattr(legacy, _name).dtype
    globals()[_name] = _CudaSparseTensorType(_name, (), {"dtype": _dtype, "layout": _C.sparse_coo, "is_cuda": True, "__module__": "tapegrad.cuda.sparse",
                                                         "__doc__": f"A sparse tensor of dtype {_dtype} on a GPU."})
