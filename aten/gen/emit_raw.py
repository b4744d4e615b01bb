"""`raw::` functions: checks, shape, allocation and the call through the kernel table; no tape."""

from __future__ import annotations

import re

from .cpp import join_params, names, out_args, params, return_type
from .emit_dispatch import functions
from .model import POINTWISE_RESULTS, PROMOTIONS, REDUCE_RESULTS, Op

ALL_DTYPES = ["bool_", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
              "complex128", "uint16", "uint32", "uint64"]


def dtype_mask(op: Op) -> int:
    return sum(1 << ALL_DTYPES.index(t) for t in op.dtype_names)


def check_lines(op: Op) -> list[str]:
    lines = []
    for check in op.get("checks", []):
        condition, message, kind = (*check, "Runtime")[:3]
        found = re.findall(r"\{([^{}]+)\}", message)
        text = re.sub(r"\{[^{}]+\}", "{}", message)
        args = "".join(f", {e}" for e in found)
        lines.append(f'  TG_CHECK({condition}, {kind}, "{op.shown}: {text}"{args});')
    return lines


def target_lines(op: Op, target: str, dtype: str) -> list[str]:
    """Checks of what out= or an in-place form writes to, beside whether the result fits and can be cast."""
    lines = []
    if op.get("out_dtype", "exact" if op.kind == "kernel" else "cast") == "exact":
        long = f'{dtype} == DType::int64 ? " (scalar type Long)" : ""'  # PyTorch's name in this message of nonzero
        lines.append(f'  TG_CHECK({target}.dtype() == {dtype}, Runtime, "{op.shown}: Expected out tensor to have dtype {{}}{{}}, but got {{}} instead", '
                     f"{dtype}, {long}, {target}.dtype());")
    return lines + apart_lines(op, target)


def apart_lines(op: Op, target: str) -> list[str]:
    """Checks that what is written shares no memory with the arguments of `apart`."""
    lines = []
    for name in [n for n in op.get("apart", []) if target != "self" or n != op.args[0].name]:
        is_list = any(a.name == name and a.is_list for a in op.args)
        each, read = (f"for (const Tensor& t : {name}) ", "t") if is_list else ("", name)
        dense = " && ".join(f"{t}.impl()->is_non_overlapping_and_dense()" for t in (target, read))
        lines.append(f"  {each}TG_CHECK(!{read}.defined() || !({target}.is_same({read}) || ({dense} && may_overlap({target}, {read}))), Runtime, "
                     f'"{op.shown}: unsupported operation: the tensor to write to shares memory with {"one of " if is_list else ""}{name}: shapes {{}} and {{}}", '
                     f"format_ints({target}.sizes()), format_ints({read}.sizes()));")
    return lines


def _scalars(args) -> str:
    values = [a.name if a.type == "Scalar" else f"Scalar({a.name})" for a in args]
    return f"  const std::array<Scalar, {len(values)}> scalars{{{', '.join(values)}}};"


def _pointwise(op: Op) -> list[str]:
    first = op.tensor_args[0].name
    inputs = [f"&{a.name}.tensor()" if a.type == "Tensor|Scalar" else f"&{a.name}" for a in op.tensor_args]
    lines = [
        f'static const pointwise::Op k_{op.name}{{"{op.shown}", &entries::{op.name}, '
        f"pointwise::Promotion::{PROMOTIONS[op.get('promotion', 'promote')]}, "
        f"pointwise::Result::{POINTWISE_RESULTS[op.get('result', 'compute')]}, {dtype_mask(op):#x}, "
        f"{str(any(a.type == 'Scalar' for a in op.args)).lower()}, {str(op.get('numbers') == 'fit').lower()}}};",
    ]

    def body(tail: str, values: list[str]) -> list[str]:
        return [*check_lines(op), f"  const Tensor* const inputs[] = {{{', '.join(values)}}};", _scalars(a for a in op.args if not a.is_tensor),
                f"  return pointwise::run(k_{op.name}, inputs, scalars{tail});", "}"]

    lines += [f"Tensor {op.name}({params(op.args)}) {{", *body("", inputs)]
    if op.has_inplace:
        lines += [f"const Tensor& {op.name}_({join_params('const Tensor& self', params(op.args[1:]))}) {{",
                  f"  [[maybe_unused]] const Tensor& {first} = self;" if op.get("checks") else "",
                  *[line.replace("return ", "") for line in body(", self", ["&self", *inputs[1:]])[:-1]], "  return self;", "}"]
    if op.has_out:
        lines += [f"const Tensor& {op.name}_out({join_params(params(op.args), 'const Tensor& out')}) {{",
                  *[line.replace("return ", "") for line in body(", out, true", inputs)[:-1]], "  return out;", "}"]
    return lines


