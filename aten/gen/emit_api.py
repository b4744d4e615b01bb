"""The C++ functions of each family (`functions_<family>.h`: public ones and `raw::` ones) and the methods of Tensor."""

import dataclasses

from .cpp import HEAD, join_params, names, out_args, params, return_type
from .model import Arg, Op


def _declarations(op: Op) -> list[str]:
    lines = [f"TG_API {return_type(op)} {op.name}({params(op.args, True)});"]
    if op.has_inplace:
        lines.append(f"TG_API const Tensor& {op.name}_({join_params('const Tensor& self', params(op.args[1:], True))});")
    if op.has_out:
        outs = ", ".join(f"const Tensor& {o}" for o in out_args(op))
        lines.append(f"TG_API {'const Tensor&' if op.num_outputs == 1 else return_type(op)} {op.name}_out({join_params(params(op.args), outs)});")
    return lines


def _method_head(name: str, result: str, args: list[Arg], default: bool, qualifier: str = "") -> str:
    return f"{result} {qualifier}{name}({params(args, default, in_class=True)}) const"


def _methods(op: Op, by_name):
    """(name, result, arguments behind self, function to call) of each method."""
    rest, shown = op.args[1:], op.get("method_name", op.name)
    if op.kind == "overload":
        return [(op.name, return_type(t), t.args[1:], t.name) for t in map(by_name.get, op.get("overloads")) if op.has_method]
    if op.is_inplace_only:
        return [(op.name, return_type(op), rest, op.name)]
    return [(shown, return_type(op), rest, op.name)] * op.has_method + [(shown + "_", "const Tensor&", rest, op.name + "_")] * op.has_inplace


def all_methods(ops: list[Op]):
    """Each once: an overload may list a row that has the method under that name anyway."""
    by_name, found = {op.name: op for op in ops}, {}
    for op in ops:
        for method in _methods(op, by_name):
            found.setdefault((method[0], tuple(a.info.cpp for a in method[2])), (op, method))
    return found.values()


def emit_methods(ops: list[Op]) -> str:
    return "\n".join([HEAD, *(f"  {_method_head(name, result, rest, True)};" for _, (name, result, rest, _) in all_methods(ops)), ""])


def method_bodies(ops: list[Op]) -> dict[str, list[str]]:
    """By row: the definitions of the methods that come of it."""
    bodies: dict[str, list[str]] = {}
    for op, (name, result, rest, target) in all_methods(ops):
        bodies.setdefault(op.name, []).append(f"{_method_head(name, result, rest, False, 'Tensor::')} "
                                              f"{{ return tapegrad::{target}({join_params('*this', names(rest))}); }}")
    return bodies


def _told_apart(args, others):
    """The arguments without the defaults that would let a call mean one of the others, too."""
    needed = -1
    for other in others:
        differing = (i for i, (a, b) in enumerate(zip(args, other)) if a.info.cpp != b.info.cpp)
        needed = max(needed, next(differing, min(len(args), len(other))))
    return [dataclasses.replace(a, default=None) if i <= needed else a for i, a in enumerate(args)]


def emit_functions(family: str, ops: list[Op], by_name) -> str:
    public, raw, families = [], [], set()
    for op in ops:
        if op.kind != "overload":
            public += _declarations(op)
            raw += _declarations(op)
            continue
        targets = [by_name[o] for o in op.get("overloads")]
        for i, target in enumerate(targets):
            if target.name != op.name:
                families.add(target.family)
                args = _told_apart(target.args, [t.args for t in targets[:i]])
                public.append(f"inline {return_type(target)} {op.name}({params(args, True)}) {{ return {target.name}({names(target.args)}); }}")
    return "\n".join([
        HEAD + "#pragma once", "", "#include <limits>", "#include <tuple>", "#include <vector>", "",
        *(f'#include "tapegrad/aten/functions_{f}.h"' for f in sorted(families - {family})),
        "#include \"tapegrad/aten/tensor.h\"", "#include \"tapegrad/c10/random/generator.h\"", "", "namespace tapegrad {", "",
        "// With checks and tape.", *public, "", "// Without tape: what kernels and shape functions call.", "namespace raw {", *raw,
        "}  // namespace raw", "", "}  // namespace tapegrad", ""])
