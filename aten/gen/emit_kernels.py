"""Kernels: declarations of what rows name, the entries of the kernel table, and the generated typed loops per instruction set."""

import re
from pathlib import Path

from . import emit_batch
from .cpp import HEAD, chunks, families, params, return_type
from .emit_raw import dtype_mask, kernel_type
from .model import Op, RowError

ISAS = ("generic", "avx2", "avx512")


def _function(op: Op, name: str) -> str:
    result, rest = kernel_type(op).split("(", 1)
    return f"{result} {name}({rest};"


def emit_declarations(family: str, ops: list[Op]) -> str:
    shapes, composites, once, per_isa = [], [], [], []
    for op in ops:
        if op.get("shape"):
            result = "void" if op.is_inplace_only else "TensorSpec" if op.num_outputs == 1 else f"std::array<TensorSpec, {op.num_outputs}>"
            shapes.append(f"TG_API {result} {op.get('shape')}({params(op.args)});")
        if op.kind == "view":
            result = "std::vector<ViewSpec>" if op.returns_list else "ViewSpec"
            shapes.append(f"TG_API {result} {op.get('view')}({params(op.args)});")
            if op.returns_list:
                shapes.append("TG_API std::vector<Tensor> alias_views(const Tensor& base, const std::vector<ViewSpec>& views);")
        if op.kind == "composite" and op.get("impl"):
            composites.append(f"{return_type(op)} {op.get('impl')}({params(op.args)});")
        if op.kind in ("kernel", "random", "create") and op.has_kernel:
            (once if op.get("cpu_once") else per_isa).append(_function(op, op.get("cpu_once") or op.get("cpu")))
    lines = [HEAD + "#pragma once", '#include "tapegrad/aten/iterate/outputs.h"', '#include "tapegrad/c10/random/philox.h"', "",
             "namespace tapegrad {", *dict.fromkeys(shapes), "namespace composite {", *dict.fromkeys(composites), "}  // namespace composite",
             "namespace cpu {", *dict.fromkeys(once)]
    for isa in ISAS:
        lines += [f"namespace {isa} {{", *dict.fromkeys(per_isa), f"}}  // namespace {isa}"]
    return "\n".join([*lines, "}  // namespace cpu", "}  // namespace tapegrad", ""])


def _symbol(op: Op) -> str | None:
    return f"{op.name}_{op.kind}" if op.kind in ("pointwise", "reduce") else op.get("cpu")


def emit_loop_declarations(op: Op) -> list[str]:
    """Of the generated loops, for the file that refers to them."""
    isas = ISAS if op.kind in ("pointwise", "reduce") else ()
    return [f"namespace cpu::{isa} {{ void {_symbol(op)}(const {op.kind}::Iterator& it); }}" for isa in isas]


def emit_entry(op: Op) -> str:
    """The operator's entry of the kernel table."""
    cpu = f"TG_BEST_KERNEL({_symbol(op)})" if op.has_kernel else "nullptr"
    if once := op.get("cpu_once"):
        cpu = f"reinterpret_cast<AnyKernel>(&cpu::{once})"
    cuda = f", {cpu}" if op.get("any_device") else ""
    rule = emit_batch.RULES.get(emit_batch.rule_of(op), "Loop")
    return f'TG_API OperatorEntry {op.name}{{"{op.name}", batch::Rule::{rule}, {{{cpu}{cuda}}}}};'


def _fields(op: Op) -> list[str]:
    return [{"float": "double", "int": "int64_t", "bool": "bool"}.get(a.type, "T") for a in op.args
            if not a.is_tensor and (op.kind != "reduce" or a.name not in ("dim", "keepdim", "dtype"))]


def _loop(op: Op) -> list[str]:
    fields = ", ".join(f"it.params[{i}].to<{t}>()" for i, t in enumerate(_fields(op)))
    functor = f"fn::{op.get('functor', op.name)}<T>{{{fields}}}"
    run = f"rows::run<{len(op.tensor_args)}, T>" if op.kind == "pointwise" else "reduce_rows::run<T>"
    return [f"void {_symbol(op)}(const {op.kind}::Iterator& it) {{",
            f"  {op.kind}::dispatch<{dtype_mask(op):#x}>(it.compute, [&]<class T>() {{ {run}(it, {functor}); }});", "}"]


def _functor_includes(ops: list[Op], headers: dict[str, str]) -> list[str]:
    """Only what these rows apply: a change of a functor compiles the files again that use its header."""
    used = {op.get("functor", op.name): op for op in ops if headers}  # tables of tests have no functors
    for functor in used.keys() - headers.keys():
        raise RowError(f"{used[functor].name}: aten/functors has no struct {functor}")
    return [f'#include "tapegrad/aten/functors/{h}"' for h in sorted({headers[f] for f in used})]


def emit_loops(ops: list[Op], functor_folder: Path):
    """(path, text) of the generated kernel files: one text, compiled once per instruction set and for CUDA."""
    headers = {struct or by_macro: path.name for path in sorted(functor_folder.glob("*.h"))  # a struct, or the first argument of a macro that makes one
               for struct, by_macro in re.findall(r"^(?:struct (\w+) |TG_\w+\((\w+),)", path.read_text(), re.M)}
    for kind, rows, cpu, cuda in (("pointwise", "rows.h", 5, 12), ("reduce", "reduce_rows.h", 2, 4)):
        for family, members in families([op for op in ops if op.kind == kind]).items():
            by_functor = families(members, lambda op: op.get("functor", op.name))  # they share their loops: compiled in one file
            for space, folder, end, chunk in (("cpu::TG_ISA", "aten/iterate/", "_cpu.cpp", cpu), ("cuda", f"cuda/{kind}/", ".cu", cuda)):
                for name, firsts in chunks([same[0] for same in by_functor.values()], chunk):
                    part = [op for first in firsts for op in by_functor[first.get("functor", first.name)]]
                    lines = [HEAD, f'#include "tapegrad/{folder}{rows}"']
                    lines += _functor_includes(part, headers)
                    lines += ["", f"namespace tapegrad::{space} {{", *(line for op in part for line in _loop(op)), "}", ""]
                    yield f"src/{kind}_{family}_{name}{end}", "\n".join(lines)


def emit_cuda_list(ops: list[Op]) -> str:
    """What cuda/kernel_table.cpp declares and fills the table with: of each kernel its row, name and type."""
    def kernel(op):
        if op.kind in ("pointwise", "reduce"):
            return f"{_symbol(op)}, void(const {op.kind}::Iterator&)"
        return f"{(op.get('cpu') or op.get('cpu_once')).removesuffix('_cpu')}_cuda, {kernel_type(op)}"
    return "\n".join([HEAD, *(f"TG_CUDA_KERNEL({op.name}, {kernel(op)})" for op in ops if op.has_kernel and not op.get("any_device")), ""])


def emit_formula_list(ops: list[Op]) -> str:
    """What cuda/record/ makes kernels of at run time: of each pointwise row its functor, the types of its fields and its inputs."""
    return "\n".join([HEAD, *(f'TG_FORMULA("{op.name}", "{op.get("functor", op.name)}", "{" ".join(_fields(op))}", {len(op.tensor_args)})' for op in ops if op.kind == "pointwise"), ""])
