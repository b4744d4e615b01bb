"""Python functions and methods: one fast-call function per row over the shared argument helpers."""

import dataclasses

from .cpp import HEAD, cpp_text, families, function_includes, join_params, signature_text, spelled
from .cpp_types import cpp_default, fixed_length
from .model import Arg, Op

_NO_NUMBERS = ("int[]", "[]")  # type and default of an argument that may be None, as in PyTorch


def flags_of(op: Op, keyword_only: bool) -> list[str]:
    """Flags behind the row's arguments that exist in Python alone: those that may be given by position, or those that may not."""
    own = [name for name in op.get("flag", {}) if all(a.name != name for a in op.args) and ("nn.functional" in modules_of(op)) != keyword_only]
    inplace = op.has_inplace and "nn.functional" in op.get("module", []) and not any(a.keyword_only for a in op.args)  # last, as in PyTorch
    return own if keyword_only else ["inplace"] * inplace + own


def _extra_args(op: Op) -> list[tuple[str, str]]:
    """Slots that exist in Python alone: flags, then keyword-only ones."""
    extra = [(name, "Bool") for name in flags_of(op, False) + flags_of(op, True)]
    extra += [("out", "Tensor" if op.num_outputs == 1 else "Tensors")] * op.has_out
    made = op.is_random or (op.kind == "composite" and op.args[0].type != "Tensor")
    if op.kind == "create" or (made and not op.is_inplace_only and any(a.type == "Device?" for a in op.args)):
        extra += [("layout", "Layout"), ("pin_memory", "Bool"), ("requires_grad", "Bool")]
    return extra


def _value(arg: Arg, i: int) -> str:
    base, optional, n = arg.type.rstrip("?"), arg.type.endswith("?"), fixed_length(arg.type)
    default = None if arg.default is None else cpp_default(arg.type, arg.default)
    if base == "Tensor|Scalar" and default is not None:
        return f"(a.has({i}) ? a.operand({i}) : Operand(Tensor()))" if optional else f"(a.object({i}) ? a.operand({i}) : Operand({default}))"
    if base in ("Tensor|Scalar", "Tensor", "Tensor[]", "Generator"):
        return f"a.optional_tensor({i})" if arg.type == "Tensor?" else f"a.{arg.info.getter}({i})"
    kind = f"{arg.info.getter}({i}" + (f", {n}" if n else "")
    if (arg.type, arg.default) == _NO_NUMBERS:
        return f"(a.has({i}) ? a.{kind}) : DimVector())"
    if not optional:
        return f"a.{kind}" + (f", {default})" if default is not None else ")")
    # An absent argument takes the row's default, which need not be None.
    call, ints = f"a.optional_{kind})", base == "int[]" or n
    fallback = f"OptionalDims{{DimVector({default}), true}}" if ints else f"decltype({call})({default})"
    return call if arg.default in (None, "None") else f"(a.object({i}) ? {call} : {fallback})"


def _wrapped(op: Op, expression: str) -> str:
    if op.returns[0][0] == "None":
        return f"({expression}, Py_NewRef(Py_None))"
    return f"wrap_named(return_type_{op.name}, {expression})" if op.num_outputs > 1 else f"wrap({expression})"


def varargs_of(op: Op, args: list[Arg], flags: int = 0) -> int:
    """The place of the argument whose elements may also be given one by one, or -1."""
    if op.get("variadic"):
        return next(i for i, a in enumerate(args) if a.type == "Tensor[]")
    positional = [a for a in args if not a.keyword_only]
    i = len(positional) + flags - 1
    free = 0 <= i <= 1 and i < len(positional) and args[i].info.kind == "Ints" and not fixed_length(args[i].type)
    return i if free and all(b.is_tensor for b in args[:i]) else -1


