"""export, and the object that it returns."""

from __future__ import annotations

import contextlib
import os
import threading

from .. import Tensor, from_numpy, no_grad
from ..export import ExportedProgram
from ..export import export as export_program
from ..export._trace import _arguments, _Run
from ..nn import Module
from ..utils._pytree import tree_leaves, tree_unflatten
from ._builder import Builder, Ref, type_of
from ._convert import Converter
from ._errors import OnnxExporterError, Refused, UnsupportedOperatorError
from ._sizes import Size

_OPSETS = range(18, 24)
_EXTERNAL = 1024  # bytes; smaller weights stay in the model's file
_LARGEST = (1 << 31) - 1  # bytes of a protocol buffer
_state = threading.local()


def _onnx():
    try:
        import onnx
        import onnx.helper
    except ImportError:
        raise ImportError("onnx.export: the package onnx writes the files\npip install 'tapegrad[onnx]'", name="onnx") from None
    return onnx


def is_in_onnx_export() -> bool:
    """Whether `export` is running in this thread, for code that does something else then."""
    return getattr(_state, "exporting", False)


class ONNXProgram:
    """An exported model: `model_proto` is what `onnx` reads and writes, `save` writes it to a file, a call runs it by onnx's reference (slowly)."""

    def __init__(self, model_proto, exported_program: ExportedProgram, weights: frozenset[str]) -> None:
        self.model_proto, self.exported_program, self._weights = model_proto, exported_program, weights

    def __call__(self, *args, **kwargs) -> list[Tensor]:
        """The results as a flat list, for arguments like the example's."""
        from onnx.reference import ReferenceEvaluator

        leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        given = [i.name for i in self.model_proto.graph.input if i.name not in self._weights]
        if len(leaves) != len(given):
            raise TypeError(f"expected {len(given)} tensors: got {len(leaves)}")
        feeds = {name: t.detach().numpy() for name, t in zip(given, leaves, strict=True)}
        with contextlib.suppress(AttributeError):
            feeds |= {n: t.detach().numpy() for n, t in self.exported_program.state_dict.items() if n in {i.name for i in self.model_proto.graph.input}}
        import numpy as np

        return [from_numpy(np.array(y)) for y in ReferenceEvaluator(self.model_proto).run(None, feeds)]

    def save(self, destination, *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False, external_data: bool | None = None) -> None:
        """Writes the model to a path or a binary file. `external_data`: weights of 1 KB and more go to `<destination>.data` beside it (None: where the
        model is too large for one file); a file object gets all of it. `include_initializers=False` leaves the weights out: they are inputs."""
        onnx = _onnx()
        model = self.model_proto
        if not include_initializers or keep_initializers_as_inputs:
            model = onnx.ModelProto()
            model.CopyFrom(self.model_proto)
            _weights_as_inputs(onnx, model, self._weights, keep=include_initializers)
        if not isinstance(destination, (str, os.PathLike)):
            destination.write(model.SerializeToString())
            return
        path = os.fspath(destination)
        if external_data is None:
            external_data = model.ByteSize() > _LARGEST
        if not external_data:
            onnx.save_model(model, path)
            return
        data = f"{path}.data"
        with contextlib.suppress(FileNotFoundError):
            os.remove(data)  # onnx appends to a file that is there
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save_model(copy, path, save_as_external_data=True, location=os.path.basename(data), size_threshold=_EXTERNAL)

    def __repr__(self) -> str:
        graph = self.model_proto.graph
        return f"ONNXProgram({len(graph.node)} nodes, inputs {', '.join(i.name for i in graph.input)}, outputs {', '.join(o.name for o in graph.output)})"


def _weights_as_inputs(onnx, model, weights, *, keep: bool) -> None:
    graph = model.graph
    found = [t for t in graph.initializer if t.name in weights]
    graph.input.extend([onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in found])
    if not keep:
        rest = [t for t in graph.initializer if t.name not in weights]
        del graph.initializer[:]
        graph.initializer.extend(rest)


