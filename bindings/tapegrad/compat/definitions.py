"""Functions and classes of the modules in names.py that take more than a row."""

import contextlib
import dataclasses
import functools
import importlib
import os

_ROOT = __package__.partition(".")[0]


def reset() -> None:
    """Forgets what was recorded: functions that were given to compile() are recorded anew."""
    _record().reset()


def _record():
    return importlib.import_module(f"{_ROOT}.record")


def explain(f, *extra_args, **extra_kwargs):
    """What compile() makes of a function: `explain(f)(*args, **kwargs)` calls it three times (PyTorch: once) and gives an ExplainOutput.

    What is replayed, or waits for its backward pass to be replayed, is one graph; each reason why it runs eagerly is a break. There are no
    graphs to look at: `graphs` is empty. `explain(f, *args, **kwargs)`, as PyTorch once had it, does the same at once.
    """
    def inner(*args, **kwargs) -> ExplainOutput:
        step = _record().record(f)
        for _ in range(3):
            step(*args, **kwargs)
        reasons, calls = sorted(step._reasons), sum(calls for calls, *_ in step._replays.plans())
        return ExplainOutput([], 1 + len(reasons), len(reasons), [GraphCompileReason(reason, []) for reason in reasons], calls)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


@dataclasses.dataclass
class GraphCompileReason:
    """Why a function runs eagerly."""

    reason: str
    user_stack: list
    graph_break: bool = True


@dataclasses.dataclass
class ExplainOutput:
    """What explain() found."""

    graphs: list
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list | None = None
    out_guards: list | None = None
    compile_times: str | None = None

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}", "Break Reasons:"]
        for number, why in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {why.reason}"]
        return "\n".join(lines) + "\n"


class set_stance:
    """A call, a context or a decorator: with "force_eager", what compile() was given runs eagerly. Other stances change nothing."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe=False, force_backend=None):
        self.stance = stance
        self.before = _record().stance("force_eager" if stance == "force_eager" else "default")

    def __call__(self, fn):
        _record().stance(self.before)

        @functools.wraps(fn)
        def within(*args, **kwargs):
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return within

    def __enter__(self):
        return self

    def __exit__(self, *error):
        _record().stance(self.before)


@contextlib.contextmanager
def _switched(module: str, first, second, changes: dict):
    changes = {**(first if isinstance(first, dict) else {} if first is None else {first: second}), **changes}
    config = vars(importlib.import_module(f"{_ROOT}.{module}"))
    before = {name: config[name] for name in changes if name in config}
    config.update(changes)
    try:
        yield
    finally:
        for name in changes:
            config.pop(name)
        config.update(before)


def patch(arg1=None, arg2=None, **changes):
    """Other values of _dynamo.config within a context: patch(name=value), patch({name: value}) or patch("name", value)."""
    return _switched("_dynamo.config", arg1, arg2, changes)


def inductor_patch(arg1=None, arg2=None, **changes):
    """The same of _inductor.config."""
    return _switched("_inductor.config", arg1, arg2, changes)


def functorch_patch(arg1=None, arg2=None, **changes):
    """The same of _functorch.config."""
    return _switched("_functorch.config", arg1, arg2, changes)


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list:
    """The folder with tapegrad's headers, where it is installed with them."""
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
    return [folder] if os.path.isdir(folder) else []


def is_ninja_available() -> bool:
    """Whether the program ninja is there."""
    import shutil

    return shutil.which("ninja") is not None


def DeviceContext(device):  # noqa: N802  a class in PyTorch
    """The device, which is a context: tensors are made on it."""
    return importlib.import_module(_ROOT).device(device)


def set_device(device):
    """A decorator: within the function tensors are made on the device."""
    context_decorator = importlib.import_module(f"{_ROOT}.utils._contextlib").context_decorator
    return lambda function: context_decorator(lambda: DeviceContext(device), function)


def amp_definitely_not_available() -> bool:
    """True without a GPU."""
    return not importlib.import_module(f"{_ROOT}.cuda").is_available()


def _calculate_shape(output, grad, is_grads_batched: bool) -> tuple:
    """The shapes of an output and of its gradient, for messages; without the first dimension of gradients in a batch."""
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


def _format_time(time_us: float) -> str:
    """Microseconds in a unit that suits them: 1.500ms."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


def _maybe_remove_batch_dim(name: str, batched_output, vmap_level: int, batch_size: int, out_dim):
    """What vmap makes of a result of the function `name`, with its samples along `out_dim`."""
    return importlib.import_module(f"{_ROOT}.func._vmap")._from_level(name, batched_output, out_dim, vmap_level, batch_size)


def _validate_and_get_batch_size(flat_in_dims, flat_args) -> int:
    """The number of samples of vmap's arguments. Raises ValueError where it differs, or none is mapped over."""
    return importlib.import_module(f"{_ROOT}.func._vmap")._number_of_samples("", flat_args, flat_in_dims)


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers of 32 bits, by which a worker's NumPy is seeded."""
    import numpy

    return numpy.random.SeedSequence([base_seed, worker_id]).generate_state(4).tolist()


def legacy_get_string(size_average, reduce, emit_warning: bool = True) -> str:
    """"none", "mean" or "sum" by the arguments that `reduction` replaced."""
    import warnings

    reduction = importlib.import_module(f"{_ROOT}.nn._bases")._reduction
    with contextlib.nullcontext() if emit_warning else warnings.catch_warnings():
        if not emit_warning:
            warnings.simplefilter("ignore")
        return reduction(True if size_average is None else size_average, reduce, "mean")


def get_enum(reduction: str) -> int:
    """PyTorch's number of a reduction."""
    numbers = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}
    if reduction not in numbers:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return numbers[reduction]


def legacy_get_enum(size_average, reduce, emit_warning: bool = True) -> int:
    """The number of legacy_get_string."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))


def __getattr__(name: str):
    if name != "Resize":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
    function = importlib.import_module(f"{_ROOT}.autograd").Function

    class Resize(function):
        """The tensor in another shape of as many elements."""

        __qualname__ = "Resize"

        @staticmethod
        def forward(ctx, tensor, sizes):
            ctx.shape = tensor.shape
            return tensor.contiguous().view(sizes).clone()

        @staticmethod
        def backward(ctx, grad):
            return grad.contiguous().view(ctx.shape), None

    globals()[name] = Resize
    return Resize
