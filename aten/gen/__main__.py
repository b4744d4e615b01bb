"""`python -m aten.gen --ops aten/ops --nn nn --out build/gen [--list]`

Writes only what changed, so that a build recompiles little. `--list` prints the output paths instead.
"""

import argparse
import re
import sys
from pathlib import Path

from . import emit_api, emit_batch, emit_dispatch, emit_kernels, emit_python, emit_raw, emit_tape, emit_text
from .cpp import HEAD, chunks, families, function_includes
from .emit_nn_cpp import cpp_files
from .emit_nn_model import load_layers
from .emit_nn_python import python_module
from .model import Op, RowError, load_table


def _blocks(lines: list[str]):
    """(name, lines) of the functions among lines of C++; None: what stands between them."""
    block: list[str] = []
    for line in lines:
        if not block and not line.endswith("{"):
            yield None, [line]
            continue
        block.append(line)
        if line[0] == "}":
            yield re.search(r"(\w+)\(", block[0])[1], block
            block = []


def _operator_file(family: str, ops: list[Op], methods: dict[str, list[str]], table: list[Op]) -> str:
    entries, loops, nodes, bodies, tables, public, raw, plain = [], [], [], [], [], [], [], []
    for op in ops:
        here = f"// {family}.toml: {op.name}"
        public += [here, *methods.get(op.name, [])]
        if op.kind == "overload":
            continue
        functions = {f.name: f for f in emit_dispatch.functions(op)}
        entries.append(emit_kernels.emit_entry(op))
        loops += emit_kernels.emit_loop_declarations(op)
        plain.append(here)
        for name, lines in _blocks(emit_raw.emit_raw(op)):
            if name in functions and functions[name].below_bits:
                plain += [lines[0].replace(f" {name}(", f" plain_{name}(", 1), *lines[1:]]
            else:
                (raw if name else plain).extend(lines)
        plain += emit_batch.emit_functions(op)
        if emit_tape.has_node(op):
            nodes += [here, *emit_tape.emit_node(op)]
        own = emit_tape.emit_bodies(op)
        bodies += own
        names = {name.removeprefix("body_") for name, _ in _blocks(own) if name}
        for f in functions.values():
            tables.append(emit_dispatch.emit_table(f, names))
            raw += emit_dispatch.emit_raw_function(f)
            public += emit_dispatch.emit_public_function(f, names, emit_tape.has_tape(op))
    rules = ['#include "tapegrad/aten/batch/rules.h"'] if any((emit_batch.expression(op) or "").startswith("batch::") for op in ops) else []
    rules += ['#include "tapegrad/c10/random/default_generators.h"'] if any(op.is_random for op in ops) else []
    rules += ['#include "tapegrad/aten/sparse/products.h"'] if family in ("copy", "create", "linalg", "pointwise", "solve", "sparse") else []
    body = [
        "", "namespace tapegrad {", "", *loops, "namespace entries {", *entries, "}  // namespace entries", "",
        "namespace raw {", "namespace {", *plain, "}  // namespace", "}  // namespace raw", "",
        "using namespace autograd;", "namespace {", *nodes, *bodies, "namespace functions {", *tables, "}  // namespace functions", "}  // namespace", "",
        "namespace raw {", *raw, "}  // namespace raw", "", *public, "", "}  // namespace tapegrad", ""]
    includes = ["aten/batch/batched_tensor", "aten/batch/products", "aten/batch/rule", "aten/dispatch/call", "aten/iterate/outputs", "aten/iterate/pointwise", "aten/record/kernel_call",
                "aten/iterate/reduce", f"aten/kernels_{family}", *{"create": ["aten/create/unset"], "copy": ["autograd/fill_inplace"], "view": ["autograd/fill_inplace"]}.get(family, []), "aten/sparse/operators", "autograd/formulas/all", "autograd/generated_support"]
    return "\n".join([HEAD, *(f'#include "tapegrad/{h}.h"' for h in includes), *rules, *function_includes("\n".join(body), table, family), *body])


def outputs(ops: list[Op], ops_folder: Path):
    """(path relative to --out, text) of everything but the layers."""
    root = ops_folder.parent.parent
    by_name = {op.name: op for op in ops}
    methods = emit_api.method_bodies(ops)
    yield "tapegrad/aten/tensor_methods.inc", emit_api.emit_methods(ops)
    yield "tapegrad/aten/functions.h", "\n".join(
        [HEAD + "// Every operator as a function.\n#pragma once", *(f'#include "tapegrad/aten/functions_{f}.h"' for f in families(ops)), ""])
    formula_headers = sorted(p.relative_to(root) for p in (root / "autograd" / "formulas").rglob("*.h"))
    yield "tapegrad/autograd/formulas/all.h", "\n".join(
        [HEAD + "#pragma once", *(f'#include "tapegrad/{h}"' for h in formula_headers), ""])
    for family, members in families(ops).items():
        yield f"tapegrad/aten/functions_{family}.h", emit_api.emit_functions(family, members, by_name)
        yield f"tapegrad/aten/kernels_{family}.h", emit_kernels.emit_declarations(family, members)
        for name, part in chunks(members, 8):
            yield f"src/ops_{family}_{name}.cpp", _operator_file(family, part, methods, ops)
        yield f"bindings/py_{family}.cpp", emit_python.emit_family(family, members, ops)
    yield "tapegrad/cuda/kernel_list.inc", emit_kernels.emit_cuda_list(ops)
    yield "tapegrad/cuda/formula_list.inc", emit_kernels.emit_formula_list(ops)
    yield from emit_kernels.emit_loops(ops, root / "aten" / "functors")
    yield "bindings/registry.cpp", emit_python.emit_registry(ops)
    yield from emit_text.emit_stubs(ops)
    yield "docs/operators.md", emit_text.emit_reference(ops)
    yield "test/op_records.json", emit_text.emit_records(ops)


def main() -> int:
    parser = argparse.ArgumentParser(prog="aten.gen")
    for name in ("--ops", "--nn", "--out"):
        parser.add_argument(name, type=Path, required=name != "--nn")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    written = []

    def write(relative: str, text: str):
        written.append(relative)
        path = options.out / relative
        if options.list or (path.exists() and path.read_text() == text):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    try:
        ops = load_table(options.ops)
        for relative, text in outputs(ops, options.ops.resolve()):
            write(relative, text)
        if options.nn and options.nn.exists():
            layers = load_layers(options.nn)
            write("python/tapegrad/nn/_layers.py", python_module(layers))
            for relative, text in cpp_files(layers, ops):
                write(relative, text)
    except (RowError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.list:
        print("\n".join(written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
