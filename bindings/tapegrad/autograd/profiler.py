"""The older interface of the profiler: `with profile() as prof: ...`."""

from .._warn import warn
from ..profiler._events import EventList, FunctionEvent, FunctionEventAvg
from ..profiler.profiler import Recording, record_function

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "emit_itt", "emit_nvtx", "profile", "record_function"]


class profile:
    """Records operators while the context is on; see tapegrad.profiler.profile for the arguments and results."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device=None, record_shapes: bool = False, with_flops: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False,
                 use_cpu: bool = True, experimental_config=None, acc_events: bool = False, custom_trace_id_callback=None,
                 post_processing_timeout_s=None):
        self.enabled = enabled
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes, with_flops, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.function_events: EventList | None = None
        self.entered = False
        self._recording: Recording | None = None
        if use_cuda:
            warn("The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.", FutureWarning)
        if use_cuda or use_device not in (None, "cpu"):
            warn("CUDA is not available, disabling CUDA profiling")

    def __enter__(self):
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._recording = Recording(self.record_shapes, self.profile_memory, self.with_stack, self.with_stack or self.with_modules, self.with_flops)
        return self

    def __exit__(self, *error) -> bool:
        if self._recording is not None:
            recording, self._recording = self._recording, None
            self.function_events = recording.finish()
        return False

    def _finished(self) -> EventList:
        if self.function_events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.function_events

    def __repr__(self) -> str:
        return "<unfinished profile>" if self.function_events is None else repr(self.function_events)

    def __str__(self) -> str:
        return "<unfinished profile>" if self.function_events is None else str(self.function_events)

    def table(self, *args, **kwargs) -> str:
        return self._finished().table(*args, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        self._finished().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        self._finished().export_stacks(path, metric)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        return self._finished().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, each counted once, in microseconds."""
        return self._finished().self_cpu_time_total


class _Markers:
    """Marks for another profiler, which there is none to send to."""

    _what = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled = enabled

    def __enter__(self):
        if self.enabled:
            raise RuntimeError(f"{type(self).__name__}: {self._what}\nuse tapegrad.profiler.profile for a trace of operators")
        return self

    def __exit__(self, *error) -> None:
        return None


class emit_nvtx(_Markers):
    """Ranges for Nsight: RuntimeError where there is no CUDA device."""

    _what = "NVTX ranges need CUDA, which is not available"


class emit_itt(_Markers):
    """Tasks for VTune: RuntimeError, as Intel's ITT is not built in."""

    _what = "Intel's ITT is not built in"