def _signature(op: Op, name: str, args: list[Arg], extra) -> list[str]:
    entries = []
    for a in args:
        flags = ["kRequired"] * (a.default is None) + ["kNone"] * (a.type.endswith("?") or (a.type, a.default) == _NO_NUMBERS)
        entries.append(f'{{"{a.name}", ArgKind::{a.info.kind}, {" | ".join(flags) or "0"}}}')
    entries += [f'{{"{n}", ArgKind::{k}, kNone}}' for n, k in extra]
    flags = [n for n in flags_of(op, False) if (n, "Bool") in extra]
    positional, varargs = sum(not a.keyword_only for a in args) + len(flags), varargs_of(op, args, len(flags))
    shown = op.shown + ("_" if name.endswith("_") and not op.name.endswith("_") else "") if op.hidden else name
    array = f"args_{name}" if entries else "nullptr"
    lines = [f"constexpr Arg {array}[] = {{{', '.join(entries)}}};"] if entries else []
    return [*lines, f'Signature signature_{name}{{"{shown}", {array}, {len(entries)}, {positional}, {varargs}, "{signature_text(args, flags)}"}};']


# Lines before and behind the call for slots that only Python has.
SLOT_BEFORE = {"layout": "  a.strided_layout({});", "pin_memory": "  const PinnedScope pinned(a.has({0}) && a.boolean({0}));"}
SLOT_BEHIND = {"pin_memory": "  pinned.check(result);", "requires_grad": "  if (a.boolean({}, false)) result.set_requires_grad(true);"}


def _number_check(op: Op) -> list[str]:
    """Operands that may all be numbers: one must be a tensor, as PyTorch has it."""
    free = ("Tensor", "Tensor|Scalar") if op.get("number_first") == "with a tensor" else ("Tensor|Scalar",)
    if not op.tensor_args or any(a.type not in free for a in op.tensor_args):
        return []
    given = [f"a.object({op.args.index(a)})" for a in op.tensor_args]
    names, got = " and ".join(a.name for a in op.tensor_args), " and ".join(["{}"] * len(given))
    return [f'  TG_CHECK(!({" && ".join(f"!is_tensor({g})" for g in given)}), Type, "{op.shown}(): one of the arguments {names} must be a Tensor: got {got}", '
            + ", ".join(f"Py_TYPE({g})->tp_name" for g in given) + ");"]


def _flagged(op: Op, by_name, values: list[str], place: dict[str, int]) -> list[str]:
    """Calls that go to another row, by a flag."""
    lines = []
    for name, target in ((name, by_name[other]) for name, other in op.get("flag", {}).items()):
        call = f"tapegrad::{target.name}({', '.join(values[place[a.name]] for a in target.args)})"
        if op.has_out:
            lines.append(f'  TG_CHECK(!a.has({place["out"]}) || (static_cast<void>(a.tensor({place["out"]})), !a.boolean({place[name]}, false)), Runtime, "{op.shown}: out does not go with {name}");')
        lines.append(f"  if (a.boolean({place[name]}, false)) return {_wrapped(target, call)};")
    return lines


def _body(op: Op, by_name) -> list[str]:
    """`static PyObject* call_NAME(const ArgumentsBase& a)`: conversions and the call."""
    place = {name: i for i, name in enumerate([*(a.name for a in op.args), *(name for name, _ in _extra_args(op))])}
    values = [_value(a, i) for i, a in enumerate(op.args)]
    if op.get("number_first"):
        values[0] = "(!is_tensor(a.object(0)) && is_number(a.object(0)) ? a.operand(0).tensor() : a.tensor(0))"
    given, out, n = ", ".join(values), place.get("out"), op.num_outputs
    before, behind = ([lines[name].format(place[name]) for name, _ in _extra_args(op) if name in lines] for lines in (SLOT_BEFORE, SLOT_BEHIND))
    lines = [f"PyObject* call_{op.name}([[maybe_unused]] const ArgumentsBase& a) {{"]
    if {"size_average", "reduce"} <= place.keys():  # arguments for old programs
        lines.append(f"  a.old_reduction({place['size_average']}, {place['reduce']});")
    lines += [f"  a.implicit_dim({place.get('dim')});"] * ("_stacklevel" in place)
    lines += [*_number_check(op), *before, *_flagged(op, by_name, values, place)]
    if "inplace" in flags_of(op, False):
        lines += [f"  if (a.boolean({place['inplace']}, false)) {{", f"    tapegrad::{op.name}_({given});", "    return return_self(a.object(0));", "  }"]
    if op.has_out and n == 1:
        lines.append(f"  if (a.has({out})) return wrap(tapegrad::{op.name}_out({given}, a.tensor({out})));")
    elif op.has_out:
        outs = ",".join([*values, *(f"outs[{i}]" for i in range(n))])
        lines += [f"  if (const auto outs = a.out_tensors({out}, {n}); !outs.empty())", f"    return {_wrapped(op, f'tapegrad::{op.name}_out({outs})')};"]
    call = f"tapegrad::{op.name}({given})"
    if behind:
        return [*lines, f"  Tensor result = {call};", *behind, "  return wrap(std::move(result));", "}"]
    return [*lines, f"  return {_wrapped(op, call)};", "}"]


