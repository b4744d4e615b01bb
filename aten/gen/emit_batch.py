"""Calls with batched tensors: what a raw:: function, or a composite, does where a vmap runs (aten/batch/call.h)."""

from __future__ import annotations

from .cpp import join_params, names, params, return_type
from .model import Op

RULES = {"loop": "Loop", "broadcast": "Broadcast", "first": "First", "first new": "FirstNew", "all": "All", "all new": "AllNew",
         "merge": "Merge", "rest": "Rest", "reduce": "Reduce", "random": "Random", "random loop": "RandomLoop", "parts": "Parts"}
BY_KIND = {"pointwise": "broadcast", "reduce": "reduce", "create": "broadcast", "random": "random", "composite": "parts", "view": "view"}
DIMS = {"dim", "dim0", "dim1", "dim2", "dims", "dimension", "source", "destination"}
SIZES = {"size", "sizes", "input_size"}


def rule_of(op: Op) -> str:
    return op.get("batch") or BY_KIND.get(op.kind, "loop")


def _single(op: Op):
    return [a for a in op.tensor_args if not a.is_list]


def _lists(op: Op):
    return [a for a in op.tensor_args if a.is_list]


def tensors_and_lists(op: Op, rename=None) -> str:
    """`{&input, &other.tensor()}, {tensors}` as C++ initializer lists."""
    rename = rename or {}
    single = [f"&{rename.get(a.name, a.name)}" + (".tensor()" if "Scalar" in a.type and a.name not in rename else "") for a in _single(op)]
    lists = [a.name for a in _lists(op)]
    return "{" + ", ".join(single) + "}" + (", {" + ", ".join(lists) + "}" if lists else "")


def call_args(op: Op, other=lambda a: a.name) -> str:
    """The arguments of the operator in a handler's call: tensors and lists are the call's, the others as `other` has them."""
    values, tensors, lists = [], 0, 0
    for a in op.args:
        if a.is_list:
            values.append(f"call.list({lists})")
            lists += 1
        elif a.is_tensor:
            values.append(f"Operand(call.tensor({tensors}))" if "Scalar" in a.type else f"call.tensor({tensors})")
            tensors += 1
        else:
            values.append(other(a))
    return ", ".join(values)


def _step_arg(a) -> str:
    """An argument that is no tensor as the step sees it."""
    if a.name in DIMS and a.type in ("int", "int?"):
        return f"call.dim({a.name})"
    if a.name in DIMS and a.type.startswith("int["):
        return f"call.all_dims({a.name})" if a.type.endswith("?") else f"call.dims({a.name})"
    if a.name in SIZES and a.type == "int[]":
        return f"call.sizes({a.name})"
    if a.type == "Device?":
        return f"batch::host_device({a.name})"
    return f"call.format({a.name})" if a.type == "MemoryFormat?" else a.name


def _step_args(op: Op) -> str:
    return call_args(op, _step_arg)


def _call_line(op: Op, rename=None) -> str:
    generators = [a.name for a in op.args if a.type == "Generator?"]
    end = ""
    if generators:
        end = (", {}" if not _lists(op) else "") + f", {generators[0]}.get()"
    return f"  batch::Call call(entries::{op.name}, {tensors_and_lists(op, rename)}{end});"


def _condition(op: Op, rename=None) -> str:
    if op.is_random:
        return "modes() & kModeBatch"
    return f"(modes() & kModeBatch) && batch::any({tensors_and_lists(op, rename)})"


def _method(op: Op) -> str:
    return "many" if op.returns_list else "several" if op.num_outputs > 1 else "one"


def applies(op: Op) -> bool:
    if op.kind == "overload" or op.returns_plain or (op.kind == "view" and rule_of(op) == "view"):
        return False
    if op.kind == "composite":
        return bool(op.tensor_args) and not op.is_inplace_only
    return bool(op.tensor_args) or op.is_random


def expression(op: Op) -> str | None:
    """The rule as an expression of raw operators on the batched tensors themselves."""
    rule = rule_of(op)
    return rule if "(" in rule else None


def emit_declarations(op: Op) -> list[str]:
    """The functions that raw:: ones of this row go to, in namespace raw::batched."""
    if not applies(op) or op.kind == "composite":
        return []
    lines = []
    if not op.is_inplace_only and not expression(op):
        lines += [f"TG_COLD TG_NOINLINE {return_type(op)} {op.name}({params(op.args)}) {{", _call_line(op)]
        whole = [a.name for a in op.args if a.name == "dim" and a.type == "int?"]
        if rule_of(op) == "reduce" and whole:
            lines.append(f"  call.reduce_all(!{whole[0]});")
        lines += [f"  return call.{_method(op)}([&] {{ return tapegrad::{op.name}({_step_args(op)}); }});", "}"]
    if op.is_inplace_only or (op.has_inplace and op.kind != "view"):
        name = op.name if op.is_inplace_only else op.name + "_"
        rest = params(op.args[1:])
        self = op.args[0].name if op.is_inplace_only else "self"
        lines += [f"TG_COLD TG_NOINLINE const Tensor& {name}({join_params(f'const Tensor& {self}', rest)}) {{"]
        if expression(op):
            # The result may not be written to a tensor that all samples share: copy_ says so.
            lines += [f"  const Tensor& {op.args[0].name} = {self};", f"  return raw::copy_({self}, {expression(op)});", "}"]
            return lines
        lines += [_call_line(op, {op.args[0].name: self}),
                  f"  call.write([&] {{ tapegrad::{name}({_step_args(op)}); }});", f"  return {self};", "}"]
    return lines


def hook(op: Op, inplace: bool = False) -> list[str]:
    """The first line of a raw:: function."""
    if not applies(op):
        return []
    rename = {}
    name, args = op.name, names(op.args)
    if op.is_inplace_only:
        inplace = True
    elif inplace:
        rename = {op.args[0].name: "self"}
        name, args = op.name + "_", join_params("self", names(op.args[1:]))
    target = f"batched::{name}({args})"
    if not inplace and expression(op):
        target = expression(op)
    return [f"  if (TG_UNLIKELY({_condition(op, rename)})) return {target};"]


def out_hook(op: Op) -> list[str]:
    if not op.tensor_args or op.kind == "composite":
        return []
    return [f'  if (TG_UNLIKELY((modes() & kModeBatch) && batch::any({tensors_and_lists(op)}))) batch::throw_out("{op.shown}");']


def composite_lines(op: Op, body: str) -> list[str]:
    """The end of a composite: its parts; where they ask a batched tensor for values, once per sample."""
    if not applies(op):
        return [f"  return {body};"]
    step = f"[&] {{ return tapegrad::{op.name}({_step_args(op)}); }}"
    return [f"  if (TG_UNLIKELY({_condition(op)})) {{", "  " + _call_line(op),
            f"    return call.{_method(op)}_of([&]() -> {return_type(op)} {{ return {body}; }}, {step});", "  }", f"  return {body};"]
