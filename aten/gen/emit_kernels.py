"""Kernels: declarations of what rows name, the kernel table, and the generated typed loops per instruction set."""

from __future__ import annotations

from pathlib import Path

from .cpp import HEAD, chunks, families, params, return_type
from .emit_raw import dtype_mask, kernel_type
from .model import Op

ISAS = ("generic", "avx2", "avx512")


def _shape_declaration(op: Op) -> list[str]:
    shape = op.get("shape")
    if not shape:
        return []
    result = "TensorSpec" if op.num_outputs == 1 else f"std::array<TensorSpec, {op.num_outputs}>"
    if op.is_inplace_only:
        result = "void"
    return [f"TG_API {result} {shape}({params(op.args)});"]


def _unique(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _function(op: Op, name: str) -> str:
    result, rest = kernel_type(op).split("(", 1)
    return f"{result} {name}({rest};"


def emit_declarations(family: str, ops: list[Op]) -> str:
    shapes, composites, once, per_isa = [], [], [], []
    for op in ops:
        shapes += _shape_declaration(op)
        if op.kind == "view":
            result = "std::vector<ViewSpec>" if op.returns_list else "ViewSpec"
            shapes.append(f"TG_API {result} {op.get('view')}({params(op.args)});")
            if op.returns_list:
                shapes.append("TG_API std::vector<Tensor> alias_views(const Tensor& base, const std::vector<ViewSpec>& views);")
        if op.kind == "composite" and op.get("impl"):
            result = "const Tensor&" if op.is_inplace_only else return_type(op)
            composites.append(f"{result} {op.get('impl')}({params(op.args)});")
        if op.kind in ("kernel", "random", "create"):
            if op.get("cpu_once"):
                once.append(_function(op, op.get("cpu_once")))
            elif op.get("cpu"):
                per_isa.append(_function(op, op.get("cpu")))
    lines = [HEAD + "#pragma once", '#include "tapegrad/aten/iterate/outputs.h"', '#include "tapegrad/c10/philox.h"', "",
             "namespace tapegrad {", *_unique(shapes), "namespace composite {", *_unique(composites), "}  // namespace composite",
             "namespace cpu {", *_unique(once)]
    for isa in ISAS:
        lines += [f"namespace {isa} {{", *_unique(per_isa), f"}}  // namespace {isa}"]
    return "\n".join([*lines, "}  // namespace cpu", "}  // namespace tapegrad", ""])


def _symbol(op: Op) -> str | None:
    if op.kind == "pointwise":
        return f"{op.name}_pointwise"
    if op.kind == "reduce":
        return f"{op.name}_reduce"
    return op.get("cpu")


def emit_table(ops: list[Op]) -> str:
    with_kernel = [op for op in ops if op.has_kernel]
    lines = [HEAD, '#include "tapegrad/c10/kernel_table.h"', '#include "tapegrad/aten/iterate/pointwise.h"',
             '#include "tapegrad/aten/iterate/reduce.h"']
    lines += [f'#include "tapegrad/aten/kernels_{f}.h"' for f in families(ops)]
    lines += ["", "namespace tapegrad {"]
    for isa in ISAS:
        lines += [f"#ifdef TG_HAVE_ISA_{isa.upper()}", f"namespace cpu::{isa} {{"]
        for op in with_kernel:
            if op.kind in ("pointwise", "reduce"):
                lines.append(f"void {_symbol(op)}(const {op.kind}::Iterator& it);")
        lines += ["}", "#endif"]
    lines += ["namespace {", f"KernelSlots slots[{len(ops) + 1}];"]
    for isa in ISAS:
        lines += [f"#ifdef TG_HAVE_ISA_{isa.upper()}", f"void fill_{isa}() {{", f"  using namespace cpu::{isa};"]
        for op in with_kernel:
            if not op.get("cpu_once"):
                lines.append(f"  slots[{op.index}].device[0] = reinterpret_cast<AnyKernel>(&cpu::{isa}::{_symbol(op)});")
        lines += ["}", "#endif"]
    lines += ["KernelSlots* fill_table() {", "  [[maybe_unused]] const Isa isa = cpu_isa();", "#ifdef TG_HAVE_ISA_GENERIC",
              "  fill_generic();", "#endif", "#ifdef TG_HAVE_ISA_AVX2", "  if (isa >= Isa::Avx2) fill_avx2();", "#endif",
              "#ifdef TG_HAVE_ISA_AVX512", "  if (isa >= Isa::Avx512) fill_avx512();", "#endif"]
    for op in with_kernel:
        if op.get("cpu_once"):
            lines.append(f"  slots[{op.index}].device[0] = reinterpret_cast<AnyKernel>(&cpu::{op.get('cpu_once')});")
    lines += ["  return slots;", "}", "const char* const names[] = {"]
    lines += [f'    "{op.name}",' for op in ops]
    lines += ["    nullptr};", "}  // namespace", "", "KernelSlots* const kernel_table = fill_table();",
              "const char* const* const op_names = names;", f"const OpId num_ops = {len(ops)};", "", "}  // namespace tapegrad", ""]
    return "\n".join(lines)


def _fields(op: Op) -> str:
    parts = []
    skip = ("dim", "keepdim", "dtype") if op.kind == "reduce" else ()
    scalars = [a for a in op.args if not a.is_tensor and a.name not in skip]
    for i, arg in enumerate(scalars):
        target = {"float": "double", "int": "int64_t", "bool": "bool"}.get(arg.type, "T")
        parts.append(f"it.params[{i}].to<{target}>()")
    return ", ".join(parts)


def _loop(op: Op) -> list[str]:
    functor = f"fn::{op.get('functor', op.name)}<T>{{{_fields(op)}}}"
    if op.kind == "pointwise":
        run = f"rows::run<{len(op.tensor_args)}, T>(it, {functor});"
    else:
        run = f"reduce_rows::run<T>(it, {functor});"
    return [f"void {_symbol(op)}(const {op.kind}::Iterator& it) {{",
            f"  {op.kind}::dispatch<{dtype_mask(op):#x}>(it.compute, [&]<class T>() {{ {run} }});", "}"]


def emit_loops(ops: list[Op], functor_folder: Path):
    """(path, text) of the generated kernel files: one text, compiled once per instruction set and for CUDA."""
    headers = sorted(p.name for p in functor_folder.glob("*.h")) if functor_folder.is_dir() else []
    for kind, rows, skip, cuda in (("pointwise", "rows.h", "reduce", 12), ("reduce", "reduce_rows.h", "-", 4)):
        for family, members in families([op for op in ops if op.kind == kind]).items():
            for space, room, end, chunk in (("cpu::TG_ISA", "aten/iterate/", "_cpu.cpp", 5), ("cuda", f"cuda/{kind}/", ".cu", cuda)):
                for number, part in enumerate(chunks(members, chunk)):
                    lines = [HEAD, f'#include "tapegrad/{room}{rows}"']
                    lines += [f'#include "tapegrad/aten/functors/{h}"' for h in headers if not h.startswith(skip)]
                    lines += ["", f"namespace tapegrad::{space} {{", *(line for op in part for line in _loop(op)), "}", ""]
                    yield f"src/{kind}_{family}_{number}{end}", "\n".join(lines)


def emit_cuda_list(ops: list[Op]) -> str:
    """What cuda/kernels.h declares and fills the table with: of a written kernel its name and type."""
    lines = [HEAD]
    for op in [op for op in ops if op.has_kernel]:
        if op.kind in ("pointwise", "reduce"):
            lines.append(f"TG_ITERATED({op.index}, {_symbol(op)}, {op.kind})")
            continue
        name = (op.get("cpu") or op.get("cpu_once")).removesuffix("_cpu") + "_cuda"
        lines.append(f"TG_WRITTEN({op.index}, {name}, {kernel_type(op)})")
    return "\n".join([*lines, ""])
