"""ExportedProgram, and the module that runs one."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import Tensor, is_grad_enabled
from ..nn import Module, Parameter
from ..utils._pytree import tree_flatten, tree_unflatten
from ._graph import Graph


@dataclass
class ExportGraphSignature:
    """Which values of a program are parameters, buffers, arguments and results, by name."""

    parameters: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    user_inputs: list[str] = field(default_factory=list)
    user_outputs: list[str] = field(default_factory=list)


@dataclass
class ValueRange:
    """The least and the largest value of a size that may change; `upper` None: any."""

    lower: int
    upper: int | None


class ExportedProgram:
    """What a model's forward did, as operators by name. Made by `export`, read by `load`.

    `module()` gives a module that does the same, with the weights as its parameters; `run` takes and gives any values by name; `graph` has the
    operators one by one; `save` writes it for `load` and for C++ (`tapegrad::Record`)."""

    _flat: tuple[bool, bool] | None = None

    def __init__(self, program, run, leaves, spec, symbols, example_inputs) -> None:
        self._program = program
        self._in_spec, self._out_spec = run.spec, spec
        # Of the leaves of arguments and of the result: None is a tensor of the program, everything else a value that stays.
        self._in_values = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in run.leaves]
        self._out_values = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]
        self._arguments = list(run.named)
        self.example_inputs = example_inputs
        self.range_constraints = {name: ValueRange(least, most) for name, (_, _, least, most) in symbols.items()}
        self._state = dict(run.state)
        parameters = {name for name, t in run.state.items() if isinstance(t, Parameter)}
        self.graph_signature = ExportGraphSignature([n for n in run.state if n in parameters], [n for n in run.state if n not in parameters],
                                                    program.inputs(), program.outputs())

    @classmethod
    def _restored(cls, **state) -> ExportedProgram:
        made = cls.__new__(cls)
        made.__dict__.update(state)
        return made

    # --- what is in it ---

    @property
    def graph(self) -> Graph:
        """The operators and values, as in `torch.fx`."""
        return Graph(self._program)

    def picture(self):
        """An SVG of the operators with sizes and bytes: `str` is its text, `.save(path)` writes it, notebooks show it."""
        from ._picture import draw

        return draw(self.graph)

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict(self._state)

    @property
    def constants(self) -> dict[str, Tensor]:
        """Tensors that the code made or read and that are no parameters or buffers."""
        return {name: t for name, _, _, t in self._program.values() if t is not None and name not in self._state}

    def named_parameters(self):
        """(name, parameter) of each."""
        return iter([(n, self._state[n]) for n in self.graph_signature.parameters])

    def parameters(self):
        """The parameters."""
        return iter([p for _, p in self.named_parameters()])

    def named_buffers(self):
        """(name, buffer) of each."""
        return iter([(n, self._state[n]) for n in self.graph_signature.buffers])

    def buffers(self):
        """The buffers."""
        return iter([b for _, b in self.named_buffers()])

    def run_decompositions(self, decomp_table=None) -> ExportedProgram:
        """The program itself: its operators are the ones that there are."""
        return self

    def __str__(self) -> str:
        return self._program.text()

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    # --- running it ---

    def module(self, check_guards: bool = True) -> Module:
        """A module that runs the program. Its parameters and buffers are those of the program, under the names that they had."""
        return ExportedModule(self)

    def run(self, feeds: dict[str, Tensor], fetches: list[str] | None = None) -> list[Tensor]:
        """The values that are named in `fetches` (the results where it is None), computed from those in `feeds`; only the operators
        between them run, on no tape. Names are those that `graph` and `str` show, and those given by `tapegrad.export.name`.

        Raises KeyError for an unknown name, ValueError where a result needs an argument that is not fed, or another size is fed."""
        names = self._program.outputs() if fetches is None else list(fetches)
        parts = self.__dict__.setdefault("_parts", {})
        key = tuple(feeds), tuple(names)
        if key not in parts:
            parts[key] = self._program.part(list(feeds), names)
        return parts[key].run(list(feeds.values()), False)

    def _call(self, args, kwargs, tape: bool):
        if self._flat is None:  # whether the arguments are tensors alone, by position, and the result is one
            (positional, named), values = self._in_spec.children_specs, self._in_values
            self._flat = not named.children_specs and len(positional.children_specs) == values.count(None) == len(values), self._out_spec.is_leaf()
        if self._flat[0] and not kwargs and len(args) == len(self._in_values) and all(isinstance(t, Tensor) for t in args):
            inputs = list(args)
        else:
            inputs = self._inputs(args, kwargs)
        if self.range_constraints:
            self._check_ranges(inputs)
        results = self._program.run(inputs, tape and (any(t.requires_grad for t in inputs) or any(p.requires_grad for p in self.parameters())))
        if self._flat[1] and results:
            return results[0]
        results = iter(results)
        return tree_unflatten([next(results) if kept is None else kept[0] for kept in self._out_values], self._out_spec)

    def _inputs(self, args, kwargs) -> list:
        leaves, spec = tree_flatten((args, kwargs))
        if spec != self._in_spec:
            leaves = self._by_name(args, kwargs)
        inputs = []
        for leaf, kept in zip(leaves, self._in_values, strict=True):
            if kept is None:
                if not isinstance(leaf, Tensor):
                    raise TypeError(f"exported program: expected a tensor where the example had one: got {type(leaf).__name__}")
                inputs.append(leaf)
            elif leaf is not kept[0] and leaf != kept[0]:
                raise ValueError(f"exported program: an argument was {kept[0]!r} in the example, and cannot be {leaf!r}")
        return inputs

    def _check_ranges(self, inputs: list) -> None:
        for name, _, places in self._program.symbols():
            allowed, (number, dim) = self.range_constraints.get(name), places[0]
            if allowed is None or inputs[number].ndim <= dim:
                continue
            size = inputs[number].shape[dim]
            if size < allowed.lower or allowed.upper is not None and size > allowed.upper:
                raise ValueError(f"exported program: {name} is {size}, and goes from {allowed.lower} to {allowed.upper}")

    def _by_name(self, args, kwargs):
        """Arguments that are given in another way than in the example: by name or by position."""
        if len(args) > len(self._arguments) or not kwargs.keys() <= set(self._arguments):
            raise TypeError(f"exported program: expected the arguments {', '.join(self._arguments)}")
        named = dict(zip(self._arguments, args)) | kwargs
        if len(named) != len(args) + len(kwargs) or named.keys() != set(self._arguments):
            raise TypeError(f"exported program: expected the arguments {', '.join(self._arguments)}: got {', '.join(named)}")
        example_args, example_kwargs = tree_unflatten([None] * self._in_spec.num_leaves, self._in_spec)
        split = len(self._arguments) - len(example_kwargs)
        given = [named[n] for n in self._arguments]
        positional = given[:split] if split == len(example_args) else given[0]  # *args are one argument
        leaves, spec = tree_flatten((tuple(positional), {n: named[n] for n in example_kwargs}))
        if spec != self._in_spec:
            raise TypeError("exported program: the arguments are nested in another way than in the example")
        return leaves


class ExportedModule(Module):
    """A module that runs an exported program."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.__dict__["_exported"] = program
        for name, parameter in program.named_parameters():
            owner, last = self._owner(name)
            owner.register_parameter(last, parameter)
        for name, buffer in program.named_buffers():
            owner, last = self._owner(name)
            owner.register_buffer(last, buffer)

    def _owner(self, name: str):
        owner: Module = self
        *path, last = name.split(".")
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, Module())
            owner = owner._modules[part]
        return owner, last

    def forward(self, *args, **kwargs):
        """The results of the program for these arguments."""
        return self._exported._call(args, kwargs, is_grad_enabled())

    def train(self, mode: bool = True):
        """Raises NotImplementedError: a program does what the module did when it was exported."""
        raise NotImplementedError("Calling train() is not supported: a program does what the module did when it was exported")

    def eval(self):
        """Raises NotImplementedError: a program does what the module did when it was exported."""
        raise NotImplementedError("Calling eval() is not supported: a program does what the module did when it was exported")


__all__ = ["ExportGraphSignature", "ExportedModule", "ExportedProgram"]