def _opened(name: str, method: bool) -> list[str]:
    """The first lines of what Python calls: a type among the arguments may take the operator's place (bindings/arguments/override.h)."""
    prefix, self = ("method", "self") if method else ("function", "nullptr")
    return [f"PyObject* {prefix}_{name}(PyObject*{' self' if method else ''}, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {{",
            f"  if (TG_UNLIKELY(overridden({self}, args, nargs, kwnames)))",
            f"    return call_overridden(as_c_function({prefix}_{name}), {self}, args, nargs, kwnames);", "  TG_PY_TRY"]


def _entry(name: str, call: str, size: int, method: bool, alone=()) -> list[str]:
    return [*_opened(name, method), *alone, f"  Arguments<{size}> a(signature_{name});",
            f"  if (!a.unpack({'self' if method else 'nullptr'}, args, nargs, kwnames)) return nullptr;", f"  {call};", "  TG_PY_CATCH", "}"]


def _alone(op: Op, by_name) -> list[str]:
    """The function with its first argument alone: another row."""
    if not op.get("alone"):
        return []
    target = by_name[op.get("alone")]
    return ["  if (nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0) == 1) {",
            f'    static Signature signature{{"{op.shown}", args_{op.name}, 1, 1, -1, "{signature_text(op.args[:1])}"}};',
            "    Arguments<1> a(signature);", "    if (!a.unpack(nullptr, args, nargs, kwnames)) return nullptr;",
            f"    return {_wrapped(target, f'tapegrad::{target.name}({_value(op.args[0], 0)})')};", "  }"]


def _inplace(op: Op) -> list[str]:
    name, values = op.name + "_", ", ".join(_value(a, i) for i, a in enumerate(op.args))
    call = f"tapegrad::{name}({values});\n  return return_self(a.object(0))"
    return [*_signature(op, name, op.args, []), *(line for method in (True, False) for line in _entry(name, call, len(op.args), method))]