def export(model, args=(), f=None, *, kwargs: dict | None = None, verbose: bool | None = None, input_names=None, output_names=None,
           opset_version: int | None = None, dynamo: bool = True, external_data: bool = True, dynamic_shapes=None, custom_translation_table: dict | None = None,
           report: bool = False, optimize: bool = True, verify: bool = False, profile: bool = False, dump_exported_program: bool = False,
           artifacts_dir=".", export_params: bool = True, keep_initializers_as_inputs: bool = False, dynamic_axes=None, training=None,
           operator_export_type=None, do_constant_folding: bool = True, custom_opsets=None, export_modules_as_functions=False,
           autograd_inlining: bool = True) -> ONNXProgram | None:
    """Writes what `model(*args, **kwargs)` does as an ONNX model to `f`, a path or a binary file, and returns it as an `ONNXProgram`.

    `model` is a module, a function of tensors, or an ExportedProgram. Weights are initialisers under their names in the state; `input_names` and
    `output_names` name the first inputs and outputs. Sizes that may change: `dynamic_shapes` as `tapegrad.export.export` takes it, or
    `dynamic_axes`, a dictionary from names of inputs (and outputs, which follow) to {dimension: name} or a list of dimensions. `opset_version`
    is 18 (the default) to 23. To a path, weights of 1 KB and more go to `<f>.data` unless `external_data=False`. `do_constant_folding` computes
    what depends on constants alone; `verify` runs the model by onnx's reference and compares; `verbose` prints the nodes. `dynamo=False`
    exports a module in evaluation mode and returns None. The other arguments are accepted and change nothing.

    Raises UnsupportedOperatorError (a NotImplementedError) with every call that cannot be translated and its line, ImportError without the
    package onnx, ValueError for names and versions that do not fit, and what `tapegrad.export.export` raises."""
    onnx = _onnx()
    version = 18 if opset_version is None else int(opset_version)
    if version not in _OPSETS:
        raise ValueError(f"onnx.export: opset_version goes from {_OPSETS.start} to {_OPSETS.stop - 1}: got {opset_version}")
    if custom_translation_table:
        raise NotImplementedError("onnx.export: custom_translation_table is not supported")
    if f is None and not dynamo:
        raise ValueError("onnx.export: a path or a file is needed with dynamo=False")
    args = (args,) if isinstance(args, Tensor) else tuple(args)
    _state.exporting = True
    try:
        exported = _exported(model, args, dict(kwargs or {}), dynamic_shapes, dynamic_axes, input_names, not dynamo and getattr(training, "value", 0) == 0)
    finally:
        _state.exporting = False
    try:
        proto = _convert(onnx, exported, version, list(input_names or ()), list(output_names or ()), do_constant_folding)
    except Refused as error:
        raise UnsupportedOperatorError(f"onnx.export: {error}") from None
    made = ONNXProgram(proto, exported, frozenset(exported.state_dict))
    if verbose:
        print(onnx.printer.to_text(proto.graph))
    if verify:
        _verify(made)
    if f is not None:
        made.save(f, include_initializers=export_params, keep_initializers_as_inputs=keep_initializers_as_inputs, external_data=external_data)
    return made if dynamo else None


