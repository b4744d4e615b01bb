"""Python functions and methods: one fast-call function per row over the shared argument helpers."""

from __future__ import annotations

from .cpp import HEAD, families, function_includes
from .cpp_types import cpp_default, fixed_length
from .model import Arg, Op

KIND_OF = {"Tensor": "Tensor", "Tensor|Scalar": "Operand", "Tensor[]": "Tensors", "Scalar": "Scalar", "int": "Int", "float": "Float",
           "bool": "Bool", "int[]": "Ints", "float[]": "Floats", "str": "Str", "DType": "DType", "Device": "Device",
           "MemoryFormat": "MemoryFormat", "Generator": "Generator"}
PLAIN = {"Scalar": "scalar", "int": "integer", "float": "real", "float[]": "reals", "bool": "boolean", "str": "str", "DType": "dtype"}


def signature_text(args: list[Arg]) -> str:
    parts, star = [], False
    for a in args:
        if a.keyword_only and not star:
            parts.append("*")
            star = True
        parts.append(f"{a.type} {a.name}" + (f"={a.default}" if a.default is not None else ""))
    return "(" + ", ".join(parts) + ")"


def _shown_signature(args: list[Arg], extra) -> str:
    text = signature_text(args).replace('"', "'")
    return text[:-1] + ", bool inplace=False)" if any(name == "inplace" for name, _ in extra) else text


def _kind(arg: Arg) -> str:
    base = arg.type.rstrip("?")
    if fixed_length(arg.type):
        base = "int[]"
    return KIND_OF[base]


def has_inplace_flag(op: Op) -> bool:
    """Functions of nn.functional with an in-place form take `inplace=False` last, as PyTorch's do."""
    return op.has_inplace and "nn.functional" in op.get("module", []) and not any(a.keyword_only for a in op.args)


def _extra_args(op: Op) -> list[str]:
    """Slots that exist in Python alone; all but `inplace` are keyword-only."""
    extra = [("inplace", "Bool")] if has_inplace_flag(op) else []
    if op.has_out:
        extra.append(('out', 'Tensor' if op.num_outputs == 1 else 'Tensors'))
    made = op.is_random or (op.kind == "composite" and op.args[0].type != "Tensor")
    if op.kind == "create" or (made and not op.is_inplace_only and any(a.type == "Device?" for a in op.args)):
        extra += [("layout", "Layout"), ("pin_memory", "Bool"), ("requires_grad", "Bool")]
    return extra


def _value(arg: Arg, i: int) -> str:
    base, optional = arg.type.rstrip("?"), arg.type.endswith("?")
    n = fixed_length(arg.type)
    if base == "Tensor":
        return f"a.optional_tensor({i})" if optional else f"a.tensor({i})"
    if base == "Tensor|Scalar":
        if arg.default is not None:
            default = "Tensor()" if optional else cpp_default(arg.type, arg.default)
            given = "has" if optional else "object"
            return f"(a.{given}({i}) ? a.operand({i}) : Operand({default}))"
        return f"a.operand({i})"
    if base == "Tensor[]":
        return f"a.tensors({i})"
    if base == "Generator":
        return f"a.generator({i})"
    if optional:
        # An absent argument takes the row's default, which need not be None.
        kind = {"Device": "device", "MemoryFormat": "memory_format", **PLAIN}.get(base)
        call = f"a.optional_ints_n({i}, {n})" if n else f"a.optional_ints({i})" if base == "int[]" else f"a.optional_{kind}({i})"
        if arg.default not in (None, "None"):
            cpp = {"int[]": "OptionalDims"}.get(base)
            fallback = f"OptionalDims{{DimVector({cpp_default(arg.type, arg.default)}), true}}" if cpp or n \
                else f"decltype({call})({cpp_default(arg.type, arg.default)})"
            return f"(a.object({i}) ? {call} : {fallback})"
        return call
    if base == "int[]" or n:
        call = f"ints_n({i}, {n}" if n else f"ints({i}"
        return f"a.{call}" + (f", {cpp_default(arg.type, arg.default)})" if arg.default is not None else ")")
    default = f", {cpp_default(arg.type, arg.default)}" if arg.default is not None else ""
    return f"a.{PLAIN[base]}({i}{default})"


def _wrapped(op: Op, expression: str) -> str:
    if op.returns[0][0] == "None":
        return f"({expression}, Py_NewRef(Py_None))"
    if op.num_outputs > 1:
        return f"wrap_named(return_type_{op.name}, {expression})"
    return f"wrap({expression})"


