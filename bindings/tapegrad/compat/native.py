"""Names of PyTorch's private native module that scripts call: switches of compilers, which change nothing here."""

from __future__ import annotations

_SWITCHES = ("_jit_set_", "_jit_override_", "_jit_pass_", "_set_graph_executor_optimize", "_log_api_usage", "_debug_set_", "_set_cublas_", "_set_cudnn_",
             "_set_mkldnn_", "_set_deterministic")
_VALUES = {"_jit_can_fuse_on_cpu": lambda *a: False, "_jit_can_fuse_on_gpu": lambda *a: False, "_get_tracing_state": lambda *a: None,
           "_get_privateuse1_backend_name": lambda *a: "privateuseone", "_cuda_getDeviceCount": lambda *a: 0, "_has_mps": False,
           "_is_mps_available": lambda *a: False, "has_cuda": False, "has_mkl": False, "has_openmp": True, "has_mkldnn": True,
           "_GLIBCXX_USE_CXX11_ABI": True}


def _nothing(*args, **kwargs) -> None:
    """Accepted; changes nothing."""


def name(attribute: str):
    """What `torch._C` has under a name that the native module has not."""
    if attribute.startswith(_SWITCHES):
        return _nothing
    if attribute in _VALUES:
        return _VALUES[attribute]
    if attribute == "_LinAlgError":
        from .. import linalg

        return linalg.LinAlgError
    raise AttributeError(f"module 'torch._C' has no attribute '{attribute}'\ntorch._C is tapegrad._C here, the native part of another "
                         "library: what programs of PyTorch call in theirs is not in it", name=attribute)
