"""CUDA devices. Without any, questions are answered and everything else says in one sentence what is missing."""

from __future__ import annotations

import importlib as _importlib

from .. import _C
from .. import device as _Device
from .._absent import missing_function as _missing_function
from ._types import *  # noqa: F403
from ._types import __all__ as _type_names

OutOfMemoryError = _C.OutOfMemoryError
AcceleratorError = RuntimeError
has_half, has_magma = True, False
default_generators: tuple = ()

_WHY = ("tapegrad was installed without its CUDA library, or there is no CUDA device\n"
        "use device='cpu', or ask tapegrad.cuda.is_available() first")


def _missing(name: str):
    return _missing_function(name if name.startswith("cuda") else f"cuda.{name}", _WHY, RuntimeError)


def is_available() -> bool:
    """Whether tensors can be on a GPU."""
    return False


def is_initialized() -> bool:
    """Whether the first use of a GPU has been made."""
    return False


def device_count() -> int:
    """The number of GPUs."""
    return 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes in bfloat16; without a GPU it does not."""
    return False


def is_tf32_supported() -> bool:
    """Whether the current GPU computes in TF32; without a GPU it does not."""
    return False


def get_arch_list() -> list:
    """The architectures that kernels were compiled for."""
    return []


def get_gencode_flags() -> str:
    """The compiler's flags for these architectures."""
    return ""


def is_current_stream_capturing() -> bool:
    """Whether a graph is being captured; without a GPU never."""
    return False


def current_device() -> int:
    """The index of the current GPU; RuntimeError without one."""
    return _missing("current_device")()


def _no_gpu(name: str, doc: str):
    function = _missing(name)
    function.__doc__ = doc
    return function


current_stream = _no_gpu("current_stream", "The stream that work is queued on.")
default_stream = _no_gpu("default_stream", "The stream that work is queued on without a choice.")
set_device = _no_gpu("set_device", "Chooses the GPU that `cuda` means.")
synchronize = _no_gpu("synchronize", "Waits for all work that was queued.")
init = _no_gpu("init", "Starts CUDA, which the first tensor on a GPU does by itself.")
get_device_name = _no_gpu("get_device_name", "A GPU's name.")
get_device_properties = _no_gpu("get_device_properties", "A GPU's name, memory and processors.")
get_device_capability = _no_gpu("get_device_capability", "A GPU's compute capability, two numbers.")
can_device_access_peer = _no_gpu("can_device_access_peer", "Whether one GPU reads another's memory.")
cudart = _no_gpu("cudart", "CUDA's runtime library.")
current_blas_handle = _no_gpu("current_blas_handle", "cuBLAS's handle.")
get_sync_debug_mode = _no_gpu("get_sync_debug_mode", "What set_sync_debug_mode was given.")
set_sync_debug_mode = _no_gpu("set_sync_debug_mode", "Whether calls that wait for the GPU warn.")
utilization = _no_gpu("utilization", "How busy a GPU is, in percent.")
temperature = _no_gpu("temperature", "A GPU's temperature.")
power_draw = _no_gpu("power_draw", "A GPU's power.")
clock_rate = _no_gpu("clock_rate", "A GPU's clock.")
memory_usage = _no_gpu("memory_usage", "How busy a GPU's memory is, in percent.")


class device:
    """A context in which another GPU is the current one. None and negative indices mean: no change."""

    def __init__(self, device):
        index = device if isinstance(device, int) or device is None else _Device(device).index
        self.idx = -1 if index is None else index
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            set_device(self.idx)

    def __exit__(self, *error):
        return False


class device_of(device):
    """A context in which the GPU of a tensor is the current one; of a tensor on the CPU: no change."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


from . import graphs, memory, nccl, nvtx, profiler, random, streams  # noqa: E402
from .graphs import CUDAGraph, graph, graph_pool_handle, make_graphed_callables  # noqa: E402
from .memory import *  # noqa: E402, F403
from .memory import __all__ as _memory_names  # noqa: E402
from .random import *  # noqa: E402, F403
from .random import __all__ as _random_names  # noqa: E402
from .streams import Event, ExternalStream, Stream, StreamContext, set_stream, stream  # noqa: E402

_LAZY = ("amp", "comm")


def __getattr__(name: str):
    if name in _LAZY:
        try:
            return _importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)


__all__ = [*_LAZY, *_memory_names, *_random_names, *_type_names, "AcceleratorError", "CUDAGraph", "Event", "ExternalStream", "OutOfMemoryError", "Stream",
           "StreamContext", "can_device_access_peer", "clock_rate", "cudart", "current_blas_handle", "current_device",
           "current_stream", "default_generators", "default_stream", "device", "device_count", "device_of", "get_arch_list",
           "get_device_capability", "get_device_name", "get_device_properties", "get_gencode_flags", "get_sync_debug_mode", "graph",
           "graph_pool_handle", "graphs", "has_half", "has_magma", "init", "is_available", "is_bf16_supported",
           "is_current_stream_capturing", "is_initialized", "is_tf32_supported", "make_graphed_callables", "memory", "memory_usage",
           "nccl", "nvtx", "power_draw", "profiler", "random", "set_device", "set_stream", "set_sync_debug_mode", "stream", "streams",
           "synchronize", "temperature", "utilization"]
