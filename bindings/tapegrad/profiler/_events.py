"""What a profile consists of: events, their averages, and how they are made from the recorder's logs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from .. import _C
from ._flops import flops_of

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "read_logs"]

_OPERATOR, _ENGINE, _NODE, _MODULE, _ANNOTATION = range(5)
_ENGINE_PREFIX = "autograd::engine::evaluate_function: "


class Interval:
    """A time range in microseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval(start={self.start}, end={self.end})"


class _Times:
    """Times in microseconds of what has `count`, `cpu_time_total` and `self_cpu_time_total`. There is no device's time."""

    device_time = device_time_total = self_device_time_total = 0.0
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = cuda_memory_usage = self_cuda_memory_usage = 0

    @property
    def cpu_time(self) -> float:
        """The mean time of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        return format_time(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        return format_time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return format_time(self.self_cpu_time_total)


def format_time(us: float) -> str:
    """Microseconds with a unit: 1.234ms."""
    return f"{us / 1e6:.3f}s" if us >= 1e6 else f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


class FunctionEvent(_Times):
    """One call: of an operator, of a node of backward, of a module or of a part of the program with a name.

    `name`; `time_range` in microseconds; `thread`; `input_shapes` (with record_shapes); `stack`, lines of the program from
    the innermost (with_stack; a node of backward has those of its forward call); `module_path`, the module that runs, or whose
    forward call backward runs (with_modules); `cpu_memory_usage`, bytes allocated less freed (profile_memory);
    `cpu_parent`, `cpu_children`; `sequence_nr`, which a node shares with the operator that made it.
    """

    count = 1
    is_async = is_remote = is_legacy = False
    device_type = "cpu"
    device_index = -1
    overload_name = ""
    kernels = ()

    def __init__(self, id, name, thread, start_us, end_us, *, kind=_OPERATOR, cpu_memory_usage: int = 0, sequence_nr: int = -1, inputs=None,
                 node_id: int = -1):
        self.id, self.kind, self.name, self.trace_name, self.thread, self.fwd_thread = id, kind, name, name, thread, None
        self.time_range = Interval(start_us, end_us)
        self.sequence_nr, self.node_id = sequence_nr, node_id
        self.inputs = inputs
        self.cpu_memory_usage = cpu_memory_usage
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.stack: list[str] = []
        self.module_path: str | None = None
        self.flops = None

    @property
    def key(self) -> str:
        return self.name

    @property
    def is_user_annotation(self) -> bool:
        return self.kind == _ANNOTATION

    @property
    def scope(self) -> int:
        return {_OPERATOR: 0, _ENGINE: 1, _NODE: 1, _MODULE: 3, _ANNOTATION: 7}[self.kind]

    @property
    def input_shapes(self) -> list:
        """A list of sizes per argument; empty for what is no tensor, a list of them for a list of tensors."""
        return [_shape_of(a) for a in self.inputs or ()]

    @property
    def concrete_inputs(self) -> list:
        """The arguments that are integers."""
        return [a if isinstance(a, (int, tuple)) and not _is_tensor(a) else None for a in self.inputs or ()]

    @property
    def cpu_time_total(self) -> float:
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum(c.cpu_memory_usage for c in self.cpu_children)

    def __repr__(self) -> str:
        return (f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} cpu_start_us={self.time_range.start:.3f} "
                f"thread={self.thread} input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>")


class FunctionEventAvg(_Times):
    """Calls with one key, added up."""

    device_type = "cpu"
    is_async = is_remote = is_legacy = False
    overload_name = ""

    def __init__(self, key: str = "Total"):
        self.key, self.count = key, 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.input_shapes: list | None = None
        self.stack: list[str] | None = None
        self.module_path: str | None = None
        self.flops = 0
        self.cpu_parent = self.cpu_children = None

    @property
    def name(self) -> str:
        return self.key

    def add(self, event, total: bool = True):
        """Adds an event; total=False when its whole time is another's that was added."""
        self.count += event.count
        self.self_cpu_time_total += event.self_cpu_time_total
        self.self_cpu_memory_usage += event.self_cpu_memory_usage
        if total:
            self.cpu_time_total += event.cpu_time_total
            self.cpu_memory_usage += event.cpu_memory_usage
        self.flops += event.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
                f"count={self.count} input_shapes={self.input_shapes}>")