def _reduce(op: Op) -> list[str]:
    by_name = {a.name: a for a in op.args}
    lines = [
        f'static const reduce::Op k_{op.name}{{"{op.shown}", &entries::{op.name}, '
        f"reduce::Result::{REDUCE_RESULTS[op.get('result', 'compute')]}, {dtype_mask(op):#x}, "
        f"{'true' if op.get('empty') else 'false'}}};",
    ]
    prepare = [*check_lines(op)]
    dim = "dim" if "dim" in by_name else "std::nullopt"
    if "dim" in by_name and by_name["dim"].type in ("int?", "int"):
        value = "dim.value_or(0)" if by_name["dim"].type == "int?" else "dim"
        given = "dim.has_value()" if by_name["dim"].type == "int?" else "true"
        prepare += [f"  const int64_t dim_value = {value};",
                    f"  const OptionalInts dims = {given} ? OptionalInts(IntSpan(&dim_value, 1)) : OptionalInts();"]
        dim = "dims"
    prepare.append(_scalars(a for a in op.args[1:] if a.name not in ("dim", "keepdim", "dtype")))
    keepdim = "keepdim" if "keepdim" in by_name else "false"
    dtype = "dtype" if "dtype" in by_name else "std::nullopt"
    call = f"reduce::run(k_{op.name}, {op.args[0].name}, {dim}, {keepdim}, {dtype}, scalars"
    lines += [f"Tensor {op.name}({params(op.args)}) {{", *prepare, f"  return {call});", "}"]
    if op.has_out:
        lines += [f"const Tensor& {op.name}_out({join_params(params(op.args), 'const Tensor& out')}) {{", *prepare, f"  {call}, out);", "  return out;", "}"]
    return lines


def _view(op: Op) -> list[str]:
    base = op.args[0].name
    call = f"{op.get('view')}({names(op.args)})"
    lines = [f"{return_type(op)} {op.name}({params(op.args)}) {{", *check_lines(op)]
    lines += [f"  return {'alias_views' if op.returns_list else 'alias_tensor'}({base}, {call});", "}"]
    if op.has_inplace:
        inner = f"{op.get('view')}({join_params('self', names(op.args[1:]))})"
        lines += [f"const Tensor& {op.name}_({join_params('const Tensor& self', params(op.args[1:]))}) {{",
                  f"  const ViewSpec view = {inner};", "  if (TG_UNLIKELY(self.is_batched())) return batch::set_view_(self, view), self;",
                  "  self.impl()->set_geometry(view.sizes, view.strides, view.offset);", "  return self;", "}"]
    return lines


def kernel_type(op: Op) -> str:
    """The C++ function type of a kernel or random row's kernel."""
    types = [a.info.cpp for a in op.args]
    if op.is_random:
        types.append("const PhiloxState&")
    if op.get("dynamic"):
        return f"{return_type(op)}({', '.join(types)})"
    if not op.is_inplace_only:
        types += ["const Tensor&"] * op.num_outputs
    return f"void({', '.join(types)})"


def _operands(op: Op) -> tuple[list[str], str]:
    """Addresses of the operands, and `, list` for a row with a list of them."""
    single = ["&" + a.name for a in op.tensor_args if a.type in ("Tensor", "Tensor?")]
    single += [f"&{a.name}.tensor()" for a in op.tensor_args if a.type == "Tensor|Scalar"]
    return single, "".join(", " + a.name for a in op.tensor_args if a.type == "Tensor[]")


