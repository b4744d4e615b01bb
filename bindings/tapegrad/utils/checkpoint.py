"""Activation checkpointing: what a function saves for backward is dropped, and computed again when backward needs it."""

import contextlib
import threading

from .. import _C
from .._lazy import more_names
from .._warn import warn
from ..amp.autocast_mode import autocast
from ..autograd import Function, _is_checkpoint_valid, backward, enable_grad, graph, no_grad
from ..random import fork_rng, get_rng_state, set_rng_state
from ._pytree import tree_leaves

__all__ = ["CheckpointError", "CheckpointFunction", "DefaultDeviceType", "check_backward_validity", "checkpoint", "checkpoint_sequential",
           "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
           "set_device_states"]

__getattr__, __dir__ = more_names(__name__)
_here = threading.local()
_debug_enabled: bool | None = None
_early_stop_enabled: bool | None = None


class CheckpointError(RuntimeError):
    """What was computed again is not what was computed first."""


class DefaultDeviceType:
    """The device type whose generators are kept besides the CPU's."""

    _default_device_type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Sets it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """The device type."""
        return DefaultDeviceType._default_device_type


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None):
    """Inside, overrides the argument `debug` of checkpoint; None: leaves it."""
    global _debug_enabled
    before, _debug_enabled = _debug_enabled, enabled
    try:
        yield
    finally:
        _debug_enabled = before


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool):
    """Inside, overrides the argument `early_stop` of checkpoint."""
    global _early_stop_enabled
    before, _early_stop_enabled = _early_stop_enabled, enable
    try:
        yield
    finally:
        _early_stop_enabled = before


def detach_variable(inputs: tuple) -> tuple:
    """The tensors of a tuple off the tape, asking for gradients as before; other values as they are."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"detach_variable: Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")

    def one(value):
        if not isinstance(value, _C.Tensor):
            return value
        detached = value.detach()
        detached.requires_grad = value.requires_grad
        return detached

    return tuple(one(value) for value in inputs)


def check_backward_validity(inputs) -> None:
    """Warns when none of the tensors needs a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, _C.Tensor)):
        warn("None of the inputs have requires_grad=True. Gradients will be None")


def get_device_states(*args) -> tuple[list, list]:
    """(device indices, states of their generators) of the GPU tensors among the arguments."""
    devices = [x.get_device() for x in tree_leaves(args) if isinstance(x, _C.Tensor) and x.device.type not in ("cpu", "meta")]
    from .. import cuda

    return devices, [cuda.get_rng_state(d) for d in devices]


def set_device_states(devices, states, *, device_type=None) -> None:
    """Gives the GPUs' generators the states."""
    from .. import cuda

    for device, state in zip(devices, states, strict=False):
        cuda.set_rng_state(state, device)


def noop_context_fn():
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def inside(context):
    """Inside, functions that are checkpointed have context() around their second run, too: for modules whose parameters are there only in
    their forward pass (distributed.fsdp, DistributedDataParallel in mixed precision)."""
    contexts = _here.__dict__.setdefault("contexts", [])
    contexts.append(context)
    try:
        yield
    finally:
        contexts.pop()


