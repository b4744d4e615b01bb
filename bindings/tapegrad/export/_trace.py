"""export: runs a model and records its calls of operators."""

from __future__ import annotations

import inspect
import itertools

from .. import _C, Tensor, contiguous_format, device, dtype, get_rng_state, no_grad, set_rng_state, strided
from .._root.recording import exporting
from ..nn import Module
from ..overrides import has_torch_function
from ..utils._pytree import tree_flatten, tree_leaves
from ._dims import Symbols, enlarged
from ._program import ExportedProgram

_MOST_SYMBOLS = 6


def _arguments(function, args: tuple, kwargs: dict) -> dict:
    """The arguments by the names of the function's parameters, in the order of (args, kwargs)."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named: dict = {}
    rest = list(args)
    for parameter in parameters:
        if not rest or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            break
        if parameter.kind is parameter.VAR_POSITIONAL:
            named[parameter.name], rest = tuple(rest), []
        else:
            named[parameter.name] = rest.pop(0)
    named.update((f"arg_{i}", value) for i, value in enumerate(rest))
    return named | kwargs


class _Run:
    """How the model is called again with other inputs."""

    def __init__(self, function, args: tuple, kwargs: dict) -> None:
        self.function = function
        leaves, self.spec = tree_flatten((args, kwargs))
        for i, leaf in enumerate(leaves):  # one tensor in two places is two inputs
            if isinstance(leaf, Tensor) and any(leaf is other for other in leaves[:i]):
                leaves[i] = leaf.detach()
        self.leaves = leaves
        self.named = _arguments(getattr(function, "forward", function), *self.spec.unflatten(leaves))
        self.at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        for i in self.at:
            if has_torch_function((leaves[i],)) or leaves[i].layout is not strided or leaves[i].device.type != "cpu":
                raise TypeError(f"export: expected plain dense tensors on the CPU as arguments: got a {type(leaves[i]).__name__} on "
                                f"{leaves[i].device} with the layout {leaves[i].layout}")
        self.inputs = [leaves[i].detach().clone(memory_format=contiguous_format) for i in self.at]
        self.names = self._names()
        state = {}
        if isinstance(function, Module):
            state = dict(itertools.chain(function.named_parameters(), function.named_buffers()))
        self.state = state
        self.names = [f"arg_{n}" if n in state else n for n in self.names]

    def _names(self) -> list[str]:
        names = {}
        for name, value in self.named.items():
            tensors = [t for t in tree_leaves(value) if isinstance(t, Tensor)]
            for i, t in enumerate(tensors):
                names.setdefault(id(t), name if len(tensors) == 1 else f"{name}_{i}")
        return [names.get(id(self.leaves[i]), f"arg_{i}") for i in self.at]

    def call(self, inputs: list):
        leaves = list(self.leaves)
        for i, t in zip(self.at, inputs, strict=True):
            leaves[i] = t
        args, kwargs = self.spec.unflatten(leaves)
        return self.function(*args, **kwargs)

    def trace(self, inputs: list):
        """(program, leaves of the result, their nesting)."""
        inputs = [t.detach().clone(memory_format=contiguous_format) for t in inputs]
        state = get_rng_state()
        tracer = _C._Tracer(list(zip(self.names, inputs, strict=True)), list(self.state.items()))
        try:
            leaves, spec = tree_flatten(self.call(inputs))
            for leaf in leaves:
                if not isinstance(leaf, (Tensor, int, float, complex, str, type(None), dtype, device)):
                    raise TypeError(f"export: expected tensors, numbers and texts as results: got {type(leaf).__name__}")
            return tracer.finish([t for t in leaves if isinstance(t, Tensor)]), leaves, spec
        finally:
            tracer.stop()
            set_rng_state(state)


def export(mod, args: tuple, kwargs: dict | None = None, *, dynamic_shapes=None, strict: bool = False,
           preserve_module_call_signature=()) -> ExportedProgram:
    """The operators that `mod(*args, **kwargs)` calls, as a program that no longer needs the code.

    `mod` is a module or a function of tensors; it runs without gradients, once, and once more for each set of sizes that may change.
    `dynamic_shapes` gives them: a dictionary by the names of arguments, or a tuple in their order; for a tensor a dictionary from
    dimensions to a `Dim`, or a tuple of one per dimension. Arguments that are no tensors keep their values, and conditions on sizes
    are taken as in the example. The program shares the weights with the module.

    Raises RuntimeError, with the line, for what a program cannot repeat: values of tensors that decide what happens next, writes to weights or
    buffers (a module in training mode), results of backward passes; ValueError where something depends on a size in a way that no sum of
    products of sizes says, or the program has other results than the code."""
    if not isinstance(args, tuple):
        raise TypeError(f"export: Expecting args to be a tuple of example positional inputs, got {type(args)}")
    if not callable(mod):
        raise TypeError(f"export: expected a module or a function: got {type(mod).__name__}")
    run = _Run(mod, args, dict(kwargs or {}))
    symbols = Symbols()
    _walk(symbols, dynamic_shapes, run)
    if len(symbols.found) > _MOST_SYMBOLS:
        raise ValueError(f"export: at most {_MOST_SYMBOLS} sizes may change: got {len(symbols.found)}")
    with no_grad(), exporting():
        program, leaves, spec = run.trace(run.inputs)
        _verify(run, program, run.inputs, leaves)
        if symbols.found:
            _generalize(run, program, symbols.found, spec)
    return ExportedProgram(program, run, leaves, spec, symbols.found, (args, dict(kwargs or {})))


def _walk(symbols: Symbols, shapes, run: _Run) -> None:
    if shapes is None:
        return
    numbers = {id(run.leaves[at]): i for i, at in enumerate(run.at)}
    if isinstance(shapes, (tuple, list)):
        if len(shapes) != len(run.named):
            raise ValueError(f"dynamic_shapes: expected one entry for each of {len(run.named)} arguments: got {len(shapes)}")
        shapes = dict(zip(run.named, shapes, strict=True))
    for name, spec in shapes.items():
        if name not in run.named:
            raise ValueError(f"dynamic_shapes: there is no argument {name!r}: {', '.join(run.named)}")
        symbols.walk(spec, run.named[name], numbers, name)


def _generalize(run: _Run, program, symbols: dict[str, list], spec) -> None:
    names = list(symbols)
    subsets = [[n for k, n in enumerate(names) if i >> k & 1] for i in range(1, 1 << len(names))]
    programs = []
    for larger in ({n: 1 for n in subset} for subset in subsets):
        programs.append(run.trace(enlarged(run.inputs, symbols, larger))[0])
    check = enlarged(run.inputs, symbols, dict.fromkeys(names, 3))
    last, leaves, other = run.trace(check)
    if other != spec:
        raise ValueError("export: the result is nested in another way for other sizes")
    program.generalize([(n, symbols[n][0], symbols[n][1]) for n in names], [*programs, last])
    _verify(run, program, check, leaves)


def _verify(run: _Run, program, inputs: list, leaves: list) -> None:
    """Runs a copy of the program on the same inputs: it must have the results of the code."""
    state = get_rng_state()
    results = program.part(program.inputs(), program.outputs()).run([t.clone() for t in inputs], False)
    set_rng_state(state)
    for mine, theirs in zip(results, (t for t in leaves if isinstance(t, Tensor)), strict=True):
        if mine.shape != theirs.shape or mine.dtype is not theirs.dtype or not ((mine == theirs) | (mine != mine) & (theirs != theirs)).all():
            raise ValueError("export: the program has other results than the code, which goes by something that no operator has")


export_for_training = export


def name(tensor: Tensor, text: str) -> Tensor:
    """Names a value of the program that is being made, so that it can be given or asked for by that name. Returns the tensor; without
    an export it does nothing else."""
    _C._name_value(tensor, text)
    return tensor