def _device_check(op: Op) -> list[str]:
    single, lists = _operands(op)
    if op.get("devices") == "any" or (len(single) < 2 and not lists):
        return []
    return [f'  check_same_device("{op.shown}", {{{", ".join(single)}}}{lists});']


def _prepared(op: Op, rename=None) -> tuple[list[str], list[str]]:
    """Lines that make arguments contiguous, and the argument expressions for the kernel."""
    lines, values = [], []
    for a in op.args:
        name = (rename or {}).get(a.name, a.name)
        if a.name in op.get("contiguous", []):
            lines.append(f"  const Tensor {a.name}_dense = contiguous_or_copy({name});")
            name = f"{a.name}_dense"
        values.append(name)
    return lines, values


def _call(op: Op, device: str, values: list[str], outs: list[str], numel: str) -> list[str]:
    lines = []
    if op.is_random:
        given = next((a.name for a in op.args if a.type == "Generator?"), "nullptr")
        lines.append(f"  const PhiloxState state = record::draw(generator_or_default({given}, {device}), static_cast<uint64_t>({numel}));")
        values = [*values, "state"]
    result = "return " if op.get("dynamic") else ""
    lines.append(f"  {result}record::KernelCall<{kernel_type(op)}>::run(entries::{op.name}, {device}, {len(outs)}, {', '.join(values + outs)});")
    return lines


def _kernel_inplace_only(op: Op) -> list[str]:
    self = op.args[0].name
    lines = [f"const Tensor& {op.name}({params(op.args)}) {{", *check_lines(op), *_device_check(op)]
    if op.get("shape"):
        lines.append(f"  {op.get('shape')}({names(op.args)});")
    lines += [f'  check_inplace_result("{op.name}", {self}, {{{self}.sizes(), {self}.dtype(), {self}.device(), {{}}}});'] if op.is_random else []
    prepare, values = _prepared(op)
    lines += [f"  if ({self}.is_meta()) return {self};", *prepare,
              *_call(op, f"{self}.device()", values, [], f"{self}.numel()"), f"  return {self};", "}"]
    return lines


def _kernel(op: Op) -> list[str]:
    if op.is_inplace_only:
        return _kernel_inplace_only(op)
    prepare, values = _prepared(op)
    lines = [f"{return_type(op)} {op.name}({params(op.args)}) {{", *check_lines(op), *_device_check(op)]
    first = op.tensor_args[0].name if op.tensor_args else None
    if op.get("dynamic"):
        device = f"{first}.device()" if first else "Device()"
        lines += [*prepare, *_call(op, device, values, [], f"{first}.numel()" if first else "0"), "}"]
        if op.has_out:
            lines += [f"const Tensor& {op.name}_out({join_params(params(op.args), 'const Tensor& out')}) {{",
                      f"  const Tensor result = raw::{op.name}({names(op.args)});", *target_lines(op, "out", "result.dtype()"),
                      f'  write_out("{op.shown}", out, result);', "  return out;", "}"]
        return lines
    shape = op.get("shape") or "create_shape"
    n = op.num_outputs
    if n == 1:
        lines += [f"  const TensorSpec spec = {shape}({names(op.args)});", "  const Tensor out = empty_tensor(spec);"]
        outs, back = ["out"], "out"
    else:
        lines += [f"  const std::array<TensorSpec, {n}> specs = {shape}({names(op.args)});"]
        lines += [f"  const Tensor {o} = empty_tensor(specs[{i}]);" for i, o in enumerate(out_args(op))]
        outs, back = out_args(op), "{" + ", ".join(out_args(op)) + "}"
    lines += [*_run_kernel(op, outs[0], outs, prepare, values), f"  return {back};", "}"]
    if op.has_out:
        lines += _kernel_out(op, shape, prepare, values)
    if op.has_inplace:
        lines += _kernel_inplace(op, shape, prepare, values)
    return lines


def _run_kernel(op: Op, first: str, outs: list[str], prepare: list[str], values: list[str]) -> list[str]:
    if not op.has_kernel:
        return [f"  fill_unset({outs[0]});"] if op.kind == "create" else []
    body = [*prepare, *_call(op, f"{first}.device()", values, outs, f"{outs[0]}.numel()")]
    return [f"  if (!{first}.is_meta()) {{", *("  " + line for line in body), "  }"]


