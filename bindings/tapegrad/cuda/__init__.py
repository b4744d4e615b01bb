"""CUDA devices: which there are, their streams, events and memory.

The CUDA library is loaded by the first question that needs it. Without a GPU, questions are answered and everything else
says in one sentence what is missing.
"""

from .. import _C
from .._lazy import load as _load
from ._core import device_index as _index
from ._core import missing as _missing
from ._core import report as _report
from ._types import *  # noqa: F403
from ._types import __all__ as _type_names

OutOfMemoryError = _C.OutOfMemoryError
AcceleratorError = RuntimeError
has_half, has_magma = True, False


def is_available() -> bool:
    """Whether tensors can be on a GPU."""
    return _C._cuda_device_count() > 0


def is_initialized() -> bool:
    """Whether the first use of a GPU has been made."""
    return _C._cuda_state()[1]


def init() -> None:
    """Starts CUDA, which the first tensor on a GPU does by itself."""
    _C._cuda_current_stream("cuda.init", -1)


def device_count() -> int:
    """The number of GPUs."""
    return _C._cuda_device_count()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes in bfloat16; without a GPU it does not."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether the current GPU computes in TF32; without a GPU it does not."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list:
    """The architectures that kernels were compiled for; none for a simulated GPU."""
    return _report("cuda.get_arch_list", "versions").get("architectures", []) if is_available() else []


def get_gencode_flags() -> str:
    """The compiler's flags for these architectures."""
    flags = []
    for name in get_arch_list():
        kind, _, number = name.partition("_")
        flags.append(f"-gencode compute=compute_{number},code={kind}_{number}")
    return " ".join(flags)


def is_current_stream_capturing() -> bool:
    """Whether the current stream's work is being recorded into a graph."""
    return _C._cuda_is_captured()


def current_device() -> int:
    """The index of this thread's current GPU; RuntimeError without one."""
    return _C._cuda_current_device("cuda.current_device")


def set_device(device) -> None:
    """Chooses the GPU that `cuda` means for this thread; negative indices mean: no change."""
    if isinstance(device, int) and device < 0:
        return
    _C._cuda_set_device(_index(device, "cuda.set_device"))


def synchronize(device=None) -> None:
    """Waits for all work that a GPU was given."""
    _C._cuda_synchronize(-1 if device is None else _index(device, "cuda.synchronize"))


class _DeviceProperties:
    """A GPU's name, memory and processors, as attributes."""

    def __init__(self, facts: dict):
        self.__dict__.update(facts)

    def __repr__(self) -> str:
        return (f"_CudaDeviceProperties(name={self.name!r}, major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
                f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}, "
                f"L2_cache_size={self.L2_cache_size >> 20}MB)")


def get_device_properties(device=None) -> _DeviceProperties:
    """A GPU's name, memory and processors."""
    op = "cuda.get_device_properties"
    return _DeviceProperties(_report(op, "properties", _index(device, op)))


def get_device_name(device=None) -> str:
    """A GPU's name."""
    return get_device_properties(_index(device, "cuda.get_device_name")).name


def get_device_capability(device=None) -> tuple:
    """A GPU's compute capability, two numbers."""
    properties = get_device_properties(_index(device, "cuda.get_device_capability"))
    return properties.major, properties.minor


def can_device_access_peer(device, peer_device) -> bool:
    """Whether one GPU reads another's memory directly."""
    op = "cuda.can_device_access_peer"
    return _C._cuda_can_access_peer(_index(device, op), _index(peer_device, op))


_WAIT_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode) -> None:
    """What a call does that makes the host wait for the GPU's value: "default" (0) nothing, "warn" (1), "error" (2)."""
    if isinstance(debug_mode, str):
        if debug_mode not in _WAIT_MODES:
            raise RuntimeError(f"cuda.set_sync_debug_mode: expected one of default, warn, error: got {debug_mode!r}")
        debug_mode = _WAIT_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"cuda.set_sync_debug_mode: expected 0, 1 or 2: got {debug_mode}")
    _C._cuda_wait_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """What set_sync_debug_mode was given: 0, 1 or 2."""
    return _C._cuda_wait_mode()


