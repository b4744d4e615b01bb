"""What stands before an operator's own work: public and `raw::` functions that test one word, and the tables by which handlers
know a function (aten/dispatch/)."""

from __future__ import annotations

from dataclasses import dataclass

from . import emit_batch
from .cpp import join_params, names, out_args, params, return_type
from .model import Op

CASTS = {"lower": "Lower", "float32": "Float32", "promote": "Promote", "keep": "Keep"}


@dataclass(frozen=True)
class Function:
    """One public function of a row: the plain one, the in-place one or that with out=."""

    op: Op
    name: str
    form: str  # of enum Form in aten/dispatch/function.h
    result: str
    params: str
    types: tuple[str, ...]
    names: str
    tensors: tuple[str, ...]  # the arguments that are tensors, or lists of them
    back: str  # what a function that writes returns

    @property
    def below_bits(self) -> list[str]:
        """Of modes and kinds: what concerns a call of the raw:: function."""
        op = self.op
        if op.kind == "composite" or not emit_batch.applies(op):
            return []
        if op.is_random and self.form != "Out":
            return ["kModeBatch"]
        return ["kKindBatched"] if op.tensor_args and not (op.kind == "view" and self.form == "InPlace") else []

    @property
    def bits(self) -> list[str]:
        """Likewise of the public one."""
        found = ["kModeProfile", "kModeTrace"]
        if self.cast != "None":
            found.append("kModeAutocast")
        if self.is_sparse:
            found.append("kKindSparse")
        if self.op.kind == "composite" and self.form == "Value" and emit_batch.applies(self.op):
            found.append("kKindBatched")
        return found + self.below_bits

    @property
    def cast(self) -> str:
        return CASTS[self.op.get("autocast")] if self.op.get("autocast") and self.form == "Value" else "None"

    @property
    def is_sparse(self) -> bool:  # "values": on those of the one tensor; out= is made of the form without it
        return (rows := self.op.get("sparse") or ()) == "values" or self.name in rows or bool(rows) and self.form == "Out"

    @property
    def plain(self) -> str:
        """The function below all handlers."""
        if self.op.kind == "composite":
            return f"body_{self.name}"
        return f"raw::plain_{self.name}" if self.below_bits else f"raw::{self.name}"

    def handled(self, stage: str) -> str:
        """What gives the call to the handlers, as a statement that returns."""
        returned = "void" if self.back else self.result
        values = join_params(f"functions::{self.name}", f"dispatch::Stage::{stage}", self.names)
        call = f"dispatch::call<{returned}>({values})"
        return f"{{ {call}; return {self.back}; }}" if self.back else f"return {call};"


def functions(op: Op) -> list[Function]:
    tensors = tuple(a.name for a in op.tensor_args)
    types = tuple(a.info.cpp for a in op.args)
    if op.is_inplace_only:
        return [Function(op, op.name, "InPlace", "const Tensor&", params(op.args), types, names(op.args), tensors, op.args[0].name)]
    found = [Function(op, op.name, "Value", return_type(op), params(op.args), types, names(op.args), tensors, "")]
    if op.has_inplace:
        rest = op.args[1:]
        found.append(Function(op, op.name + "_", "InPlace", "const Tensor&", join_params("const Tensor& self", params(rest)),
                              ("const Tensor&", *types[1:]), join_params("self", names(rest)), ("self", *tensors[1:]), "self"))
    if op.has_out:
        outs = out_args(op)
        result, back = ("const Tensor&", outs[0]) if len(outs) == 1 else (return_type(op), "{" + ", ".join(outs) + "}")
        found.append(Function(op, op.name + "_out", "Out", result, join_params(params(op.args), ", ".join(f"const Tensor& {o}" for o in outs)),
                              (*types, *["const Tensor&"] * len(outs)), join_params(names(op.args), ", ".join(outs)), (*tensors, *outs), back))
    return found


def _mask(op: Op, wanted) -> str:
    return f"{sum(1 << i for i, a in enumerate(op.args) if wanted(a)):#x}"


def emit_table(f: Function, bodies: set[str]) -> str:
    """The constant that describes a function. `bodies`: the names of those that have a body_ function."""
    op = f.op
    shown = op.shown + ("_" if f.form == "InPlace" and not op.shown.endswith("_") else "")
    body = f"&body_{f.name}" if f.name in bodies else f"&{f.plain}"
    batched = f"&raw::batched_{f.name}" if emit_batch.expression(op) and f.below_bits and f.form != "Out" else ""
    steps = [f"&tapegrad::{f.name}", body, f"&{f.plain}"]
    if f.is_sparse or batched:
        steps.append(f"&{'tapegrad' if f.form == 'Out' or op.get('sparse') == 'values' else 'sparse'}::{f.name}" if f.is_sparse else "nullptr")
    steps += [batched] if batched else []
    masks = ", ".join(_mask(op, wanted) for wanted in (
        lambda a: a.name in emit_batch.DIMS and a.type.startswith("int"), lambda a: a.name in emit_batch.SIZES and a.type == "int[]",
        lambda a: a.type.endswith("?") or a.type == "Tensor[]" and a.name == "indices"))
    return (f"const dispatch::Function {f.name} = dispatch::function<{join_params(f.result, *f.types)}>(entries::{op.name}, \"{shown}\", "
            f"{' | '.join(f.bits)}, dispatch::Form::{f.form}, dispatch::Cast::{f.cast}, {masks}, {', '.join(steps)}); TG_LIST_FUNCTION({f.name})")


def emit_raw_function(f: Function) -> list[str]:
    """The raw:: function of a plain one."""
    if not f.below_bits:
        return []
    test = "modes() & kModeBatch" if f.op.is_random and f.form != "Out" else \
        f"({' | '.join(f'dispatch::kinds_of({t})' for t in f.tensors)}) & kKindBatched"
    return [f"{f.result} {f.name}({f.params}) {{", f"  if (TG_UNLIKELY({test})) {f.handled('BelowTape')}",
            f"  return plain_{f.name}({f.names});", "}"]


def emit_public_function(f: Function, bodies: set[str], has_tape: bool) -> list[str]:
    asks_tape = f.form == "Value" and has_tape and f.op.kind != "view"
    kinds = asks_tape or any(bit.startswith("kKind") for bit in f.bits)  # else the modes are enough
    word = f"dispatch::call_word({', '.join(f.tensors)})" if kinds else "modes()"
    lines = [f"{f.result} {f.name}({f.params}) {{", f"  const uint32_t word = {word};",
             f"  if (TG_UNLIKELY(word & ({' | '.join(f.bits)}))) {f.handled('Public')}"]
    if asks_tape:
        lines.append(f"  if (TG_LIKELY((word & (kModeGradMask | kKindGrad)) != kKindGrad)) return {f.plain}({f.names});")
    return [*lines, f"  return {'body_' + f.name if f.name in bodies else f.plain}({f.names});", "}"]
