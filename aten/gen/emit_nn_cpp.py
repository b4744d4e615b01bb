"""The C++ layers: tapegrad/nn/layers.h (options, Impl and holder of each row) and src/nn_layers_N.cpp."""

import ast
import re
import textwrap

from .cpp import chunks, cpp_text, function_includes
from .cpp_types import cpp_default
from .emit_nn_model import Argument, Layer
from .emit_nn_translate import Cpp, format_pieces

HEAD = "// Generated from nn/*.toml by aten/gen; changes belong there.\n"
TYPES = {"int": "int64_t", "float": "double", "bool": "bool", "str": "std::string", "shape": "Shape",
         "float[]": "std::vector<double>", "Tensor": "Tensor"}
INPUTS = {"Tensor": "const Tensor&", "Tensor?": "const Tensor&", "State?": "const std::optional<State>&", "shape?": "OptionalInts"}


def operator_arguments(ops) -> dict[str, list[tuple[str, str | None]]]:
    """(name, C++ default) of the arguments of each operator that C++ text may call."""
    by_name = {op.name: op for op in ops}
    order = {op.name: [(a.name, a.default and cpp_default(a.type, a.default)) for a in by_name[op.get("overloads", [op.name])[0]].args] for op in ops}
    return order | {op.name + "_": order[op.name] for op in ops if op.has_inplace}


def cpp_args(layer: Layer) -> list[Argument]:
    """The arguments that C++ has: without those for old Python scripts."""
    return [a for a in layer.args if a.type != "legacy" and not a.name.startswith("_")]


def _type(a: Argument) -> str:
    base = f"{'Padding' if a.kind == 'padding' else 'IntArray'}<{a.length}>" if a.length else TYPES[a.type]
    return f"std::optional<{base}>" if a.optional and base != "Tensor" else base


def _default(a: Argument) -> str:
    words = a.type == "str" and a.default != "None"
    return cpp_text(a.default.strip("'\"")) if words else "{}" if a.same_as else cpp_default("", a.default)


def _parameters(layer: Layer, with_defaults: bool) -> str:
    def text(a):
        kind = f"std::optional<{_type(a)}>" if a.same_as else _type(a)
        return f"{kind} {a.name}" + (f" = {_default(a)}" if with_defaults and a.default is not None else "")
    return ", ".join(text(a) for a in cpp_args(layer))


def _moved(a: Argument) -> str:
    return a.name if _type(a) in ("int64_t", "double", "bool") else f"std::move({a.name})"


def _options(layer: Layer) -> list[str]:
    name = f"{layer.name}Options"
    def initial(a):
        return f"{a.name}_({a.name}.value_or({a.same_as}))" if a.same_as else f"{a.name}_({_moved(a)})"
    lines = [f"class {name} {{", " public:", f"  explicit {name}({_parameters(layer, True)})",
             "      : " + ", ".join(initial(a) for a in cpp_args(layer)) + " {}"]
    for a in cpp_args(layer):
        lines += [f"  const {_type(a)}& {a.name}() const {{ return {a.name}_; }}",
                  f"  {name}& {a.name}({_type(a)} value) {{ return {a.name}_ = std::move(value), *this; }}"]
    return [*lines, "", " private:", *(f"  {_type(a)} {a.name}_;" for a in cpp_args(layer)), "};"]


def _forward_parameters(layer: Layer, with_defaults: bool) -> str:
    return ", ".join(f"{INPUTS[i.type + '?' * i.optional]} {i.name}" + (" = {}" if with_defaults and i.default else "")
                     for i in layer.inputs)


def _declaration(layer: Layer) -> list[str]:
    name, args = layer.name, cpp_args(layer)
    tensors = [*layer.parameters, *layer.buffers, *layer.tensor_args]
    lines = [*_options(layer), ""] if args else []
    lines += [*textwrap.wrap(layer.get("doc"), 108, initial_indent="// ", subsequent_indent="// "), f"class TG_API {name}Impl : public Module {{", " public:"]
    lines += [f"  explicit {name}Impl({name}Options options_);"] * bool(args) + ["  void reset_parameters();"] * bool(layer.get("reset"))
    lines += [f"  {layer.get('returns', 'Tensor')} forward({_forward_parameters(layer, True)});",
              *(f"  {head};" for head, _ in layer.get("methods_cpp", [])),
              f'  std::string type_name() const override {{ return "{name}"; }}']
    lines += ["  std::string extra_repr() const override;"] * bool(layer.get("repr")) + [""]
    lines += [f"  {name}Options options;"] * bool(args) + [f"  Tensor {', '.join(tensors)};"] * bool(tensors) + ["};"]
    lines += ["", f"class {name} : public ModuleHolder<{name}Impl> {{", " public:", f"  using ModuleHolder<{name}Impl>::ModuleHolder;"]
    if args:
        lines += [f"  explicit {name}({name}Options options) : ModuleHolder(std::make_shared<{name}Impl>(std::move(options))) {{}}",
                  f"  explicit {name}({_parameters(layer, True)})",
                  f"      : {name}({name}Options({', '.join(map(_moved, args))})) {{}}"]
    else:
        lines.append(f"  {name}() : ModuleHolder(std::make_shared<{name}Impl>()) {{}}")
    return [*lines, "};", ""]