class _Surroundings:
    """The state of the generator and of autocast at the time of the forward pass, and what it was inside of."""

    def __init__(self, preserve_rng_state: bool, args) -> None:
        self.rng = get_rng_state() if preserve_rng_state else None
        self.devices, self.states = get_device_states(*args) if preserve_rng_state else ([], [])
        self.casts = [(device, _C._autocast_enabled(device), _C._autocast_dtype(device)) for device in ("cpu", "cuda")]
        self.cache = _C._autocast_cache_enabled()
        self.contexts = tuple(_here.__dict__.get("contexts", ()))

    @contextlib.contextmanager
    def again(self):
        """Inside, all is as it was, with gradients on; afterwards as it is now."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(fork_rng(devices=self.devices, enabled=self.rng is not None))
            if self.rng is not None:
                set_rng_state(self.rng)
                set_device_states(self.devices, self.states)
            for device, enabled, dtype in self.casts:
                stack.enter_context(autocast(device, dtype=dtype, enabled=enabled, cache_enabled=self.cache))
            stack.enter_context(enable_grad())
            for context in self.contexts:
                if context not in _here.__dict__.get("contexts", ()):
                    stack.enter_context(inside(context))
                    stack.enter_context(context())
            yield


class CheckpointFunction(Function):
    """The form with use_reentrant=True: a custom function whose backward runs the function and its backward."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state, args)
        ctx.places = [i for i, arg in enumerate(args) if isinstance(arg, _C.Tensor)]
        ctx.others = [None if isinstance(arg, _C.Tensor) else arg for arg in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if not _is_checkpoint_valid():
            raise RuntimeError("checkpoint: When use_reentrant=True, torch.utils.checkpoint is incompatible with autograd.grad() or passing an `inputs` parameter to "
                               "backward()\nuse use_reentrant=False, or call backward() without `inputs`")
        inputs = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[place] = tensor
        with ctx.surroundings.again():
            detached = detach_variable(tuple(inputs))
            outputs = ctx.run_function(*detached)
        outputs = (outputs,) if isinstance(outputs, _C.Tensor) else outputs
        pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if isinstance(y, _C.Tensor) and y.requires_grad]
        if not pairs:
            raise RuntimeError("checkpoint: none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([y for y, _ in pairs], [g for _, g in pairs])
        return (None, None, *[x.grad if isinstance(x, _C.Tensor) else None for x in detached])


class _KeepInputs(Function):
    """Keeps the inputs of a checkpointed function as saved tensors, so that a checkpoint around it can drop them, too."""

    @staticmethod
    def forward(ctx, dummy, *tensors):
        ctx.save_for_backward(*tensors)
        return dummy.clone()

    @staticmethod
    def backward(ctx, *grads):
        raise AssertionError("no gradient flows here")


class _Stop(Exception):
    """All that backward needs has been computed again."""


class _Holder:
    """Stands for a saved tensor: the number of its saving."""

    __slots__ = ("frame", "index")

    def __init__(self, frame, index: int) -> None:
        self.frame, self.index = frame, index


def _looks(t) -> tuple:
    return tuple(t.shape), t.dtype, t.device


class _Frame:
    """One run of a checkpointed function."""

    def __init__(self, function, args, kwargs, surroundings, context, check, early_stop: bool) -> None:
        self.function, self.kwargs = function, kwargs
        self.surroundings, self.context, self.check, self.early_stop = surroundings, context, check, early_stop
        self.looks: list[tuple] = []  # of the tensors saved in the forward pass
        self.values: dict[int, object] = {}  # computed again and not yet used
        self.complete = False
        self.places = [i for i, arg in enumerate(args) if isinstance(arg, _C.Tensor)]
        self.others = [None if isinstance(arg, _C.Tensor) else arg for arg in args]
        from .. import empty

        with enable_grad():
            self.inputs = _KeepInputs.apply(empty(0, requires_grad=True), *[args[i] for i in self.places]).grad_fn

    def pack(self, tensor) -> _Holder:
        self.looks.append(_looks(tensor))
        return _Holder(self, len(self.looks) - 1)

    def unpack(self, holder: _Holder):
        if holder.index not in self.values:
            self.run_again()
        return self.values.pop(holder.index)

    def run_again(self) -> None:
        args = list(self.others)
        for place, tensor in zip(self.places, self.inputs.saved_tensors, strict=True):
            args[place] = tensor
        found: list = []

        def keep(tensor):
            found.append(tensor.detach() if tensor.requires_grad else tensor)
            if self.early_stop and len(found) == len(self.looks):
                raise _Stop
            return len(found) - 1

        def give(index):
            return found[index]

        with contextlib.suppress(_Stop), self.surroundings.again(), self.context, \
                graph.saved_tensors_hooks(keep, give):
            self.function(*args, **self.kwargs)
        if not self.complete:  # backward ran within the first run, which has not saved everything yet
            del found[len(self.looks):]
        self.compare(found)
        self.values = dict(enumerate(found))

    def compare(self, found) -> None:
        if len(found) != len(self.looks):
            raise CheckpointError("checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                                  f"Number of tensors saved during forward: {len(self.looks)}\n"
                                  f"Number of tensors saved during recomputation: {len(found)}")
        if not self.check:
            return
        wrong = [f"tensor at position {i}:\nsaved metadata: {was}\nrecomputed metadata: {_looks(t)}"
                 for i, (was, t) in enumerate(zip(self.looks, found, strict=True)) if was != _looks(t)]
        if wrong:
            raise CheckpointError("checkpoint: Recomputed values for the following tensors have different metadata than during the forward "
                                  "pass.\n" + "\n".join(wrong))


def _checks(determinism_check: str) -> bool:
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    return determinism_check == "default"


def _reentrant(use_reentrant: bool | None, who: str) -> bool:
    if use_reentrant is not None:
        return use_reentrant
    warn(f"{who}: the use_reentrant parameter should be passed explicitly: use_reentrant=False is recommended; without it, it is True")
    return True


def _refuse_other(kwargs: dict) -> None:
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))


def checkpoint(function, *args, use_reentrant: bool | None = None, context_fn=noop_context_fn, determinism_check: str = "default",
               debug: bool = False, early_stop: bool = True, **kwargs):
    """function(*args, **kwargs), whose intermediate values are not kept but computed again in backward.

    use_reentrant=False follows every use of the graph: autograd.grad, nested checkpoints, keyword arguments. True takes
    positional arguments only, of which one must need a gradient, and works with backward() alone. `preserve_rng_state`
    (default True) computes again with the random numbers of the first time, and autocast is as it was. `context_fn` gives
    two contexts, for the first and for the second run. `determinism_check`: "default" compares shapes, dtypes and devices
    of what is saved, "none" does not. `early_stop`: the second run ends at the last tensor that is needed.
    Raises CheckpointError when the second run saves something else.
    """
    use_reentrant = _reentrant(use_reentrant, "utils.checkpoint")
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        _refuse_other(kwargs)
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    check = _checks(determinism_check)
    if (_debug_enabled if _debug_enabled is not None else debug) and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    forward_context, again_context = context_fn()
    stop = _early_stop_enabled if _early_stop_enabled is not None else early_stop
    if not _C._autograd.is_grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, _Surroundings(preserve, (args, kwargs)), again_context, check, stop)
    with graph.saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(functions, segments: int, input, use_reentrant: bool | None = None, **kwargs):
    """The functions (a Sequential or a list) one after the other, all but the last of `segments` parts checkpointed."""
    use_reentrant = _reentrant(use_reentrant, "utils.checkpoint.checkpoint_sequential")
    preserve = kwargs.pop("preserve_rng_state", True)
    _refuse_other(kwargs)
    from ..nn import Sequential

    steps = list(functions.children()) if isinstance(functions, Sequential) else list(functions)

    def part(start: int, end: int):
        def run(value):
            for step in steps[start:end]:
                value = step(value)
            return value

        return run

    size = len(steps) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(part(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return part(size * (segments - 1), len(steps))(input)
