"""The old classes of tensors and storages on a GPU: torch.cuda.FloatTensor and the like."""

from .. import empty
from .._C import Tensor
from .._root import legacy
from .._root.legacy import _TensorType


class _CudaTensorType(_TensorType):
    """Classes that stand for Tensor with a dtype on a GPU."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    @staticmethod
    def need_device(cls) -> None:
        from . import is_available

        if not is_available():
            raise TypeError(f"type {cls.__module__.partition('.')[2]}.{cls.__name__} not available: tapegrad was installed without its CUDA library, or there is no "
                            "CUDA device\nuse device='cpu', or ask tapegrad.cuda.is_available() first")

    def __call__(cls, *args):
        _CudaTensorType.need_device(cls)
        if args and all(isinstance(size, int) for size in args):  # memory as it comes, without a copy
            return empty(args, dtype=cls.dtype, device="cuda")
        given = [value.cpu() if isinstance(value, Tensor) else value for value in args]
        return getattr(legacy, cls.__name__)(*given).to("cuda")

    def __repr__(cls) -> str:
        return f"<class 'tapegrad.cuda.{cls.__name__}'>"


__all__ = list(legacy.__all__)
for _name in __all__:
    _dtype = getattr(legacy, _name).dtype
    globals()[_name] = _CudaTensorType(_name, (), {"dtype": _dtype, "is_cuda": True, "__module__": "tapegrad.cuda",
                                                   "__doc__": f"A tensor of dtype {_dtype} on a GPU."})
