"""What people and tools read: type stubs, the operator reference, and the records from which tests are made."""

import json

from .cpp import HEAD, families, join_params, signature_text
from .cpp_types import TYPES
from .emit_python import forms_of, function_names, module_tag, modules_of, parameters, python_entries, slots, varargs_of
from .model import Arg, Op

STUB_HEAD = HEAD.replace("//", "#") + """
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from tapegrad._C import Generator, Tensor, device, dtype, memory_format
from tapegrad._stubs import Number

from . import return_types
"""


def _result(op: Op) -> str:
    kind = op.returns[0][0]
    return f"return_types.{op.name}" if op.num_outputs > 1 else {"Tensor[]": "tuple[Tensor, ...]", "None": "None"}.get(kind) or TYPES[kind].stub


def _stubs(op: Op, by_name, module, name: str, function: str) -> list[str]:
    """The `def` of each way to call a function, or a method; sizes may also be given one by one."""
    lines, indent, doc = [], "    " * (module is None), " ".join(op.get("doc").split())
    for row, args in forms_of(op, by_name):
        i, own = varargs_of(row, args), function == op.name and module is not None
        singly = [*args[:i], Arg(f"*{args[i].name}", "Tensor" if args[i].is_list else "int"), *args[i + 1:]] if i >= 0 else []
        for given in filter(None, (args, singly)):
            text = join_params("self" * (module is None), parameters(slots(row, given[module is None:], own)))
            lines.append(f"{indent}def {name}({text}) -> {_result(row)}: ")
    lines[0] += f'"""{doc}"""'
    return [line for text in lines for line in [f"{indent}@overload"] * (len(lines) > 1) + [text + "..." * text.endswith(" ")]]


def emit_stubs(ops: list[Op]):
    """(path, text) of the stub files."""
    by_name, modules = {op.name: op for op in ops}, {None: {}}
    for op in sorted(ops, key=lambda o: o.kind != "overload"):
        for module, name, function in (entry for entry in python_entries(op) if entry[0] != "_C._ops"):
            modules.setdefault(module, {}).setdefault(name, _stubs(op, by_name, module, name, function))
    returned = [line for op in ops if op.num_outputs > 1 for line in (f"class {op.name}(NamedTuple):", *(f"    {n}: Tensor" for n in op.output_names))]
    for module, found in modules.items():
        lines = [*["class TensorMethods:"] * (module is None), *(line for stub in found.values() for line in stub), *["    pass"] * (module is None and not found), ""]
        yield "python/tapegrad/_stubs/" + ("tensor_methods" if module is None else module_tag(module)) + ".pyi", "\n".join([STUB_HEAD, *lines])
    yield "python/tapegrad/_stubs/return_types.pyi", "\n".join([STUB_HEAD, *returned, ""])


def emit_reference(ops: list[Op]) -> str:
    lines = ["# Operators", "", f"{sum(not o.hidden for o in ops)} public operators, from the op table.", ""]
    for family, members in families([op for op in ops if not op.hidden]).items():
        lines += [f"## {family}", ""]
        for op in members:
            forms = [f"`{m + '.' if m else ''}{n}`" for m, n in function_names(op)] + ["method"] * (op.has_method or op.is_inplace_only)
            forms += [f"in-place `{op.name}_`"] * op.has_inplace + ["`out=`"] * op.has_out
            grads = "; ".join(f"`{', '.join(t)}`: `{text}`" for t, text in op.grads if text != "none")
            lines += [f"### {op.name}" + f"`{signature_text(op.args)}`" * (op.kind != "overload"), "", op.get("doc").strip(), "",
                      f"Forms: {', '.join(forms)}. Row: `{op.where}`.", "", *[f"Gradients: {grads}.", ""] * bool(grads)]
    return "\n".join(lines)


def emit_records(ops: list[Op]) -> str:
    """JSON that the tests of every row are made from."""
    return json.dumps([{
        "name": op.name, "public": op.public_name((modules_of(op) or [""])[0]), "family": op.family, "where": op.where, "kind": op.kind, "modules": modules_of(op),
        "method": op.has_method, "inplace": op.has_inplace, "out": op.has_out, "outputs": op.output_names,
        "args": [[a.name, a.type, a.default, a.keyword_only] for a in op.args],
        "differentiable": any(text != "none" for _, text in op.grads) or op.kind == "composite",
        "dtypes": op.dtype_names, "result": op.get("result", "compute"), "test": op.get("test", {}), "alias": op.get("alias", []),
        "overloads": op.get("overloads", []), "promotion": op.get("promotion", "promote"),
    } for op in ops], indent=1)