class EventList(list):
    """Events, or averages of them, that can be printed, averaged and written as a trace."""

    def __init__(self, *args, profile_memory: bool = False, with_flops: bool = False, **kwargs):
        super().__init__(*args)
        self._profile_memory, self._with_flops = profile_memory, with_flops
        self._metadata: dict = {}

    def _like(self, events) -> EventList:
        return EventList(events, profile_memory=self._profile_memory, with_flops=self._with_flops)

    def __str__(self) -> str:
        return self.table()

    def _populate_cpu_children(self) -> None:
        """Makes events that lie within others of their thread, in time, children of these: of the shortest."""
        open_events: dict = {}  # by thread, each within the one before
        for event in sorted(self, key=lambda e: (e.time_range.start, -e.time_range.end)):
            above = open_events.setdefault((event.thread, event.node_id), [])
            while above and (event.time_range.start >= above[-1].time_range.end or event.time_range.end > above[-1].time_range.end):
                above.pop()
            if above:
                event.cpu_parent = above[-1]
                above[-1].cpu_children.append(event)
            above.append(event)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, each counted once, in microseconds."""
        return sum(e.self_cpu_time_total for e in self)

    def table(self, sort_by=None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header=None, top_level_events_only: bool = False, time_unit=None) -> str:
        """The events as a table, the largest of attribute `sort_by` (cpu_time_total, self_cpu_time_total, cpu_memory_usage, count
        ...) first; at most `row_limit` rows (-1: all)."""
        from ._table import build_table

        return build_table(self, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header,
                           top_level_events_only, time_unit)

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """One row per name; and per shapes of the inputs, and per the innermost lines of the program, where asked for."""
        groups: dict = {}
        for e in self:
            key = (e.name, str(e.input_shapes) if group_by_input_shapes else "", tuple(e.stack[:group_by_stack_n]) if group_by_stack_n else ())
            if key not in groups:
                average = groups[key] = FunctionEventAvg(e.name)
                average.input_shapes = e.input_shapes if group_by_input_shapes else None
                average.stack = e.stack[:group_by_stack_n] if group_by_stack_n else None
            groups[key].add(e)
        return self._like(groups.values())

    def _averages_by(self, attribute: str) -> EventList:
        """Averages by what operators and nodes have in common: own times add up; whole times of those with no ancestor there."""
        groups: dict = {}
        for e in self:
            key = _first_line(e) if attribute == "stack" else e.module_path
            if key is None or e.kind in (_ANNOTATION, _MODULE):
                continue
            above = e.cpu_parent
            while above is not None and ((_first_line(above) if attribute == "stack" else above.module_path) != key or above.kind == _MODULE):
                above = above.cpu_parent
            groups.setdefault(key, FunctionEventAvg(key)).add(e, total=above is None)
        return self._like(groups.values())

    def line_averages(self) -> EventList:
        """One row per line of the program (with_stack): its operators, and those that backward runs for them."""
        return self._averages_by("stack")

    def module_averages(self) -> EventList:
        """One row per module (with_modules): its own operators without those of its children, forward and backward."""
        return self._averages_by("module_path")

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        total = FunctionEventAvg()
        for e in self:
            total.add(e)
        return total

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events for chrome://tracing or Perfetto; compressed where the path ends with .gz."""
        from ._trace import write_trace

        write_trace(self, path, self._metadata)

    @staticmethod
    def supported_export_stacks_metrics() -> list:
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Writes a line `outer;inner COUNT` per stack for flame graphs, COUNT being the metric in microseconds."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError("export_stacks: metric should be one of: " + str(self.supported_export_stacks_metrics()))
        sums: dict = defaultdict(float)
        for e in self:
            if e.stack:
                sums[";".join(s.replace(" ", "_").replace(";", ",") for s in [*reversed(e.stack), e.name])] += getattr(e, metric)
        with open(path, "w") as file:
            for stack, value in sums.items():
                if round(value) > 0:
                    file.write(f"{stack} {round(value)}\n")


def _is_tensor(a) -> bool:
    return isinstance(a, tuple) and len(a) == 2 and isinstance(a[1], list)


def _shape_of(a) -> list:
    if _is_tensor(a):
        return a[1]
    return [_shape_of(b) for b in a] if isinstance(a, list) else []