def _kernel_out(op: Op, shape, prepare, values) -> list[str]:
    outs = out_args(op)
    n = len(outs)
    result = "const Tensor&" if n == 1 else return_type(op)
    single, lists = _operands(op)
    lines = [f"{result} {op.name}_out({join_params(params(op.args), ', '.join(f'const Tensor& {o}' for o in outs))}) {{",
             *check_lines(op), *_device_check(op)]
    given = [a.name for a in op.args]
    if op.kind in ("create", "random") and "dtype" in given and n == 1:  # of what out= is
        lines.append(f'  TG_CHECK(!dtype || *dtype == out.dtype(), Runtime, "{op.shown}: dtype {{}} does not match dtype of out parameter ({{}})", *dtype, out.dtype());')
        lines.append("  const std::optional<DType> kind = dtype ? dtype : std::optional(out.dtype());")
        given[given.index("dtype")] = "kind"
    kept, cast = ("", "  spec.dtype = out.dtype();") if op.get("out_dtype") == "any" else ("const ", "")
    lines.append(f"  {kept}{'TensorSpec spec' if n == 1 else f'std::array<TensorSpec, {n}> specs'} = {shape}({', '.join(given)});{cast}")
    if op.get("out_shape") == "kept":
        lines += ["  if (out.ndim() != 1 && out.numel() == spec.sizes[0])",
                  f"    return raw::copy_(out, raw::reshape(raw::{op.name}({', '.join(given)}), out.sizes()));"]
    for i, o in enumerate(outs):
        spec = "spec" if n == 1 else f"specs[{i}]"
        lines += target_lines(op, o, f"{spec}.dtype")
        others = ", ".join([*single, *("&" + before for before in outs[:i])])
        lines.append(f'  const Tensor target_{o} = out_target("{op.shown}", {o}, {spec}, {{{others}}}{lists});')
    lines += _run_kernel(op, outs[0], [f"target_{o}" for o in outs], prepare, values)
    lines += [f"  finish_out({o}, target_{o});" for o in outs]
    return [*lines, f"  return {outs[0] if n == 1 else '{' + ', '.join(outs) + '}'};", "}"]


def _kernel_inplace(op: Op, shape, prepare, values) -> list[str]:
    first = op.args[0].name
    rest = op.args[1:]
    lines = [f"const Tensor& {op.name}_({join_params('const Tensor& self', params(rest))}) {{", f"  [[maybe_unused]] const Tensor& {first} = self;",
             *check_lines(op), *_device_check(op), f"  const TensorSpec spec = {shape}({names(op.args)});",
             f'  check_inplace_result("{op.shown}_", self, spec);', *apart_lines(op, "self"), "  if (self.is_meta()) return self;"]
    if op.is_random or op.get("inplace") == "direct":
        body = [*prepare, *_call(op, "self.device()", values, ["self"], "self.numel()")]
        lines += ["  if (self.is_contiguous() && self.dtype() == spec.dtype) {", *("  " + line for line in body), "    return self;", "  }"]
    body = [*prepare, *_call(op, "self.device()", values, ["out"], "out.numel()")]
    return [*lines, "  const Tensor out = empty_tensor(spec);", *body, "  return raw::copy_(self, out);", "}"]


def _composite(op: Op) -> list[str]:
    # Without tape, but through the same parts.
    return [line for f in functions(op) for line in (
        f"{f.result} {f.name}({f.params}) {{", "  NoGradGuard guard;", f"  return tapegrad::{f.name}({f.names});", "}")]


def emit_raw(op: Op) -> list[str]:
    makers = {"pointwise": _pointwise, "reduce": _reduce, "view": _view, "kernel": _kernel, "create": _kernel, "random": _kernel,
              "composite": _composite}
    lines = [line for line in makers[op.kind](op) if line]
    if op.kind in ("kernel", "create", "random"):  # what a kernel raises for a dtype is told with the operator's name
        named = f'}} catch (const NoKernelFor& error) {{ name_operator(error, "{op.shown}"); }}'
        lines = [named if line == "}" else line[:-1] + "try {" if line.endswith(") {") and line[0] != " " else line for line in lines]
    return lines
