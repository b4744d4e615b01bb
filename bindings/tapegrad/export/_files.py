"""save and load of exported programs."""

from __future__ import annotations

import json
import os
import tempfile
from collections import OrderedDict

from .. import _C, return_types
from ..nn import Parameter
from ..utils._pytree import LeafSpec, TreeSpec
from ._program import ExportedProgram, ExportGraphSignature, ValueRange

_KEY = "tapegrad.export"
_EXTRA = "extra."
_CONTAINERS = {"tuple": tuple, "list": list, "dict": dict, "OrderedDict": OrderedDict}
_VALUES = (bool, int, float, str, type(None))


def _spec_to_json(spec: TreeSpec):
    if spec.is_leaf():
        return None
    kind = next((name for name, cls in _CONTAINERS.items() if spec.type is cls), None)
    if getattr(return_types, spec.type.__name__, None) is spec.type:
        kind = f"return_types.{spec.type.__name__}"
    if kind is None:
        raise ValueError(f"save: arguments and results in tuples, lists and dictionaries can be saved: got {spec.type.__name__}")
    keys = spec.context if kind in ("dict", "OrderedDict") else None
    if keys is not None and not all(isinstance(k, str) for k in keys):
        raise ValueError(f"save: dictionaries with texts as keys can be saved: got {keys}")
    return [kind, keys, [_spec_to_json(child) for child in spec.children_specs]]


def _spec_from_json(data) -> TreeSpec:
    if data is None:
        return LeafSpec()
    kind, keys, children = data
    cls = _CONTAINERS.get(kind) or getattr(return_types, kind.removeprefix("return_types."))
    if kind not in _CONTAINERS and not hasattr(cls, "n_sequence_fields"):  # nothing else of the module may be called
        raise ValueError(f"{kind} is no container")
    return TreeSpec(cls, keys if kind in _CONTAINERS else cls, [_spec_from_json(child) for child in children])


def _values_to_json(values: list) -> list:
    for kept in values:
        if kept is not None and not isinstance(kept[0], _VALUES):
            raise ValueError(f"save: numbers, texts and None can be saved beside tensors: got {type(kept[0]).__name__}")
    return [None if kept is None else [kept[0]] for kept in values]


def save(ep: ExportedProgram, f, *, extra_files: dict | None = None, opset_version: dict | None = None, pickle_protocol: int = 2) -> None:
    """Writes a program with its weights to a path or a binary file: a safetensors file, in which calls are names of operators and
    values, and no code. `extra_files`: texts by name, which `load` gives back.

    Raises TypeError for another object, ValueError for what the form lacks: results in other containers than tuples, lists and dictionaries,
    constants of complex128. A path that cannot be written leaves the old file."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    about = {"in": _spec_to_json(ep._in_spec), "out": _spec_to_json(ep._out_spec), "in_values": _values_to_json(ep._in_values),
             "out_values": _values_to_json(ep._out_values), "arguments": ep._arguments, "parameters": ep.graph_signature.parameters,
             "buffers": ep.graph_signature.buffers, "ranges": {n: [r.lower, r.upper] for n, r in ep.range_constraints.items()}}
    metadata = {_KEY: json.dumps(about)}
    for name, text in (extra_files or {}).items():
        metadata[_EXTRA + name] = text.decode() if isinstance(text, bytes) else str(text)
    if isinstance(f, (str, os.PathLike)):
        ep._program.save(os.fspath(f), metadata)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program")
        ep._program.save(path, metadata)
        with open(path, "rb") as written:
            f.write(written.read())


def load(f, *, extra_files: dict | None = None, expected_opset_version: dict | None = None) -> ExportedProgram:
    """Reads what `save` has written, from a path or a binary file. Each key of `extra_files` gets its text.

    Raises RuntimeError where it is no such file, is damaged, or calls operators that this version lacks."""
    if isinstance(f, (str, os.PathLike)):
        return _load(os.fspath(f), extra_files)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program")
        with open(path, "wb") as copy:
            copy.write(f.read())
        return _load(path, extra_files)


def _state(program, parameters: list[str], buffers: list[str]) -> dict:
    """The constants that are parameters and buffers, by name, and made such."""
    constants = {name: constant for name, _, _, constant in program.values()}
    state = {}
    for name in parameters:
        constant = constants[name]
        state[name] = Parameter(constant, requires_grad=constant.is_floating_point() or constant.is_complex())
        program.set_constant(name, state[name])
    return state | {name: constants[name] for name in buffers}


def _load(path: str, extra_files: dict | None) -> ExportedProgram:
    program, metadata = _C._load_program(path)
    try:
        about = json.loads(metadata[_KEY])
        state = {
            "_program": program, "_state": _state(program, about["parameters"], about["buffers"]), "_in_spec": _spec_from_json(about["in"]), "_out_spec": _spec_from_json(about["out"]),
            "_in_values": [None if kept is None else tuple(kept) for kept in about["in_values"]],
            "_out_values": [None if kept is None else tuple(kept) for kept in about["out_values"]], "_arguments": list(about["arguments"]),
            "example_inputs": None, "range_constraints": {n: ValueRange(*r) for n, r in about["ranges"].items()},
            "graph_signature": ExportGraphSignature(about["parameters"], about["buffers"], program.inputs(), program.outputs())}
        for spec, values, numbers in ((state["_in_spec"], state["_in_values"], program.inputs()), (state["_out_spec"], state["_out_values"], program.outputs())):
            if spec.num_leaves != len(values) or values.count(None) != len(numbers):
                raise ValueError("other numbers of arguments or results")
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise RuntimeError(f"load: {path}: the program is damaged: {error!r}") from None
    for name in extra_files or ():
        if _EXTRA + name in metadata:
            extra_files[name] = metadata[_EXTRA + name]
    return ExportedProgram._restored(**state)
