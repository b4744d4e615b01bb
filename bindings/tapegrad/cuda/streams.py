"""Streams and events of a GPU: queues of work, and marks in them."""

from .. import _C
from .. import device as _Device
from ._core import device_index as _index

__all__ = ["Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream", "get_stream_from_external",
           "set_stream", "stream"]


class Stream:
    """A queue of work on a GPU; what is queued on one stream runs in order, streams run side by side.

    Args:
        device: The GPU; the current one by default.
        priority: Streams of lower numbers go first, see priority_range().
    """

    __slots__ = ("__weakref__", "_as_parameter_", "cuda_stream", "device_index")

    def __new__(cls, device=None, priority: int = 0, **kwargs):
        self = object.__new__(cls)
        if "stream_ptr" in kwargs:  # a stream of another library
            self.cuda_stream, self.device_index = kwargs["stream_ptr"], _index(device, "cuda.ExternalStream")
        elif "stream_id" in kwargs:
            self.cuda_stream = kwargs["stream_id"]
            self.device_index = _index(kwargs.get("device_index", device), "cuda.Stream")
        else:
            self.cuda_stream, self.device_index = _C._cuda_new_stream(_index(device, "cuda.Stream"), priority)
        return self

    def __init__(self, *args, **kwargs):
        pass

    @property
    def stream_id(self) -> int:
        """The queue as a number; 0 is the default stream."""
        return self.cuda_stream

    @property
    def device_type(self) -> int:
        """1, which stands for CUDA."""
        return 1

    @property
    def device(self):
        """The stream's GPU."""
        return _Device("cuda", self.device_index)

    @property
    def priority(self) -> int:
        """What the stream was made with, brought into the GPU's range."""
        return _C._cuda_stream_priority(self.device_index, self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple:
        """The least and the greatest priority, such as (0, -5)."""
        return _C._cuda_priority_range()

    def wait_event(self, event) -> None:
        """Work queued from here on runs after the event. The host does not wait."""
        event.wait(self)

    def wait_stream(self, stream) -> None:
        """Work queued from here on runs after all that `stream` has been given by now. The host does not wait."""
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        """Marks this place in the queue; the event is made when none is given."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done."""
        return _C._cuda_query_stream(self.device_index, self.cuda_stream)

    def synchronize(self) -> None:
        """Waits until all work is done."""
        _C._cuda_synchronize_stream(self.device_index, self.cuda_stream)

    def is_capturing(self) -> bool:
        """Whether the stream's work is being recorded into a graph."""
        return _C._cuda_is_capturing(self.device_index, self.cuda_stream)

    def __eq__(self, other) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.cuda_stream, self.device_index) == (other.cuda_stream, other.device_index)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<tapegrad.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __cuda_stream__(self) -> tuple:
        return (0, self.cuda_stream)

    def __enter__(self):
        context = StreamContext(self)
        context.__enter__()
        _entered.append(context)
        return self

    def __exit__(self, *error):
        return _entered.pop().__exit__(*error)


_entered: list = []


class ExternalStream(Stream):
    """A queue that another library made, by its address; it must live as long as it is used here."""

    __slots__ = ()

    def __new__(cls, stream_ptr: int, device=None, **kwargs):
        return super().__new__(cls, device=device, stream_ptr=stream_ptr)


def get_stream_from_external(data_ptr: int, device=None) -> Stream:
    """A queue that another library made, by its address."""
    return ExternalStream(data_ptr, device)