def _signature(op: Op, name: str, args: list[Arg], extra) -> list[str]:
    entries = []
    for a in args:
        flags = ["kRequired"] * (a.default is None) + ["kNone"] * a.type.endswith("?")
        entries.append(f'{{"{a.name}", ArgKind::{_kind(a)}, {" | ".join(flags) or "0"}}}')
    entries += [f'{{"{n}", ArgKind::{k}, kNone}}' for n, k in extra]
    positional = sum(not a.keyword_only for a in args) + any(n == "inplace" for n, _ in extra)
    varargs = next((i for i, a in enumerate(args) if _kind(a) == "Ints" and i <= 1 and not fixed_length(a.type)
                    and all(b.is_tensor for b in args[:i])), -1)
    if sum(_kind(a) == "Ints" for a in args[:positional]) > 1 or (varargs >= 0 and positional > varargs + 1):
        varargs = -1
    if op.get("variadic"):
        varargs = next(i for i, a in enumerate(args) if a.type == "Tensor[]")
    shown = op.shown + ("_" if name.endswith("_") and not op.name.endswith("_") else "") if op.hidden else name
    array = f"args_{name}" if entries else "nullptr"
    lines = [f"constexpr Arg {array}[] = {{{', '.join(entries)}}};"] if entries else []
    return [*lines, f'Signature signature_{name}{{"{shown}", {array}, {len(entries)}, {positional}, {varargs}, "{_shown_signature(args, extra)}"}};']


SLOT_BEFORE = {"layout": "  a.strided_layout({});", "pin_memory": "  const PinnedScope pinned(a.has({0}) && a.boolean({0}));"}
SLOT_BEHIND = {"pin_memory": "  pinned.check(result);", "requires_grad": "  if (a.boolean({}, false)) result.set_requires_grad(true);"}


def _after(extra, first: int) -> list[list[str]]:
    """Lines before and behind the call for the slots that only Python has."""
    return [[lines[name].format(first + k) for k, (name, _) in enumerate(extra) if name in lines] for lines in (SLOT_BEFORE, SLOT_BEHIND)]


def _number_check(op: Op) -> list[str]:
    """Operands that may all be numbers: one must be a tensor, as PyTorch has it."""
    free = ("Tensor", "Tensor|Scalar") if op.get("number_first") == "with a tensor" else ("Tensor|Scalar",)
    if not op.tensor_args or any(a.type not in free for a in op.tensor_args):
        return []
    places = [op.args.index(a) for a in op.tensor_args]
    none = " && ".join(f"!is_tensor(a.object({i}))" for i in places)
    return [f'  TG_CHECK(!({none}), Type, "{op.shown}(): one of the arguments {" and ".join(a.name for a in op.tensor_args)} must be a Tensor: got {" and ".join("{}" for _ in places)}", '
            + ", ".join(f"Py_TYPE(a.object({i}))->tp_name" for i in places) + ");"]


def _body(op: Op) -> list[str]:
    """`static PyObject* call_NAME(const ArgumentsBase& a)`: conversions and the call."""
    extra = _extra_args(op)
    values = [_value(a, i) for i, a in enumerate(op.args)]
    if op.get("number_first"):
        values[0] = "(!is_tensor(a.object(0)) && is_number(a.object(0)) ? a.operand(0).tensor() : a.tensor(0))"
    n = len(op.args)
    before, behind = _after(extra, n)
    lines = [f"PyObject* call_{op.name}([[maybe_unused]] const ArgumentsBase& a) {{", *_number_check(op), *before]
    if has_inplace_flag(op):
        lines += [f"  if (a.boolean({n}, false)) {{", f"    tapegrad::{op.name}_({', '.join(values)});", "    return return_self(a.object(0));", "  }"]
        n += 1
    if op.has_out:
        if op.num_outputs == 1:
            lines.append(f"  if (a.has({n})) return wrap(tapegrad::{op.name}_out({', '.join([*values, f'a.tensor({n})'])}));")
        else:
            outs = [f"outs[{i}]" for i in range(op.num_outputs)]
            lines += [f"  if (const auto outs = a.out_tensors({n}, {op.num_outputs}); !outs.empty())",
                      f"    return {_wrapped(op, f'tapegrad::{op.name}_out({chr(44).join([*values, *outs])})')};"]
    call = f"tapegrad::{op.name}({', '.join(values)})"
    if behind:
        lines += [f"  Tensor result = {call};", *behind, "  return wrap(std::move(result));", "}"]
    else:
        lines += [f"  return {_wrapped(op, call)};", "}"]
    return lines