def _overload(op: Op, by_name) -> list[str]:
    targets = [by_name[o] for o in op.get("overloads")]
    lines = []
    for method, self in [(False, "nullptr")] * bool(modules_of(op)) + [(True, "self")] * op.has_method:
        forms = [(t, t.name) for t in targets]
        if method and (renamed := op.get("method_arguments")):
            for t in targets:
                args = [dataclasses.replace(a, name=renamed.get(a.name, a.name)) for a in t.args]
                lines += _signature(t, f"method_{t.name}", args, _extra_args(t))
                forms.append((t, f"method_{t.name}"))
        lines += _opened(op.name, method)
        for t, name in forms:
            size = len(t.args) + len(_extra_args(t))
            lines += ["  {", f"    Arguments<{size}> a(signature_{name});",
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
    return ["_C._ops"] if op.hidden else [] if "method_only" in op.variants else op.get("module", [""])


STUB_SLOTS = {"Bool": ("bool", "False"), "Tensor": ("Tensor | None", "None"), "Tensors": ("Sequence[Tensor] | None", "None")}


def slots(op: Op, args: list[Arg], own: bool) -> list[tuple[bool, str, str, str | None]]:
    """(whether by name alone, name, type, default) of each parameter, as Python spells it; own: with all slots that Python alone has."""
    spelling, first = {"inf": "1e999", "-inf": "-1e999", "from": "from_"}, flags_of(op, False)
    extra = [(n not in first, n, *STUB_SLOTS.get(kind, ("Any", "None"))) for n, kind in _extra_args(op) if own or n in {*SLOT_BEFORE, *SLOT_BEHIND}]
    return [*((a.keyword_only, spelling.get(a.name, a.name), a.info.stub, spelling.get(a.default, a.default)) for a in args), *extra]


def parameters(slots, typed: bool = True) -> str:
    return spelled([(keyword, name + f": {stub}" * typed + (f"{' = ' if typed else '='}{default}" if default is not None else ""))
                    for keyword, name, stub, default in slots])


def merged(forms) -> list[tuple[bool, str, str, str | None]]:
    """Parameters that take what any of the forms takes: those of the longest in their places, others by name."""
    longest, found = max(forms, key=lambda form: sum(not keyword for keyword, *_ in form)), {}
    for keyword, name, stub, _ in [*longest, *(slot for form in forms for slot in form)]:
        given = [default for form in forms for _, n, _, default in form if n == name]
        free = len(given) < len(forms) or not keyword and any(not k and default for k, _, _, default in found.values())
        found.setdefault(name, (keyword or len(found) >= len(longest), name, stub, next(filter(None, given), "None" if free else None)))
    return list(found.values())


def forms_of(op: Op, by_name) -> list[tuple[Op, list[Arg]]]:
    """The ways to call an operator: a row and its arguments each."""
    alone = [(by_name[op.get("alone")], op.args[:1])] if op.get("alone") else []
    return [(by_name[o], by_name[o].args) for o in op.get("overloads", [])] or [(op, op.args), *alone]


def python_entries(op: Op):
    """(module, or None for a method; Python's name; the function's) of all that Python gets of a row. In-place forms come last."""
    methods = [op.name] if op.is_inplace_only and not op.hidden else python_names(op) if op.has_method else []
    yield from ((None, op.get("method_name", n), op.name) for n in methods)
    yield from ((module, name, op.name) for module, name in function_names(op))
    for name in python_names(op) if op.has_inplace else []:
        yield None, op.get("method_name", name) + "_", op.name + "_"
        yield from ((module, f"{name}_", op.name + "_") for module in modules_of(op) if module in ("", "nn.functional") or op.hidden)


def _method_row(op: Op, by_name, module, python: str, function: str) -> str:
    """A line of a table of methods. inspect.signature reads the parameters from the first line of the documentation."""
    first, *_ = rows = forms_of(op, by_name)
    forms = [slots(row, args[module is None:], function == op.name and module is not None) for row, args in rows]
    shown = merged(forms)
    if varargs_of(*first) == (module is None) and forms[0][0][-1] is None:  # sizes may also be given one by one
        shown[0] = (False, "*" + shown[0][1], "", None)
    listed = "\n".join(f"{python}({parameters(form, typed=False)})" for form in forms) + "\n\n" if len(forms) > 1 else ""
    text = join_params("$self" * (module is None), parameters(shown, typed=False))
    doc = cpp_text(f"{python}({text})\n--\n\n{'In place: ' * (function != op.name)}{listed}{op.get('doc').strip()}\n")
    return f'    {{"{python}", as_c_function({"method" if module is None else "function"}_{function}), METH_FASTCALL | METH_KEYWORDS, {doc}}},'


def _method_table(name: str, rows) -> list[str]:
    return [f"extern PyMethodDef {name}[];", f"PyMethodDef {name}[] = {{", *rows, "    {nullptr, nullptr, 0, nullptr}};"]


def module_tag(module: str) -> str:
    return module.replace(".", "_") or "root"


def _functions(op: Op, by_name) -> list[str]:
    """What Python calls for a row."""
    if op.kind == "overload":
        return _overload(op, by_name)
    extra = _extra_args(op)
    lines = [f"PyTypeObject* return_type_{op.name} = nullptr;"] * (op.num_outputs > 1)
    lines += [*_signature(op, op.name, op.args, extra), *_body(op, by_name)]
    for method, wanted in ((False, modules_of(op)), (True, op.has_method or (op.is_inplace_only and not op.hidden))):
        if wanted:
            lines += _entry(op.name, f"return call_{op.name}(a)", len(op.args) + len(extra), method, () if method else _alone(op, by_name))
    return lines + (_inplace(op) if op.has_inplace else [])


def emit_family(family: str, ops: list[Op], table: list[Op]) -> str:
    by_name = {op.name: op for op in table}
    pinned = ['#include "tapegrad/c10/device/pinned_scope.h"'] if any(("pin_memory", "Bool") in _extra_args(op) for op in ops) else []
    lines = ["", "namespace tapegrad::python {", "namespace {", ""]
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
            lines += [*_signature(target, target.name, target.args, _extra_args(target)), *_body(target, by_name)]
    for op in sorted(ops, key=lambda o: o.kind == "overload"):
        lines += _functions(op, by_name)
        for module, name, function in python_entries(op):
            group = tables.setdefault(module, []) if module is not None else overloaded if op.kind == "overload" else \
                shadowed if function != op.name and name in by_name else methods
            group.append(_method_row(op, by_name, module, name, function))
    lines += ["", "}  // namespace", "", *_method_table(f"methods_{family}", [*overloaded, *methods, *shadowed])]
    for module, rows in tables.items():
        lines += _method_table(f"functions_{family}_{module_tag(module)}", rows)
    lines += [f"bool init_return_types_{family}(PyObject* module);", f"bool init_return_types_{family}([[maybe_unused]] PyObject* module) {{"]
    for op in (op for op in ops if op.kind != "overload" and op.num_outputs > 1):
        public, fields = op.shown, ", ".join(f'"{n}"' for n in op.output_names)
        lines += [f'  return_type_{op.name} = make_return_type("{public}", {{{fields}}});',
                  f"  if (!return_type_{op.name} || PyModule_AddObjectRef(module, \"{public}\", "
                  f"reinterpret_cast<PyObject*>(return_type_{op.name})) < 0)", "    return false;"]
    lines += ["  return true;", "}", "", "}  // namespace tapegrad::python", ""]
    return "\n".join([HEAD, *function_includes("\n".join(lines), table, family), '#include "tapegrad/bindings/arguments/args.h"',
                      '#include "tapegrad/bindings/arguments/override.h"', '#include "tapegrad/bindings/interpreter/type_object.h"', '#include "tapegrad/bindings/registry.h"', *pinned, *lines])


def emit_registry(ops: list[Op]) -> str:
    groups, functions = families(ops), []
    lines = [HEAD, '#include "tapegrad/bindings/registry.h"', "", "namespace tapegrad::python {", ""]
    for family, members in groups.items():
        lines += [f"extern PyMethodDef methods_{family}[];", f"bool init_return_types_{family}(PyObject* module);"]
        for module in dict.fromkeys(module for op in members for module, _ in function_names(op)):
            lines.append(f"extern PyMethodDef functions_{family}_{module_tag(module)}[];")
            functions.append(f'      {{"{module}", functions_{family}_{module_tag(module)}}},')
    for result, name, rows in (("PyMethodDef* const", "tensor_methods", [f"      methods_{f}," for f in groups]), ("const ModuleFunctions", "module_functions", functions)):
        lines += ["", f"std::span<{result}> {name}() {{", f"  static {result} tables[] = {{", *rows, "  };", "  return tables;", "}"]
    made = " && ".join(f"init_return_types_{f}(module)" for f in groups) or "true"
    return "\n".join([*lines, "", f"bool init_return_types(PyObject* module) {{ return {made}; }}", "", "}  // namespace tapegrad::python", ""])
