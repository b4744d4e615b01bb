"""Small helpers that the emitters share."""

import re
import zlib

from .cpp_types import RETURN_SCALARS, cpp_default
from .model import Arg, Op

HEAD = "// Generated from the op table by aten/gen; changes belong there.\n"


def return_type(op: Op) -> str:
    if op.is_inplace_only:
        return "const Tensor&"
    if op.returns_list:
        return "std::vector<Tensor>"
    if op.returns_plain:
        return RETURN_SCALARS[op.returns[0][0]]
    if op.num_outputs > 1:
        return "std::tuple<" + ", ".join(["Tensor"] * op.num_outputs) + ">"
    return "Tensor"


def param(arg: Arg, default: bool = False) -> str:
    return f"{arg.info.cpp} {arg.name}" + (f" = {cpp_default(arg.type, arg.default)}" if default and arg.default is not None else "")


def params(args: list[Arg], default: bool = False, in_class: bool = False) -> str:
    # C++ wants every parameter behind a default to have one, too; keyword-only ones may lack it in the table.
    # Inside the class Operand is incomplete and can have none.
    lacking = [i for i, a in enumerate(args) if a.default is None or (in_class and a.type.startswith("Tensor|"))]
    return ", ".join(param(a, default and i > max(lacking, default=-1)) for i, a in enumerate(args))


def cpp_text(text: str) -> str:
    """A text as a C++ literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def names(args: list[Arg]) -> str:
    return ", ".join(a.name for a in args)


def used_params(args: list[Arg], text: str) -> str:
    """The parameters of a function with this text; those that it does not use have no name."""
    return ", ".join(param(a) if uses(text, a.name) else a.info.cpp for a in args)


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


def _use(name: str) -> str:
    return rf"(?<![\w.:>]){re.escape(name)}\b(?!\s*\()"


def uses(expression: str, name: str) -> bool:
    """Whether an expression names a variable (not a function, member or qualified name)."""
    return re.search(_use(name), expression) is not None


META_MEMBERS = "sizes|dtype|ndim|dim|device|numel|size|strides|stride|storage_offset|is_complex|is_floating_point|itemsize"


def uses_only_meta(expression: str, name: str) -> bool:
    """Whether each use is a question about shape or dtype, so that the tensor itself need not be kept."""
    return not uses(re.sub(_use(name) + rf"\s*\.\s*(?:{META_MEMBERS})\s*\(", "", expression), name)


def out_args(op: Op) -> list[str]:
    return ["out"] if op.num_outputs == 1 else [f"out_{n}" for n in op.output_names]


def chunks(rows: list, size: int) -> list[tuple[str, list]]:
    """Files of about `size` rows, with what their names end in. Where one begins is decided by the names of its rows: one row more changes one
    file, and not those behind it."""
    result: list[tuple[str, list]] = []
    for row in rows:
        begins = zlib.crc32(row.name.encode()) % size == 0
        if not result or len(result[-1][1]) == 2 * size or begins and len(result[-1][1]) > 1:
            result.append((row.name, []))
        result[-1][1].append(row)
    return result


def families(ops, key=lambda op: op.family):
    result: dict[str, list[Op]] = {}
    for op in ops:
        result.setdefault(key(op), []).append(op)
    return result


def function_includes(text: str, ops: list[Op], *families_too: str) -> list[str]:
    """The headers of the operators that C++ text calls as functions."""
    functions = {op.name + end: op.family for op in ops for end in ("", "_", "_out")}
    text = re.sub(r'"(?:\\.|[^"\\])*"', "", text)
    words = re.findall(r"(?<![.>\w:])(?:tapegrad::)?(?:raw::)?(\w+)\(", text) + re.findall(r"[?:] (\w+)\b", text)  # calls, and functions that are passed on
    called = {functions[word] for word in words if word in functions}
    return [f'#include "tapegrad/aten/functions_{f}.h"' for f in sorted(called.union(families_too))]


def spelled(parts) -> str:
    """Parameters from (whether keyword-only, text) of each, with a `*` before those that are, unless one with a `*` is there."""
    texts = [[text for keyword, text in parts if keyword == wanted] for wanted in (False, True)]
    return ", ".join([*texts[0], *["*"] * (bool(texts[1]) and not any(t[0] == "*" for t in texts[0])), *texts[1]])


def signature_text(args: list[Arg], flags=()) -> str:
    slots = [(a.keyword_only, f"{a.type} {a.name}" + (f"={a.default}" if a.default is not None else "")) for a in args]
    return "(" + ", ".join([*filter(None, [spelled(slots).replace('"', "'")]), *(f"bool {name}=False" for name in flags)]) + ")"
