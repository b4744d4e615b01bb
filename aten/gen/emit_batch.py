"""Calls with batched tensors: what rows say of them (aten/batch/rule.h, handler.cpp)."""

from __future__ import annotations

from .cpp import join_params, params, return_type, used_params
from .model import Op

RULES = {"loop": "Loop", "broadcast": "Broadcast", "first": "First", "first new": "FirstNew", "all": "All", "all new": "AllNew",
         "merge": "Merge", "rest": "Rest", "reduce": "Reduce", "random": "Random", "random loop": "RandomLoop", "parts": "Parts"}
BY_KIND = {"pointwise": "broadcast", "reduce": "reduce", "create": "broadcast", "random": "random", "composite": "parts", "view": "view"}
DIMS = {"dim", "dim0", "dim1", "dim2", "dims", "dimension", "source", "destination"}
SIZES = {"size", "sizes", "input_size"}


def rule_of(op: Op) -> str:
    return op.get("batch") or BY_KIND.get(op.kind, "loop")


def applies(op: Op) -> bool:
    if op.kind == "overload" or op.returns_plain or (op.kind == "view" and rule_of(op) == "view"):
        return False
    if op.kind == "composite":
        return bool(op.tensor_args) and not op.is_inplace_only
    return bool(op.tensor_args) or op.is_random


def expression(op: Op) -> str | None:
    """The rule as an expression of raw operators on the batched tensors themselves."""
    return rule_of(op) if "(" in rule_of(op) else None


def emit_functions(op: Op) -> list[str]:
    """What a row with an expression does, in namespace raw, as batched_ functions."""
    rule = expression(op) if applies(op) and op.kind != "composite" else None
    if not rule:
        return []
    lines = [f"{return_type(op)} batched_{op.name}({used_params(op.args, rule)}) {{ return {rule}; }}"] if not op.is_inplace_only else []
    if op.is_inplace_only or op.has_inplace:
        name = op.name if op.is_inplace_only else op.name + "_"
        first = op.args[0].name
        alias = [] if op.is_inplace_only or first == "self" else [f"  const Tensor& {first} = self;"]
        self = first if op.is_inplace_only else "self"
        # The result may not be written to a tensor that all samples share: copy_ says so.
        lines += [f"const Tensor& batched_{name}({join_params(f'const Tensor& {self}', params(op.args[1:]))}) {{", *alias,
                  f"  return raw::copy_({self}, {rule});", "}"]
    return lines
