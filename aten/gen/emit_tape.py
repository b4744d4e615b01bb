"""Tape: one node type per differentiable row, and the public functions that record it."""

from __future__ import annotations

from .cpp import join_params, names, node_name, node_type, out_args, params, return_type, used_params
from .emit_raw import check_lines, target_lines
from .formulas import Formula, Saved, analyse, grad_names
from .model import Op

MEMBER_TYPES = {"tensor": "SavedTensor", "output": "SavedTensor", "list": "SavedList", "meta": "TensorMeta", "metas": "std::vector<TensorMeta>"}


def _member_type(saved: Saved) -> str:
    return MEMBER_TYPES.get(saved.kind) or saved.arg.info.saved


def _first(op: Op, i: int) -> str:
    """The index of the first edge of tensor argument i, as a C++ expression."""
    fixed = sum(not a.is_list for a in op.tensor_args[:i])
    lists = [f"{a.name}_count_" for a in op.tensor_args[:i] if a.is_list]
    return " + ".join([str(fixed), *lists]) if lists else str(fixed)


def _needs(op: Op, i: int, node: str = "") -> str:
    arg = op.tensor_args[i]
    if arg.is_list:
        return f"{node}needs_any({_first_of(op, i, node)}, {node}{arg.name}_count_)"
    return f"{node}needs({_first_of(op, i, node)})"


def _first_of(op: Op, i: int, node: str) -> str:
    text = _first(op, i)
    return text.replace(" + ", f" + {node}") if node else text


def _local(saved: Saved) -> str:
    if saved.kind in ("tensor", "output"):
        return f"const Tensor {saved.name} = {saved.member}.unpack(*this);"
    if saved.kind == "list":
        return f"const std::vector<Tensor> {saved.name} = unpack_list({saved.member}, *this);"
    if saved.arg and saved.arg.type.startswith("int[") and saved.arg.type.endswith("?"):
        return f"const OptionalInts {saved.name} = as_optional_ints({saved.member});"
    if saved.arg and saved.arg.type == "str?":
        return f"const std::optional<std::string_view> {saved.name} = {saved.member};"
    return f"const auto& {saved.name} = {saved.member};"


def _formula_lines(op: Op, formula: Formula) -> list[str]:
    lines = []
    condition = " || ".join(_needs(op, t) for t in formula.targets)
    lines.append(f"  if ({condition}) {{")
    lines += [f"    [[maybe_unused]] {_local(s)}" for s in formula.saved]
    if len(formula.targets) > 1:
        mask = ", ".join(_needs(op, t) for t in formula.targets)
        lines.append(f"    [[maybe_unused]] const std::array<bool, {len(formula.targets)}> mask{{{mask}}};")
        lines += [f"    auto gradients_ = {formula.expression};"]
        for k, t in enumerate(formula.targets):
            lines.append(f"    if ({_needs(op, t)}) input_grads_[{_first(op, t)}] = std::get<{k}>(std::move(gradients_));")
    elif op.tensor_args[formula.targets[0]].is_list:
        lines += [f"    std::vector<Tensor> gradients_ = {formula.expression};"]
        lines.append(f"    move_into(input_grads_, {_first(op, formula.targets[0])}, std::move(gradients_));")
    else:
        index = _first(op, formula.targets[0])
        value = f"reduce_to({formula.expression}, input_meta({index}))" if op.kind == "pointwise" else formula.expression
        lines += [f"    input_grads_[{index}] = {value};"]
    return [*lines, "  }"]


def _gradient_locals(op: Op, formulas: list[Formula]) -> list[str]:
    from .cpp import uses
    text = " ".join(f.expression for f in formulas)
    if op.returns_list:
        return ["  const std::vector<Tensor> grads = materialise(grads_in);"] if uses(text, "grads") else []
    lines = []
    several = len(op.differentiable_outputs) > 1 and not op.get("optional_grads")
    for name, index in grad_names(op).items():
        if uses(text, name):
            value = f"grad_or_zeros(grads_in[{index}], outputs[{index}])" if several else f"grads_in[{index}]"
            lines.append(f"  const Tensor {name} = {value};")
    return lines


def emit_node(op: Op) -> list[str]:
    formulas, members = analyse(op)
    node = node_type(op)
    lines = [f"struct {node} final : GeneratedNode {{"]
    lines += [f"  size_t {a.name}_count_ = 0;" for a in op.tensor_args if a.is_list]
    lines += [f"  {_member_type(m)} {m.member}{'' if 'Saved' in _member_type(m) else '{}'};" for m in members]
    lines.append(f'  const char* name() const override {{ return "{node_name(op)}"; }}')
    releasable = [m for m in members if m.kind in ("tensor", "output", "list")]
    if releasable:
        parts = " ".join(f"{m.member}.release();" if m.kind != "list" else f"release_list({m.member});" for m in releasable)
        lines.append(f"  void release_saved() noexcept override {{ {parts} }}")
        visits = " ".join(f"visit(\"{m.name}\", {m.member});" for m in releasable if m.kind != "list")
        lines.append(f"  void visit_saved([[maybe_unused]] const SavedVisitor& visit) const override {{ {visits} }}")
    lines += ["  GradList apply(GradList grads_in) override;", "};",
              f"GradList {node}::apply([[maybe_unused]] GradList grads_in) {{", "  GradList input_grads_(edges.size());"]
    lines += _gradient_locals(op, formulas)
    for formula in formulas:
        lines += _formula_lines(op, formula)
    return [*lines, "  return input_grads_;", "}"]


