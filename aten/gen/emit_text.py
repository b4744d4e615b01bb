"""What people and tools read: type stubs, the operator reference, and the records from which tests are made."""

from __future__ import annotations

import json

from .cpp import HEAD, families
from .emit_python import function_names, has_inplace_flag, modules_of, signature_text
from .model import Arg, Op

PYTHON_RETURNS = {"Tensor": "Tensor", "Tensor[]": "tuple[Tensor, ...]", "bool": "bool", "int": "int", "Scalar": "Number", "float": "float",
                  "DType": "dtype", "None": "None"}
STUB_HEAD = HEAD.replace("//", "#") + """
from collections.abc import Sequence
from typing import Any, NamedTuple

from tapegrad import Generator, Tensor, device, dtype, memory_format

Number = bool | int | float | complex
"""


def _stub_default(text: str) -> str:
    return {"inf": "...", "-inf": "..."}.get(text, text)


def _stub_args(op: Op, args: list[Arg], out: bool) -> str:
    parts, star, optional = [], False, False
    for a in args:
        if a.keyword_only and not star:
            parts.append("*")
            star = True
        optional |= a.default is not None
        default = f" = {_stub_default(a.default)}" if a.default is not None else ""
        parts.append(f"{a.name}: {a.info.stub}{default}")
    if out and has_inplace_flag(op):
        parts.append("inplace: bool = False")
    if out and op.has_out:
        parts += ([] if star else ["*"]) + ["out: Any = None"]
    return ", ".join(parts)


def _result(op: Op) -> str:
    if op.num_outputs > 1:
        return "tuple[" + ", ".join(["Tensor"] * op.num_outputs) + "]"
    return PYTHON_RETURNS[op.returns[0][0]]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _function_stub(op: Op, name: str, overloads) -> list[str]:
    lines = []
    for t in overloads:
        decorator = ["@overload"] if len(overloads) > 1 else []
        lines += [*decorator, f"def {name}({_stub_args(t, t.args, True)}) -> {_result(t)}:", f'    """{_one_line(op.get("doc"))}"""', ""]
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
        if op.has_method or op.has_inplace or op.is_inplace_only:
            forms = ([op.name] if op.has_method or op.is_inplace_only else []) + ([op.name + "_"] if op.has_inplace else [])
            for form in forms:
                for t in targets:
                    prefix = ["    @overload"] if len(targets) > 1 else []
                    args = _stub_args(t, t.args[1:], False)
                    methods += [*prefix, f"    def {op.get('method_name', form) if form == op.name else form}(self{', ' + args if args else ''}) -> {_result(t)}: ..."]
    head = STUB_HEAD.replace("import Any, NamedTuple", "import Any, overload")
    for module, lines in modules.items():
        tag = module.replace(".", "_") or "root"
        yield f"python/tapegrad/_stubs/{tag}.pyi", "\n".join([head, *lines])
    yield "python/tapegrad/_stubs/tensor_methods.pyi", "\n".join([head, "class TensorMethods:", *(methods or ["    pass"]), ""])


def emit_reference(ops: list[Op]) -> str:
    lines = ["# Operators", "", f"{sum(not o.hidden for o in ops)} public operators, from the op table.", ""]
    for family, members in families(ops).items():
        public = [op for op in members if not op.hidden]
        if not public:
            continue
        lines += [f"## {family}", ""]
        for op in public:
            forms = [f"`{m + '.' if m else ''}{n}`" for m, n in function_names(op)]
            if op.has_method or op.is_inplace_only:
                forms.append("method")
            if op.has_inplace:
                forms.append(f"in-place `{op.name}_`")
            if op.has_out:
                forms.append("`out=`")
            if op.kind != "overload":
                lines.append(f"### {op.name}`{signature_text(op.args)}`")
            else:
                lines.append(f"### {op.name}")
            lines += ["", op.get("doc").strip(), "", f"Forms: {', '.join(forms)}. Row: `{op.where}`.", ""]
            grads = [f"`{', '.join(t)}`: `{text}`" for t, text in op.grads if text != "none"]
            if grads:
                lines += ["Gradients: " + "; ".join(grads) + ".", ""]
    return "\n".join(lines)


def emit_records(ops: list[Op]) -> str:
    """JSON that the tests of every row are made from."""
    records = []
    for op in ops:
        records.append({
            "name": op.name, "public": op.public_name((modules_of(op) or [""])[0]), "family": op.family, "where": op.where, "kind": op.kind, "modules": modules_of(op),
            "method": op.has_method, "inplace": op.has_inplace, "out": op.has_out, "outputs": op.output_names,
            "args": [[a.name, a.type, a.default, a.keyword_only] for a in op.args],
            "differentiable": bool([1 for _, text in op.grads if text != "none"]) or op.kind == "composite",
            "dtypes": op.dtype_names, "result": op.get("result", "compute"), "test": op.get("test", {}), "alias": op.get("alias", []),
            "overloads": op.get("overloads", []), "promotion": op.get("promotion", "promote"),
        })
    return json.dumps(records, indent=1)
