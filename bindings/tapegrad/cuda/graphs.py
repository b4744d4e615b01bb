"""Graphs of CUDA: work that is recorded once and replayed by one call, on whatever then lies at the same addresses."""

from .. import _C
from ._core import device_index as _index
from .streams import Stream, current_stream

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing() -> bool:
    """Whether the current stream's work is being recorded into a graph."""
    return _C._cuda_is_captured()


def graph_pool_handle() -> tuple:
    """A name for memory that several graphs share: graphs that are replayed in the order of their capture may."""
    return (0, _C._cuda_new_pool())


class CUDAGraph:
    """Recorded work of a GPU.

    What is made during the capture lives in memory of the graph and stays at its address: copy new input into the tensors that
    the capture read, replay, and read the results where it put them. Random numbers are new in each replay: those that the same
    work would draw without a graph, from where its generators are when replay is called.

    Args:
        keep_graph: Whether the recorded graph is kept for debug_dump after it was made ready for replay.
    """

    def __init__(self, keep_graph: bool = False):
        _C._cuda_current_device("cuda.CUDAGraph")
        self._keep, self._debug = keep_graph, False
        self._graph = self._exec = 0
        self._pool = None
        self._device = -1
        self._stream = None

    def capture_begin(self, pool=None, capture_error_mode: str = "global") -> None:
        """Records the current stream's work, which must not be the default stream's, until capture_end.

        Args:
            pool: Memory to share: graph_pool_handle(), or another graph's pool().
            capture_error_mode: What other calls spoil it: "global", "thread_local" or "relaxed".
        """
        if self._stream is not None or self._exec or self._graph:
            raise RuntimeError("cuda.CUDAGraph.capture_begin: this graph has been captured: make another, or call reset")
        stream = current_stream()
        number = _C._cuda_new_pool() if pool is None else getattr(pool, "id", pool)[1]
        if stream.cuda_stream == 0:
            raise RuntimeError("cuda.CUDAGraph.capture_begin: the default stream cannot be captured\nuse tapegrad.cuda.graph(g), "
                               "or a stream of your own")
        _C._cuda_begin_capture(stream.device_index, stream.cuda_stream, number, capture_error_mode)
        self._stream, self._pool, self._device = stream, number, stream.device_index

    def capture_end(self) -> None:
        """Ends the recording and makes it ready for replay."""
        if self._stream is None:
            raise RuntimeError("cuda.CUDAGraph.capture_end: no capture was begun")
        stream, self._stream = self._stream, None
        self._graph = _C._cuda_end_capture(stream.device_index, stream.cuda_stream, self._pool)
        _C._cuda_pool("retain", self._device, self._pool)
        if not self._keep:
            self.instantiate()

    def instantiate(self) -> None:
        """Makes the recorded graph ready for replay; capture_end does so unless keep_graph is set."""
        if not self._graph:
            raise RuntimeError("cuda.CUDAGraph.instantiate: nothing has been captured")
        self._exec = _C._cuda_instantiate(self._graph)
        if not (self._keep or self._debug):
            _C._cuda_destroy_graph(self._graph, 0)
            self._graph = 0

    def replay(self) -> None:
        """Queues the recorded work on the current stream; the generators that it draws from go on, as if it had been run."""
        if not self._exec:
            if not self._graph:
                raise RuntimeError("cuda.CUDAGraph.replay: nothing has been captured")
            self.instantiate()
        stream = current_stream(self._device)
        _C._cuda_launch_graph(self._device, self._exec, stream.cuda_stream)

    def reset(self) -> None:
        """Forgets the recorded work; its memory may be used for other things."""
        if self._graph or self._exec:
            _C._cuda_destroy_graph(self._graph, self._exec)
            _C._cuda_pool("release", self._device, self._pool)
            self._graph = self._exec = 0

    def register_generator_state(self, generator) -> None:
        """Accepted, and not needed: a capture finds the generators that its work draws from."""
        if not isinstance(generator, _C.Generator):
            raise TypeError(f"cuda.CUDAGraph.register_generator_state: expected a Generator: got {type(generator).__name__}")

    def pool(self) -> tuple:
        """The graph's memory, for captures that share it."""
        if self._pool is None:
            raise RuntimeError("cuda.CUDAGraph.pool: nothing has been captured")
        return (0, self._pool)

    def enable_debug_mode(self) -> None:
        """Keeps what debug_dump needs; to be called before the capture."""
        self._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Writes the graph as a Graphviz file."""
        if not self._graph:
            raise RuntimeError("cuda.CUDAGraph.debug_dump: call enable_debug_mode before the capture")
        with open(debug_path, "w", encoding="utf-8") as file:
            file.write(_C._cuda_graph_dot(self._graph))

    def raw_cuda_graph(self) -> int:
        """The graph's address."""
        return self._graph

    def raw_cuda_graph_exec(self) -> int:
        """The address of what is replayed."""
        return self._exec

    def __del__(self):
        if getattr(self, "_graph", 0) or getattr(self, "_exec", 0):
            self.reset()


class graph:
    """A context that records its work into a CUDAGraph.

    Args:
        cuda_graph: The graph.
        pool: Memory to share, see CUDAGraph.capture_begin.
        stream: The stream to record on; one that is kept for this by default.
        capture_error_mode: See CUDAGraph.capture_begin.
    """

    default_capture_stream = None

    def __init__(self, cuda_graph: CUDAGraph, pool=None, stream=None, capture_error_mode: str = "global"):
        if stream is None:
            kept = graph.default_capture_stream
            if kept is None or kept.device_index != _index(None, "cuda.graph"):
                graph.default_capture_stream = kept = Stream()
            stream = kept
        self.pool, self.capture_stream, self.cuda_graph = pool, stream, cuda_graph
        self.stream_ctx = None
        self.capture_error_mode = capture_error_mode

    def __enter__(self):
        import gc

        from . import StreamContext, empty_cache, synchronize

        synchronize()
        gc.collect()  # what is freed during a capture would wait for its end
        empty_cache()
        self.stream_ctx = StreamContext(self.capture_stream)
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, kind, error, trace):
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if error is None:
                raise  # else what spoilt the capture is the better message
        finally:
            self.stream_ctx.__exit__(kind, error, trace)


def make_graphed_callables(callables, sample_args, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool=None):
    """Modules or functions whose forward and backward passes are graphs; called as before, with tensors of the sample's shapes.

    Args:
        callables: One module or function, or a tuple of them in the order in which they run.
        sample_args: Arguments of one call (a tuple of tensors), or a tuple of those; their shapes, dtypes and requires_grad hold
            for all later calls.
        num_warmup_iters: Calls before the capture.
        allow_unused_input: Whether inputs without a gradient are fine.
        pool: Memory to share.
    """
    from ._graphed import graphed_callables

    return graphed_callables(callables, sample_args, num_warmup_iters, allow_unused_input, pool)
