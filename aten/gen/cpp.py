"""Small helpers that all C++ emitters share."""

from __future__ import annotations

import re

from .cpp_types import RETURN_SCALARS, cpp_default
from .model import Arg, Op

HEAD = "// Generated from the op table by aten/gen; changes belong there.\n"


def return_type(op: Op) -> str:
    if op.returns_list:
        return "std::vector<Tensor>"
    if op.returns_plain:
        return RETURN_SCALARS[op.returns[0][0]]
    if op.num_outputs > 1:
        return "std::tuple<" + ", ".join(["Tensor"] * op.num_outputs) + ">"
    return "Tensor"


def param(arg: Arg, default: bool = False) -> str:
    text = f"{arg.info.cpp} {arg.name}"
    if default and arg.default is not None:
        text += f" = {cpp_default(arg.type, arg.default)}"
    return text


def params(args: list[Arg], default: bool = False, in_class: bool = False) -> str:
    # C++ wants every parameter behind a default to have one, too; keyword-only ones may lack it in the table.
    # Inside the class Operand is incomplete and can have none.
    texts = []
    for i, arg in enumerate(args):
        with_default = default and all(b.default is not None and not (in_class and b.type.startswith("Tensor|")) for b in args[i:])
        texts.append(param(arg, with_default))
    return ", ".join(texts)


def names(args: list[Arg]) -> str:
    return ", ".join(a.name for a in args)


def join_params(*parts: str) -> str:
    return ", ".join(p for p in parts if p)


def camel(name: str) -> str:
    return "".join(w[:1].upper() + w[1:] for w in name.strip("_").split("_"))


def node_name(op: Op) -> str:
    """What PyTorch prints: `AddBackward0`; hidden rows show their name without the underscore."""
    return camel(op.get("node_name", op.get("method_name", op.name))) + "Backward0"


def node_type(op: Op) -> str:
    """The node's C++ type; a hidden row may share its shown name with a public one."""
    return ("Hidden" if op.hidden else "") + camel(op.name) + ("_" if op.is_inplace_only else "") + "Backward0"


def uses(expression: str, name: str) -> bool:
    """Whether an expression names a variable (not a function, member or qualified name)."""
    return re.search(rf"(?<![\w.:>]){re.escape(name)}\b(?!\s*\()", expression) is not None


META_MEMBERS = "sizes|dtype|ndim|dim|device|numel|size|strides|stride|storage_offset|is_complex|is_floating_point|itemsize"


def uses_only_meta(expression: str, name: str) -> bool:
    """Whether each use is a question about shape or dtype, so that the tensor itself need not be kept."""
    pattern = rf"(?<![\w.:>]){re.escape(name)}\b(?!\s*\()"
    rest = re.sub(pattern + rf"\s*\.\s*(?:{META_MEMBERS})\s*\(", "", expression)
    return not uses(rest, name)


def out_args(op: Op) -> list[str]:
    if op.num_outputs == 1:
        return ["out"]
    return [f"out_{n}" for n in op.output_names]


def chunks(items, size):
    return [items[i:i + size] for i in range(0, len(items), size)]


def families(ops):
    result: dict[str, list[Op]] = {}
    for op in ops:
        result.setdefault(op.family, []).append(op)
    return result
