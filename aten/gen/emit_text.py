"""What people and tools read: type stubs, the operator reference, and the records from which tests are made."""

import json

from .cpp import HEAD, families, join_params, signature_text, spelled
from .emit_python import flags_of, function_names, module_tag, modules_of
from .model import Arg, Op

PYTHON_RETURNS = {"Tensor": "Tensor", "Tensor[]": "tuple[Tensor, ...]", "bool": "bool", "int": "int", "Scalar": "Number", "float": "float",
                  "DType": "dtype", "None": "None"}
STUB_HEAD = HEAD.replace("//", "#") + """
from collections.abc import Sequence
from typing import Any, overload

from tapegrad import Generator, Tensor, device, dtype, memory_format

Number = bool | int | float | complex
"""


def _stub_args(op: Op, args: list[Arg], out: bool) -> str:
    shown = {"inf": "...", "-inf": "..."}
    parts = spelled(args, lambda a: f"{a.name}: {a.info.stub}" + (f" = {shown.get(a.default, a.default)}" if a.default is not None else ""))
    parts += [f"{name}: bool = False" for name in (flags_of(op, False) if out else ())]
    if out and op.has_out:
        parts += ["*"] * ("*" not in parts) + ["out: Any = None"] + [f"{name}: bool = False" for name in flags_of(op, True)]
    return ", ".join(parts)


def _result(op: Op) -> str:
    return PYTHON_RETURNS[op.returns[0][0]] if op.num_outputs == 1 else "tuple[" + ", ".join(["Tensor"] * op.num_outputs) + "]"


def _function_stub(op: Op, name: str, overloads) -> list[str]:
    lines, doc = [], f'    """{" ".join(op.get("doc").split())}"""'
    for t in overloads:
        lines += ["@overload"] * (len(overloads) > 1) + [f"def {name}({_stub_args(t, t.args, True)}) -> {_result(t)}:", doc, ""]
    return lines


def emit_stubs(ops: list[Op]):
    """(path, text) of the stub files."""
    by_name = {op.name: op for op in ops}
    modules: dict[str, list[str]] = {}
    methods = []
    for op in ops:
        targets = [by_name[o] for o in op.get("overloads", [])] or [op]
        for module, name in function_names(op):
            modules.setdefault(module, []).extend(_function_stub(op, name, targets))
        forms = [op.get("method_name", op.name)] * (op.has_method or op.is_inplace_only) + [op.name + "_"] * op.has_inplace
        for form, t in ((form, t) for form in forms for t in targets):
            args = join_params("self", _stub_args(t, t.args[1:], False))
            methods += ["    @overload"] * (len(targets) > 1) + [f"    def {form}({args}) -> {_result(t)}: ..."]
    for module, lines in modules.items():
        yield f"python/tapegrad/_stubs/{module_tag(module)}.pyi", "\n".join([STUB_HEAD, *lines])
    yield "python/tapegrad/_stubs/tensor_methods.pyi", "\n".join([STUB_HEAD, "class TensorMethods:", *(methods or ["    pass"]), ""])


def emit_reference(ops: list[Op]) -> str:
    lines = ["# Operators", "", f"{sum(not o.hidden for o in ops)} public operators, from the op table.", ""]
    for family, members in families(ops).items():
        public = [op for op in members if not op.hidden]
        if not public:
            continue
        lines += [f"## {family}", ""]
        for op in public:
            forms = [f"`{m + '.' if m else ''}{n}`" for m, n in function_names(op)] + ["method"] * (op.has_method or op.is_inplace_only)
            forms += [f"in-place `{op.name}_`"] * op.has_inplace + ["`out=`"] * op.has_out
            lines.append(f"### {op.name}" + f"`{signature_text(op.args)}`" * (op.kind != "overload"))
            lines += ["", op.get("doc").strip(), "", f"Forms: {', '.join(forms)}. Row: `{op.where}`.", ""]
            grads = [f"`{', '.join(t)}`: `{text}`" for t, text in op.grads if text != "none"]
            if grads:
                lines += ["Gradients: " + "; ".join(grads) + ".", ""]
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