def library_versions() -> dict:
    """NVIDIA's libraries beside CUDA's own: {"cudnn": {"version": 91300}, "nccl": {"missing": "why"}, ...}. Opens them."""
    return _report("cuda.library_versions", "libraries")


class _Runtime:
    """The few functions of CUDA's runtime that programs call through cudart()."""

    class cudaError(int):
        success = 0

    def cudaHostRegister(self, pointer: int, size: int, flags: int) -> int:
        """Pins pages of the host."""
        _C._cuda_register_pinned(pointer, size)
        return 0

    def cudaHostUnregister(self, pointer: int) -> int:
        """Ends that."""
        _C._cuda_register_pinned(pointer, 0)
        return 0

    def cudaMemGetInfo(self, device: int) -> tuple:
        """Free and total bytes of a GPU."""
        return _C._cuda_memory_info(device)

    def cudaProfilerStart(self) -> int:
        """Starts NVIDIA's profiler."""
        _C._cuda_profiler("cuda.cudart", True)
        return 0

    def cudaProfilerStop(self) -> int:
        """Stops NVIDIA's profiler."""
        _C._cuda_profiler("cuda.cudart", False)
        return 0


def cudart() -> _Runtime:
    """CUDA's runtime library, as far as programs call it."""
    _C._cuda_current_device("cuda.cudart")
    return _Runtime()


def check_error(res: int) -> None:
    """Raises RuntimeError for a result of cudart() that is not success."""
    if res != 0:
        raise RuntimeError(f"cuda: error {res}")


current_blas_handle = _missing("current_blas_handle", "cuBLAS's handle belongs to the library")
_NVML = "tapegrad does not ask NVIDIA's management library: use nvidia-smi"
utilization = _missing("utilization", _NVML)
temperature = _missing("temperature", _NVML)
power_draw = _missing("power_draw", _NVML)
clock_rate = _missing("clock_rate", _NVML)
memory_usage = _missing("memory_usage", _NVML)


def _lazy_call(callable, **kwargs) -> None:
    """Calls the function when CUDA starts, which without a GPU it never does."""


def _lazy_call(callable, **kwargs) -> None:
    """Calls the function when CUDA starts, which without a GPU it never does."""


class device:
    """A context in which another GPU is this thread's current one. None and negative indices mean: no change."""

    def __init__(self, device):
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else _index(device, "cuda.device")
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            self.prev_idx = _C._cuda_current_device("cuda.device")
            _C._cuda_set_device(self.idx)

    def __exit__(self, *error):
        if self.idx >= 0:
            _C._cuda_set_device(self.prev_idx)
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
from .streams import (  # noqa: E402
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

_LAZY = ("amp", "comm", "sparse")


def __getattr__(name: str):
    if name == "default_generators":
        return random._generators()
    if name in _LAZY:
        try:
            return _load(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)


__all__ = [*_LAZY, *_memory_names, *_random_names, *_type_names, "AcceleratorError", "CUDAGraph", "Event", "ExternalStream", "OutOfMemoryError", "Stream",
           "StreamContext", "can_device_access_peer", "check_error", "clock_rate", "cudart", "current_blas_handle", "current_device",
           "current_stream", "default_generators", "default_stream", "device", "device_count", "device_of", "get_arch_list",  # noqa: F405
           "get_device_capability", "get_device_name", "get_device_properties", "get_gencode_flags", "get_stream_from_external", "get_sync_debug_mode", "graph",
           "graph_pool_handle", "graphs", "has_half", "has_magma", "init", "is_available", "is_bf16_supported",
           "is_current_stream_capturing", "is_initialized", "is_tf32_supported", "library_versions", "make_graphed_callables", "memory", "memory_usage",
           "nccl", "nvtx", "power_draw", "profiler", "random", "set_device", "set_stream", "set_sync_debug_mode", "stream", "streams",
           "synchronize", "temperature", "utilization"]