def _any_needs(op: Op, rename: dict[str, str] | None = None) -> str:
    none = {t for targets, text in op.grads if text == "none" for t in targets}
    wanted = [a for a in op.tensor_args if a.name not in none]
    return " || ".join(f"needs_grad({(rename or {}).get(a.name, a.name)})" for a in wanted) or "false"


def _edge_lines(op: Op, rename) -> list[str]:
    none = {t for targets, text in op.grads if text == "none" for t in targets}
    lines = []
    for a in op.tensor_args:
        name = rename.get(a.name, a.name)
        if a.is_list:
            lines += [f"  node->{a.name}_count_ = {name}.size();", f"  add_edges(*node, {name});"]
        elif a.name in none:
            lines.append("  node->edges.emplace_back();")
        else:
            lines.append(f"  add_edge(*node, {name});")
    return lines


def _save_condition(op: Op, saved: Saved) -> str:
    if len(op.tensor_args) == 1:
        return ""
    return "if (" + " || ".join(_needs(op, t, "node->") for t in sorted(saved.needed_by)) + ") "


def _save_inputs(op: Op, members: list[Saved], rename, inplace: bool) -> list[str]:
    lines = []
    for m in members:
        if m.kind == "output":
            continue
        name = rename.get(m.name, m.name)
        if m.kind == "tensor":
            # An in-place operator overwrites what its own gradient needs: keep a copy.
            value = f"before_write({name})" if inplace and name == "self" else name
            lines.append(f"  {_save_condition(op, m)}node->{m.member} = SavedTensor({value});")
        elif m.kind == "list":
            lines.append(f"  {_save_condition(op, m)}node->{m.member} = save_list({name});")
        elif m.kind in ("meta", "metas"):
            lines.append(f"  node->{m.member} = {'TensorMeta' if m.kind == 'meta' else 'metas_of'}({name});")
        else:
            kept = "DimVector" if m.arg.type.startswith("int[") else "std::string" if m.arg.type.startswith("str") else ""
            given = f"if ({name}) " if kept and m.arg.type.endswith("?") else ""
            value = f"{kept}({'*' if given else ''}{name})" if kept else name
            lines.append(f"  {given}node->{m.member} = {value};")
    return lines


def _save_outputs(op: Op, members: list[Saved], variable) -> list[str]:
    return [f"  {_save_condition(op, m)}node->{m.member} = SavedTensor({variable(m.output)}, true);" for m in members if m.kind == "output"]


def _forward(op: Op, members: list[Saved]) -> list[str]:
    base, is_view = op.args[0].name, op.kind == "view"
    lines = [f"{return_type(op)} body_{op.name}({params(op.args)}) {{"]
    plain = f"raw::{op.name}({names(op.args)})"
    if is_view:
        seen = f"for (const Tensor& t : result) set_view(t, {base}, nullptr, true);" if op.returns_list else f"set_view(result, {base}, nullptr);"
        lines += [f"  auto result = {plain};", f"  if (TG_LIKELY(!(grad_enabled() && ({_any_needs(op)})))) {{", f"    {seen}", "    return result;", "  }"]
    else:
        lines += [f"  if (TG_LIKELY(!(grad_enabled() && ({_any_needs(op)})))) return {plain};", f"  auto result = {plain};"]
    outputs = op.differentiable_outputs
    variable = (lambda i: "result") if op.num_outputs == 1 else (lambda i: f"std::get<{i}>(result)")
    if not op.returns_list:
        test = " && ".join(f"!is_differentiable({variable(i)}.dtype())" for i in outputs)
        lines.append(f"  if ({test}) return result;")
    made = f"intrusive_ptr<{node_type(op)}>::adopt_new(new {node_type(op)})"  # make_intrusive would write zeros over it first
    lines += [f"  auto made = {made};", "  auto* const node = made.get();", *_edge_lines(op, {}), *_save_inputs(op, members, {}, False)]
    if is_view:
        if op.returns_list:
            lines.append(f"  for (const Tensor& t : result) set_view(t, {base}, made, true);")
        else:
            lines.append(f"  set_view(result, {base}, std::move(made));")
    elif op.returns_list:
        lines.append("  set_history(TensorSpan(result), made);")
    else:
        lines += [f"  set_history({variable(i)}, {'made' if i != outputs[-1] else 'intrusive_ptr<Node>(std::move(made))'});" for i in outputs]
    return [*lines, *_save_outputs(op, members, variable), "  return result;", "}"]