class Event:
    """A mark in a stream, for other streams and the host to wait for and to measure time between.

    Args:
        enable_timing: Whether elapsed_time may be asked for.
        blocking: Whether a host thread that waits sleeps.
        interprocess: Whether ipc_handle may be asked for; such an event keeps no time.
        external: Accepted for graphs.
    """

    __slots__ = ("__weakref__", "_blocking", "_device", "_interprocess", "_timing", "cuda_event")

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        if enable_timing and interprocess:
            raise RuntimeError("cuda.Event: an event for other processes keeps no time: got enable_timing=True, interprocess=True")
        self._timing, self._blocking, self._interprocess = bool(enable_timing), bool(blocking), bool(interprocess)
        self.cuda_event, self._device = 0, -1
        if _C._cuda_device_count() == 0:
            _C._cuda_current_device("cuda.Event")

    def _make(self, device: int) -> None:
        self.cuda_event = _C._cuda_create_event(device, self._timing, self._blocking, self._interprocess)
        self._device = device

    @property
    def device(self):
        """The GPU of the first record; None before."""
        return None if self._device < 0 else _Device("cuda", self._device)

    @property
    def event_id(self) -> int:
        """The event as a number."""
        return self.cuda_event

    def record(self, stream=None) -> None:
        """Marks the place that a stream has come to; the current stream by default."""
        stream = current_stream() if stream is None else stream
        if not self.cuda_event:
            self._make(stream.device_index)
        if self._device != stream.device_index:
            raise RuntimeError(f"cuda.Event.record: the event is of cuda:{self._device}, the stream of {stream.device}")
        _C._cuda_record_event(stream.device_index, self.cuda_event, stream.cuda_stream)

    def wait(self, stream=None) -> None:
        """Work queued on a stream from here on runs after this event; the current stream by default."""
        stream = current_stream() if stream is None else stream
        if self.cuda_event:
            _C._cuda_stream_wait_event(stream.device_index, stream.cuda_stream, self.cuda_event)

    def query(self) -> bool:
        """Whether the work before the mark is done; True before the first record."""
        return not self.cuda_event or _C._cuda_query_event(self.cuda_event)

    def synchronize(self) -> None:
        """Waits until the work before the mark is done."""
        if self.cuda_event:
            _C._cuda_synchronize_event(self.cuda_event)

    def elapsed_time(self, end_event) -> float:
        """Milliseconds from this mark to another; both must have passed and keep time."""
        if not (self._timing and end_event._timing):
            raise ValueError("cuda.Event.elapsed_time: both events must be created with argument 'enable_timing=True'")
        if not (self.cuda_event and end_event.cuda_event):
            raise ValueError("cuda.Event.elapsed_time: both events must be recorded before their distance is asked for")
        return _C._cuda_elapsed_ms(self.cuda_event, end_event.cuda_event)

    def ipc_handle(self) -> bytes:
        """What another process makes the same event from (from_ipc_handle)."""
        if not self.cuda_event:
            self._make(_index(None, "cuda.Event.ipc_handle"))
        return _C._cuda_event_ipc_handle(self.cuda_event)

    @classmethod
    def from_ipc_handle(cls, device, handle: bytes):
        """The event of another process."""
        self = cls(interprocess=True)
        self._device = _index(device, "cuda.Event.from_ipc_handle")
        self.cuda_event = _C._cuda_open_event(self._device, handle)
        return self

    def __repr__(self) -> str:
        return f"<tapegrad.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<tapegrad.cuda.Event uninitialized>"

    def __del__(self):
        if getattr(self, "cuda_event", 0):
            _C._cuda_destroy_event(self.cuda_event)


def current_stream(device=None) -> Stream:
    """The stream that this thread's work goes to, on the current or the given GPU."""
    stream, index = _C._cuda_current_stream("cuda.current_stream", -1 if device is None else _index(device, "cuda.current_stream"))
    return Stream(stream_id=stream, device_index=index)


def default_stream(device=None) -> Stream:
    """The stream that work goes to without a choice."""
    return Stream(stream_id=0, device_index=_index(device, "cuda.default_stream"))


def set_stream(stream) -> None:
    """Sends this thread's work to a stream, and makes its GPU the current one; None means: no change."""
    if stream is None:
        return
    _C._cuda_set_device(stream.device_index)
    _C._cuda_set_current_stream(stream.device_index, stream.cuda_stream)


class StreamContext:
    """A context in which this thread's work goes to a stream; None means: no change."""

    def __init__(self, stream):
        self.stream = stream
        self._before = []

    def __enter__(self):
        if self.stream is not None:
            device = _C._cuda_current_device("cuda.stream")
            self._before.append((device, _C._cuda_current_stream("cuda.stream", self.stream.device_index)))
            set_stream(self.stream)

    def __exit__(self, *error):
        if self.stream is not None:
            device, (stream, index) = self._before.pop()
            _C._cuda_set_current_stream(index, stream)
            _C._cuda_set_device(device)


def stream(stream) -> StreamContext:
    """A context in which this thread's work goes to a stream; None means: no change."""
    return StreamContext(stream)