def _opened(name: str, method: bool) -> list[str]:
    """The first lines of what Python calls: a type among the arguments may take the operator's place (bindings/arguments/override.h)."""
    prefix, self = ("method", "self") if method else ("function", "nullptr")
    return [f"PyObject* {prefix}_{name}(PyObject*{' self' if method else ''}, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {{",
            f"  if (TG_UNLIKELY(overridden({self}, args, nargs, kwnames)))",
            f"    return call_overridden(as_method({prefix}_{name}), {self}, args, nargs, kwnames);", "  TG_PY_TRY"]


def _entry(name: str, call: str, size: int, method: bool) -> list[str]:
    self = "self" if method else "nullptr"
    return [*_opened(name, method), f"  Arguments<{size}> a(signature_{name});",
            f"  if (!a.unpack({self}, args, nargs, kwnames)) return nullptr;", f"  {call};", "  TG_PY_CATCH", "}"]


def _inplace(op: Op) -> list[str]:
    name = op.name + "_"
    values = ", ".join(_value(a, i) for i, a in enumerate(op.args))
    call = f"tapegrad::{name}({values});\n  return return_self(a.object(0))"
    entries = [_entry(name, call, len(op.args), method) for method in (True, False)]
    return [*_signature(op, name, op.args, []), *entries[0], *entries[1]]


def _overload(op: Op, by_name) -> list[str]:
    targets = [by_name[o] for o in op.get("overloads")]
    lines = []
    for method in (False, True):
        if not (op.has_method if method else modules_of(op)):
            continue
        self = "self" if method else "nullptr"
        lines += _opened(op.name, method)
        for t in targets:
            size = len(t.args) + len(_extra_args(t))
            lines += ["  {", f"    Arguments<{size}> a(signature_{t.name});",
                      f"    if (a.try_unpack({self}, args, nargs, kwnames)) return call_{t.name}(a);", "  }"]
        listed = ", ".join(f"&signature_{t.name}" for t in targets)
        lines += [f'  return no_overload("{op.name}", {{{listed}}}, {self}, args, nargs, kwnames);', "  TG_PY_CATCH", "}"]
    return lines


def python_names(op: Op, module: str = "") -> list[str]:
    """The names of the method and of the functions in the row's modules. An alias with a dot is a function elsewhere."""
    return [op.public_name(module), *(a for a in op.get("alias", []) if "." not in a)]


def function_names(op: Op) -> list[tuple[str, str]]:
    """(module, name) of each function."""
    elsewhere = [tuple(a.rsplit(".", 1)) for a in op.get("alias", []) if "." in a]
    return [(module, name) for module in modules_of(op) for name in python_names(op, module)] + elsewhere


def modules_of(op: Op) -> list[str]:
    if op.hidden:
        return ["_C._ops"]
    if "method_only" in op.variants:
        return []
    return op.get("module", [""])


def _doc(op: Op, args: list[Arg]) -> str:
    text = f"{op.name}{signature_text(args)}\n\n{op.get('doc').strip()}\n"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _entry_row(python: str, function: str, doc: str) -> str:
    return f'    {{"{python}", as_method({function}), METH_FASTCALL | METH_KEYWORDS, {doc}}},'


