"""Names of PyTorch's private native module that scripts call: switches of compilers, which change nothing here."""

from __future__ import annotations

import types
import weakref

from .. import _C

_SWITCHES = ("_jit_set_", "_jit_override_", "_jit_pass_", "_set_graph_executor_optimize", "_log_api_usage", "_debug_set_", "_set_cublas_", "_set_cudnn_",
             "_set_mkldnn_", "_set_deterministic")


class _WeakTensorRef:
    """A tensor that is not kept alive."""

    def __init__(self, tensor) -> None:
        self._tensor = weakref.ref(tensor)

    def expired(self) -> bool:
        return self._tensor() is None


_VALUES = {"_jit_can_fuse_on_cpu": lambda *a: False, "_jit_can_fuse_on_gpu": lambda *a: False, "_get_tracing_state": lambda *a: None,
           "_get_privateuse1_backend_name": lambda *a: "privateuseone", "_cuda_getDeviceCount": lambda *a: 0, "_cuda_isInBadFork": False, "_has_mps": False,
           "_is_mps_available": lambda *a: False, "has_cuda": False, "has_mkl": False, "has_openmp": True, "has_mkldnn": True,
           "_GLIBCXX_USE_CXX11_ABI": True, "_WeakTensorRef": _WeakTensorRef, "_are_functorch_transforms_active": lambda: False}


def _nothing(*args, **kwargs) -> None:
    """Accepted; changes nothing."""


def _computed(attribute: str):
    """Names that need another module."""
    if attribute == "_LinAlgError":
        from .. import linalg

        return linalg.LinAlgError
    if attribute in ("is_grad_enabled", "is_inference_mode_enabled"):
        return getattr(_C._autograd, attribute)
    if attribute == "_TensorMeta":
        return type(_C.Tensor)
    if attribute == "_get_default_device":
        from .. import get_default_device

        return lambda: str(get_default_device())
    if attribute == "_nn":
        from ..nn import functional
        from ..nn.module import _parse_to

        room = types.ModuleType("torch._C._nn", "Functions of networks.")
        vars(room).update({name: value for name, value in vars(functional).items() if callable(value) and not name.startswith("_")},
                          _parse_to=_parse_to)
        return room
    return None


def name(attribute: str):
    """What `torch._C` has under a name that the native module has not."""
    if attribute.startswith(_SWITCHES):
        return _nothing
    if attribute in _VALUES:
        return _VALUES[attribute]
    found = _computed(attribute)
    if found is not None:
        return found
    raise AttributeError(f"module 'torch._C' has no attribute '{attribute}'\ntorch._C is tapegrad._C here, the native part of another "
                         "library: what programs of PyTorch call in theirs is not in it", name=attribute)