def _exported(model, args, kwargs, dynamic_shapes, dynamic_axes, input_names, evaluate: bool) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None or dynamic_axes is not None:
            raise ValueError("onnx.export: an exported program has its sizes already: give dynamic_shapes to tapegrad.export.export")
        return model
    before = [m for m in model.modules() if m.training] if evaluate and isinstance(model, Module) else []
    for m in before:
        m.training = False
    try:
        if dynamic_shapes is None and dynamic_axes:
            dynamic_shapes = _shapes_of_axes(_Run(model, args, kwargs), dynamic_axes, list(input_names or ()))
        return export_program(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    finally:
        for m in before:
            m.training = True


def _shapes_of_axes(run: _Run, axes: dict, input_names: list[str]) -> dict:
    """dynamic_axes as dynamic_shapes. Inputs are known by their given names and by those of the arguments."""
    names = input_names + run.names[len(input_names):]
    leaves: list = [None] * len(run.leaves)
    for at, name, other in zip(run.at, names, run.names, strict=False):
        spec = axes.get(name, axes.get(other))
        if spec is not None:
            tensor = run.leaves[at]
            spec = spec if isinstance(spec, dict) else {d: f"{name}_dynamic_axes_{i + 1}" for i, d in enumerate(spec)}
            leaves[at] = {d % max(tensor.ndim, 1): str(n) for d, n in spec.items()}
    return _arguments(getattr(run.function, "forward", run.function), *_spec(leaves, run))


def _spec(leaves: list, run: _Run):
    return tree_unflatten(leaves, run.spec)


def _named(given: list[str], own: list[str], what: str) -> list[str]:
    if len(given) > len(own):
        raise ValueError(f"onnx.export: {len(given)} {what}_names for {len(own)} {what}s")
    names = given + own[len(given):]
    if len(set(names)) != len(names):
        raise ValueError(f"onnx.export: {what}s need names of their own: {', '.join(names)}")
    return names


def _convert(onnx, exported: ExportedProgram, version: int, input_names: list[str], output_names: list[str], fold: bool):
    program, state = exported._program, exported.state_dict
    symbols = program.symbols()
    g = Builder(onnx, symbols, version)
    inputs = _named(input_names, program.inputs(), "input")
    own = [f"{n}_{i}" if n in program.outputs()[:i] else n for i, n in enumerate(program.outputs())]
    outputs = _named(output_names, [f"{n}_out" if n in inputs or n in state else n for n in own], "output")
    for name in [*inputs, *outputs]:
        if name in state or name in outputs and name in inputs:
            raise ValueError(f"onnx.export: '{name}' is the name of a weight or of another input already")
    for name in [*state, *inputs, *outputs]:
        g.fresh(name)
    converter = Converter(g, program, state, fold)
    g.inputs = [Ref(g, name, *converter.info[n]) for name, n in zip(inputs, program.inputs(), strict=True)]
    converter.now.update(zip(program.inputs(), g.inputs, strict=True))
    converter.run()
    results = [converter.value(n) for n in program.outputs()]
    produced = {name for node in g.nodes for name in node.output}
    rename: dict[str, str] = {}
    for name, ref in zip(outputs, results, strict=True):
        if ref.name in produced and ref.name not in rename:
            rename[ref.name] = name
        else:
            g.nodes.append(onnx.helper.make_node("Identity", [ref.name], [name], name=g.fresh(f"node/{name}")))
    _rename(g.nodes, rename)
    info = [_value_info(onnx, r.g, n, r.dtype, r.shape) for n, r in zip(inputs, g.inputs, strict=True)]
    out = [_value_info(onnx, g, n, r.dtype, r.shape) for n, r in zip(outputs, results, strict=True)]
    nodes = _needed(g.nodes, outputs)
    used = {name for node in nodes for name in _used(node)}
    graph = onnx.helper.make_graph(nodes, "tapegrad", info, out, [t for name, t in g.tensors.items() if name in used])
    opsets = [onnx.helper.make_opsetid("", version)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="tapegrad", ir_version=max(8, onnx.helper.find_min_ir_version_for(opsets)))
    if model.ByteSize() <= _LARGEST:
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise OnnxExporterError(f"onnx.export: onnx's checker refuses the model: {error}") from None
    return model


def _graphs(node) -> list:
    """The graphs within a node: bodies of control flow."""
    return [a.g for a in node.attribute if a.HasField("g")]


def _used(node) -> set[str]:
    """The names that a node takes, and that graphs within it may take from outside."""
    return {*node.input, *(name for graph in _graphs(node) for inner in graph.node for name in _used(inner))}


def _rename(nodes, names: dict[str, str]) -> None:
    for node in nodes:
        for each in (node.input, node.output):
            each[:] = [names.get(n, n) for n in each]
        for graph in _graphs(node):
            _rename(graph.node, names)


def _needed(nodes: list, outputs: list[str]) -> list:
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(_used(node))
            kept.append(node)
    return kept[::-1]


def _value_info(onnx, g: Builder, name: str, kind, shape):
    return onnx.helper.make_tensor_value_info(name, type_of(kind), [_dim_text(g, n) for n in shape])


def _dim_text(g: Builder, size):
    """A size as ONNX has it: a number, a name or expression, or None."""
    if not isinstance(size, Size):
        return int(size)
    if size.terms is None:
        return None
    text = []
    for bits, factor in sorted(size.terms.items(), reverse=True):
        names = [g.symbols[k][0] for k in range(len(g.symbols)) if bits >> k & 1]
        text.append("*".join(names if names and factor == 1 else [str(factor), *names]))
    return " + ".join(text).replace("+ -", "- ")


def _verify(made: ONNXProgram) -> None:
    from .. import allclose

    example = made.exported_program.example_inputs
    if example is None:
        return
    with no_grad():
        expected = [t for t in tree_leaves(made.exported_program._call(*example, False)) if isinstance(t, Tensor)]
    for i, (theirs, mine) in enumerate(zip(made(*example[0], **example[1]), expected, strict=True)):
        if theirs.shape != mine.shape or not allclose(theirs.to(mine.dtype), mine, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise OnnxExporterError(f"onnx.export: result {i} of the model differs from the program's")