def emit_family(family: str, ops: list[Op], table: list[Op]) -> str:
    by_name = {op.name: op for op in table}
    pinned = ['#include "tapegrad/c10/pinned_scope.h"'] if any(("pin_memory", "Bool") in _extra_args(op) for op in ops) else []
    lines = ["", "namespace tapegrad::python {", "namespace {", "",
             "using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);",
             "PyCFunction as_method(FastCall f) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)); }", ""]
    tables: dict[str, list[str]] = {}
    # Of methods with one name the first counts: one with several forms goes before its parts, and the in-place form
    # of a row after a row of that name.
    overloaded, methods, shadowed = [], [], []
    local = {op.name for op in ops}
    for op in ops:  # an overload of another family's row needs its signature and call here, too
        for target in (by_name[o] for o in op.get("overloads", []) if o not in local):
            local.add(target.name)
            if target.num_outputs > 1:
                raise ValueError(f"{op.where}: {op.name}: overload {target.name} with several results: expected in the same file")
            lines += [*_signature(target, target.name, target.args, _extra_args(target)), *_body(target)]
    for op in sorted(ops, key=lambda o: o.kind == "overload"):
        if op.kind == "overload":
            lines += _overload(op, by_name)
            doc = _doc(op, by_name[op.get("overloads")[0]].args)
        else:
            extra = _extra_args(op)
            size = len(op.args) + len(extra)
            if op.num_outputs > 1 and not op.returns_list:
                lines.append(f"PyTypeObject* return_type_{op.name} = nullptr;")
            lines += [*_signature(op, op.name, op.args, extra), *_body(op)]
            if modules_of(op):
                lines += _entry(op.name, f"return call_{op.name}(a)", size, False)
            if op.has_method or (op.is_inplace_only and not op.hidden):
                lines += _entry(op.name, f"return call_{op.name}(a)", size, True)
            if op.has_inplace:
                lines += _inplace(op)
            doc = _doc(op, op.args)
        own = overloaded if op.kind == "overload" else methods
        if op.is_inplace_only and not op.hidden:
            own.append(_entry_row(op.get("method_name", op.name), f"method_{op.name}", doc))
        elif op.has_method:
            for name in python_names(op):
                own.append(_entry_row(op.get("method_name", name), f"method_{op.name}", doc))
        for module, name in function_names(op):
            tables.setdefault(module, []).append(_entry_row(name, f"function_{op.name}", doc))
        if op.has_inplace:
            for name in python_names(op):
                shown = op.get("method_name", name)
                parts = shadowed if f"{shown}_" in by_name else methods
                parts.append(_entry_row(f"{shown}_", f"method_{op.name}_", doc))
                for module in modules_of(op) if "method_only" not in op.variants else []:
                    if module in ("", "nn.functional") or op.hidden:
                        tables.setdefault(module, []).append(_entry_row(f"{name}_", f"function_{op.name}_", doc))
    lines += ["", "}  // namespace", "", f"extern PyMethodDef methods_{family}[];", f"PyMethodDef methods_{family}[] = {{", *overloaded,
              *methods, *shadowed, "    {nullptr, nullptr, 0, nullptr}};"]
    for module, rows in tables.items():
        tag = module.replace(".", "_") or "root"
        lines += [f"extern PyMethodDef functions_{family}_{tag}[];", f"PyMethodDef functions_{family}_{tag}[] = {{", *rows,
                  "    {nullptr, nullptr, 0, nullptr}};"]
    lines += [f"bool init_return_types_{family}(PyObject* module);", f"bool init_return_types_{family}([[maybe_unused]] PyObject* module) {{"]
    for op in ops:
        if op.kind != "overload" and op.num_outputs > 1:
            public = op.get("method_name", op.name).strip("_")
            fields = ", ".join(f'"{n}"' for n in op.output_names)
            lines += [f'  return_type_{op.name} = make_return_type("{public}", {{{fields}}});',
                      f"  if (!return_type_{op.name} || PyModule_AddObjectRef(module, \"{public}\", "
                      f"reinterpret_cast<PyObject*>(return_type_{op.name})) < 0)", "    return false;"]
    lines += ["  return true;", "}", "", "}  // namespace tapegrad::python", ""]
    return "\n".join([HEAD, *function_includes("\n".join(lines), table, family), '#include "tapegrad/bindings/arguments/args.h"',
                      '#include "tapegrad/bindings/arguments/override.h"', '#include "tapegrad/bindings/registry.h"', *pinned, *lines])


def emit_registry(ops: list[Op]) -> str:
    groups = families(ops)
    lines = [HEAD, '#include "tapegrad/bindings/registry.h"', "", "namespace tapegrad::python {", ""]
    functions = []
    for family, members in groups.items():
        lines += [f"extern PyMethodDef methods_{family}[];", f"bool init_return_types_{family}(PyObject* module);"]
        for module in dict.fromkeys(module for op in members for module, _ in function_names(op)):
            tag = module.replace(".", "_") or "root"
            lines.append(f"extern PyMethodDef functions_{family}_{tag}[];")
            functions.append(f'      {{"{module}", functions_{family}_{tag}}},')
    lines += ["", "std::span<PyMethodDef* const> tensor_methods() {", "  static PyMethodDef* const tables[] = {"]
    lines += [f"      methods_{f}," for f in groups] + ["  };", "  return tables;", "}", ""]
    lines += ["std::span<const ModuleFunctions> module_functions() {", "  static const ModuleFunctions tables[] = {", *functions, "  };",
              "  return tables;", "}", "", "bool init_return_types(PyObject* module) {",
              "  return " + (" && ".join(f"init_return_types_{f}(module)" for f in groups) or "true") + ";", "}", "",
              "}  // namespace tapegrad::python", ""]
    return "\n".join(lines)