def _first_line(event):
    return event.stack[0] if event.stack else None


class _Lines:
    """Texts of stacks."""

    def __init__(self):
        self.of_site, self.of_stack = {}, {}

    def site(self, number: int) -> str:
        if number not in self.of_site:
            place, function = _C._profiler_site(number)
            file, _, line = place.rpartition(":")
            self.of_site[number] = f"{file}({line}): {function}"
        return self.of_site[number]

    def stack(self, site: int, stack: int) -> list:
        key = site, stack
        if key not in self.of_stack:
            sites = _C._profiler_stack(stack) if stack else [site] if site else []
            self.of_stack[key] = [self.site(s) for s in sites]
        return self.of_stack[key]


class _Paths:
    """Paths of modules by the names that the calling modules have for them; the outermost is called after its class."""

    def __init__(self, modules):
        self.modules, self.known, self.counts, self.labels = modules, {}, defaultdict(int), {}

    def label(self, number: int) -> str:
        """Class and a running number per class, as PyTorch's."""
        if number not in self.labels:
            name = type(self.modules[number]).__name__
            self.labels[number] = f"nn.Module: {name}_{self.counts[name]}"
            self.counts[name] += 1
        return self.labels[number]

    def path(self, number: int, parent: int | None, parent_path: str | None) -> str:
        module = self.modules[number]
        if parent is None:
            return type(module).__name__
        if parent not in self.known:
            self.known[parent] = {id(m): name for name, m in self.modules[parent].named_modules()}
        name = self.known[parent].get(id(module), type(module).__name__)
        return f"{parent_path}.{name}" if name else parent_path


def read_logs(threads, modules, with_flops: bool = False):
    """Events of all threads, by their beginning, from what _C._profiler_stop() gives; and how many were dropped."""
    lines, paths = _Lines(), _Paths(modules)
    events, dropped = [], 0
    makers: dict = {}  # (thread, sequence number) -> the operator that made the node
    for thread, lost, log in threads:
        dropped += lost
        mine: list[FunctionEvent] = []
        numbers: list = []  # of the module that runs, per event
        for kind, name, begin, end, size, sequence, parent, site, stack, detail in log:
            if kind == _OPERATOR:
                name = "aten::" + name
            elif kind == _ENGINE:
                name = _ENGINE_PREFIX + name
            elif kind == _MODULE:
                name = paths.label(detail)
            event = FunctionEvent(len(events) + len(mine), name, thread, begin / 1e3, end / 1e3, kind=kind, cpu_memory_usage=size,
                                  sequence_nr=sequence or -1, inputs=detail if kind == _OPERATOR else None)
            event.stack = lines.stack(site, stack)
            above = mine[parent] if parent >= 0 else None
            number = numbers[parent] if parent >= 0 else None
            if above is not None:
                event.cpu_parent = above
                above.cpu_children.append(event)
                event.module_path = above.module_path
            if kind == _MODULE:
                event.module_path = paths.path(detail, number, event.module_path)
                number = detail
            if kind == _OPERATOR and sequence:
                makers[thread, sequence] = event
            if with_flops and detail and kind == _OPERATOR:
                event.flops = flops_of(name[6:], detail)
            mine.append(event)
            numbers.append(number)
        events += mine
    _connect_backward(events, makers)
    return events, dropped


def _connect_backward(events, makers) -> None:
    """Gives nodes, and what runs in them, the module and the lines of the forward call. A node is run by any thread."""
    by_sequence = {sequence: event for (_, sequence), event in makers.items()}
    order = sorted(by_sequence)
    for e in events:
        if e.kind in (_ENGINE, _NODE):
            maker = makers.get((e.thread, e.sequence_nr)) or by_sequence.get(e.sequence_nr)
            if maker is None and e.name.endswith("AccumulateGrad"):  # made behind the node of the operator that first used the leaf
                at = bisect_right(order, e.sequence_nr)
                maker = by_sequence[order[at - 1]] if at else None
            if maker is not None:
                e.fwd_thread, e.module_path = maker.thread, maker.module_path
                e.stack = maker.stack or e.stack
        elif e.cpu_parent is not None and e.cpu_parent.fwd_thread is not None:
            e.fwd_thread, e.module_path = e.cpu_parent.fwd_thread, e.cpu_parent.module_path
            e.stack = e.cpu_parent.stack or e.stack