class Emitter:
    """The definitions of one layer."""

    def __init__(self, layer: Layer, order):
        self.layer = layer
        options = {a.name: f"options.{a.name}()" for a in cpp_args(layer)}
        options |= {layer.attribute_of(a): text for a, text in options.items()} | {"training": "is_training()"}
        hidden = (layer.tensors | {i.name for i in layer.inputs}) - {*layer.get("store", [])}
        # In `reset`, `forward` and `repr` a name that both have is the tensor; in conditions of parameters the option.
        self.own = Cpp({name: text for name, text in options.items() if name not in hidden}, layer.tensors, order, layer.where)
        self.before = Cpp(options, set(layer.tensor_args), order, layer.where)

    def message(self, text: str, scope: Cpp) -> str:
        """A text with {expressions} as arguments of fmt."""
        pieces = format_pieces(text)
        form = "".join("{}" if e else constant.replace("{", "{{").replace("}", "}}") for constant, e, _ in pieces)
        values = [f"{'quoted' if wants_repr else 'shown'}({scope.expression(e)})" for _, e, wants_repr in pieces if e]
        return ", ".join([cpp_text(form), *values])

    def checks(self, key: str, scope: Cpp) -> list[str]:
        return [f"  TG_CHECK({scope.expression(condition)}, Value, {self.message(text, scope)});" for condition, text in self.layer.get(key, [])]

    def constructor(self) -> list[str]:
        layer, name, before = self.layer, self.layer.name, self.before
        if not cpp_args(layer):
            return []
        lines = [f"{name}Impl::{name}Impl({name}Options options_) : options(std::move(options_)) {{", *self.checks("checks", before)]
        lines += [f"  {layer.get('check_cpp')};"] * bool(layer.get("check_cpp"))
        lines += [f'  {key} = register_buffer("{key}", options.{key}());' for key in layer.tensor_args]
        for key, (shape, condition) in layer.parameters.items():
            sizes = ", ".join(map(before.visit, ast.parse(shape, mode="eval").body.elts))
            lines.append(self.registered("parameter", key, f"tapegrad::empty(make_shape({sizes}))", condition, before))
        for key, (value, condition) in layer.buffers.items():
            lines.append(self.registered("buffer", key, before.expression(value), condition, before))
        return [*lines, *(["  reset_parameters();"] if layer.get("reset") else []), "}"]

    def registered(self, what: str, key: str, value: str, condition: str | None, scope: Cpp) -> str:
        value = f"{scope.paren(ast.parse(condition, mode='eval').body)} ? {value} : Tensor()" if condition else value
        return f'  {key} = register_{what}("{key}", {value});'

    def forward(self) -> list[str]:
        layer, given = self.layer, self.layer.get("forward_cpp")
        body = [f"return {given};"] if given else self.own.body(layer.get("forward"), returns=True)
        return [f"{layer.get('returns', 'Tensor')} {layer.name}Impl::forward({_forward_parameters(layer, False)}) {{",
                *self.checks("input_checks", self.own), *("  " + line for line in body), "}"]

    def extra_repr(self) -> list[str]:
        lines = [f"std::string {self.layer.name}Impl::extra_repr() const {{", "  std::vector<std::string> parts;"]
        for piece in self.layer.get("repr"):
            condition, text = (None, piece) if isinstance(piece, str) else piece
            guard = f"if ({self.own.expression(condition)}) " if condition else ""
            lines.append(f"  {guard}parts.push_back(fmt::format({self.message(text, self.own)}));")
        return [*lines, "  return joined(parts);", "}"]

    def lines(self) -> list[str]:
        layer = self.layer
        lines = [f"// {layer.name}", *self.constructor()]
        if layer.get("reset"):
            body = self.own.body(layer.get("reset"), returns=False)
            lines += [f"void {layer.name}Impl::reset_parameters() {{", *("  " + line for line in body), "}"]
        lines += self.forward()
        for head, body in layer.get("methods_cpp", []):
            lines.append(re.sub(r"(\w+\()", rf"{layer.name}Impl::\1", head, count=1) + f" {{ return {body}; }}")
        return [*lines, *(self.extra_repr() if layer.get("repr") else []), ""]


def cpp_files(layers: list[Layer], ops):
    """(path, text) of the header and of the sources."""
    order = operator_arguments(ops)
    declarations = [line for layer in layers for line in _declaration(layer)]
    yield "tapegrad/nn/layers.h", "\n".join([
        HEAD + "#pragma once", "", "#include <optional>", "#include <string>", "#include <tuple>", "#include <vector>", "",
        *(f'#include "tapegrad/nn/{name}.h"' for name in ("module", "options", "state")), "", "namespace tapegrad::nn {", "",
        *declarations, "}  // namespace tapegrad::nn", ""])
    for name, part in chunks(layers, 30):
        body = [line for layer in part for line in Emitter(layer, order).lines()]
        yield f"src/nn_layers_{name}.cpp", "\n".join([
            HEAD + '#include <cmath>', "", *function_includes("\n".join(body), ops), '#include "tapegrad/nn/init.h"', '#include "tapegrad/nn/layers/layer_support.h"',
            '#include "tapegrad/nn/layers.h"', "", "namespace tapegrad::nn {", "", *body, "}  // namespace tapegrad::nn", ""])