def _inplace(op: Op, members: list[Saved]) -> list[str]:
    only = op.is_inplace_only
    name = op.name if only else op.name + "_"
    first = op.args[0].name
    rename = {first: "self"} if not only else {}
    self = first if only else "self"
    head = params(op.args) if only else join_params("const Tensor& self", params(op.args[1:]))
    call = f"raw::{name}({join_params(self, names(op.args[1:]))});"
    needs = _any_needs(op, rename) if op.grads else "false"
    view = op.get("view")  # which writes no element
    check, rebase = "check_filled" if op.get("one_value") or view else "check_inplace", "turn_view" if view else "rebase_history"
    lines = [f"const Tensor& body_{name}({head}) {{"]
    if not op.grads:
        return [*lines, f'  {check}({self}, "{name}", false);', f"  {call}", f'  bump_version({self}, "{name}");',
                f"  return {self};", "}"]
    lines += [f"  const bool recording = grad_enabled() && ({needs});", f'  {check}({self}, "{name}", recording);',
              "  if (TG_LIKELY(!recording)) {", f"    {call}", f'    bump_version({self}, "{name}");', f"    return {self};", "  }",
              f"  auto node = make_intrusive<{node_type(op)}>();", *_edge_lines(op, rename),
              *_save_inputs(op, members, rename if not only else {first: "self"} if first == "self" else {}, True), f"  {call}",
              f'  bump_version({self}, "{name}");', f"  {rebase}({self}, node);", *_save_outputs(op, members, lambda i: self),
              f"  return {self};", "}"]
    return lines


def _out(op: Op) -> list[str]:
    outs = out_args(op)
    result = "const Tensor&" if len(outs) == 1 else return_type(op)
    head = join_params(params(op.args), ", ".join(f"const Tensor& {o}" for o in outs))
    needs = " || ".join([f"needs_grad({a.name})" for a in op.tensor_args] + [f"needs_grad({o})" for o in outs])
    lines = [f"{result} body_{op.name}_out({head}) {{",
             f'  if (grad_enabled() && ({needs})) throw_recorded_out("{op.name}");']
    if op.kind == "composite":
        lines.append(f"  auto result = raw::{op.name}({names(op.args)});")
        for i, o in enumerate(outs):
            lines += target_lines(op, o, "result.dtype()" if len(outs) == 1 else f"std::get<{i}>(result).dtype()")
        if len(outs) == 1:
            lines.append(f'  write_out("{op.name}", out, result);')
        else:
            lines += [f'  write_out("{op.name}", {o}, std::get<{i}>(result));' for i, o in enumerate(outs)]
    else:
        lines.append(f"  raw::{op.name}_out({join_params(names(op.args), ', '.join(outs))});")
    lines += [f'  bump_version({o}, "{op.name}");' for o in outs]
    return [*lines, f"  return {outs[0] if len(outs) == 1 else '{' + ', '.join(outs) + '}'};", "}"]


def _composite(op: Op) -> list[str]:
    body = f"composite::{op.get('impl')}({names(op.args)})" if op.get("impl") else op.get("body")
    lines = [*check_lines(op), f"  return {body};", "}"]
    lines = [f"{return_type(op)} body_{op.name}({used_params(op.args, chr(10).join(lines))}) {{", *lines]
    if op.has_inplace:
        head = f"const Tensor& body_{op.name}_({join_params('const Tensor& self', params(op.args[1:]))}) {{"
        if op.get("inplace"):  # an expression of in-place operators on self
            first = op.args[0].name
            check = [f"  [[maybe_unused]] const Tensor& {first} = self;", *check_lines(op)] if op.get("checks") else []
            return [*lines, head, *check, f"  return {op.get('inplace')};", "}"]
        lines += [head,
                  f"  const Tensor result = tapegrad::{op.name}({join_params('self', names(op.args[1:]))});",
                  *target_lines(op, "self", "result.dtype()"),
                  f'  check_inplace_result("{op.name}_", self, {{result.sizes(), result.dtype(), result.device(), {{}}}});',
                  "  return tapegrad::copy_(self, result);", "}"]
    return lines


def emit_bodies(op: Op) -> list[str]:
    """What the public functions of a row do behind the handlers: body_ functions, where there is more to do than raw:: ones do."""
    if op.kind == "composite":
        return _composite(op) + (_out(op) if op.has_out else [])
    members = analyse(op)[1] if has_tape(op) or op.is_inplace_only else []
    if op.is_inplace_only:
        return _inplace(op, members)
    lines = _forward(op, members) if has_tape(op) else []
    return lines + (_inplace(op, members) if op.has_inplace else []) + (_out(op) if op.has_out else [])


def has_tape(op: Op) -> bool:
    """Whether the value form records a node."""
    return op.is_differentiable and has_node(op)


def has_node(op: Op) -> bool:
    return op.kind not in ("composite", "overload") and any(text != "none" for _, text in op.grads)
