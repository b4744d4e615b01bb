"""The Python layers: <gen>/python/tapegrad/nn/_layers.py."""

import textwrap

from .emit_nn_model import Layer
from .emit_nn_translate import format_pieces, python_body, python_expression

HEADER = '''"""The layers of nn/modules.toml. Generated: change the row, not this file."""

from __future__ import annotations

import math

from .. import Tensor, empty, ones, zeros
from . import functional as F
from . import init
from ._bases import *  # noqa: F403
from .module import Module
from .parameter import Parameter

'''

# Functions of nn/_bases.py that rows may call; everything else without a module before it is an operator (nn.functional).
HELPERS = {"zero_row_", "any_nonzero", "any_not_one", "reset_running_stats", "scalar_int64"}
CONVERSIONS = {"tuple": "_tuple({0}, {1})", "padding": "_padding({0}, {1})", "shape": "_shape({0})"}
HINTS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "shape": "int | list[int] | tuple[int, ...]",
         "float[]": "float | tuple[float, ...]", "legacy": "object", "padding": "str | int | tuple[int, ...]"}


def _attributes(layer: Layer) -> dict[str, str]:
    """What the names of a method are."""
    names = {layer.attribute_of(a.name) for a in layer.args if layer.is_stored(a)}
    names |= layer.tensors | set(layer.get("attributes", {})) | {"training"}
    names -= {i.name for i in layer.inputs}
    return {n: f"self.{n}" for n in names | {"init"} & {a.name for a in layer.args}}


def _own(layer: Layer, text: str) -> str:
    """An expression in a method of the layer."""
    return python_expression(text, _attributes(layer), HELPERS)


def _signature(layer: Layer) -> str:
    if layer.get("args") == "ignored":
        return "self, *args, **kwargs"
    def text(a):
        default = "None" if a.same_as else a.default
        hint = HINTS.get(a.kind, "int | tuple[int, ...]" if a.length else "Tensor") + " | None" * (a.optional or default == "None")
        return f"{a.name}: {hint}" + (f" = {default}" if default is not None else "")
    parts = ["self", *(text(a) for a in layer.args if not a.keyword_only)]
    parts += ["device=None", "dtype=None"] * layer.has_factory
    keyword = [text(a) for a in layer.args if a.keyword_only]
    return ", ".join(parts + (["*", *keyword] if keyword else []))


def _constructor(layer: Layer) -> list[str]:
    generated_base = not layer.base.startswith("_") and layer.base not in ("Module", "RNNCellBase")
    lines = ["Module.__init__(self)" if generated_base else "super().__init__()"]
    for condition, message in layer.get("checks", []):
        check = python_expression(f"not ({condition})", {})
        lines += [f"if {check}:", f"    raise ValueError({'f' if '{' in message else ''}{message!r})"]
    names = {a.name for a in layer.args}
    for a in filter(layer.is_stored, layer.args):
        value = f"{a.name} if {a.name} is not None else {a.same_as}" if a.same_as else a.name
        value = CONVERSIONS.get(a.kind, "{0}").format(value, a.length) + f" if {a.name} is not None else None" * (a.optional and a.kind in CONVERSIONS)
        if layer.legacy and a.name == "reduction" and {"size_average", "reduce"} <= names:
            value = "_reduction(size_average, reduce, reduction)"
        lines.append(f"self.{layer.attribute_of(a.name)} = {value}")
    lines += [f"self.{name} = {value}" for name, value in layer.get("attributes", {}).items()]
    lines += [layer.get("check_py")] if layer.get("check_py") else []
    lines += [f"self.register_buffer({name!r}, {name})" for name in layer.tensor_args]
    shapes = {a.name: f"self.{a.name}" for a in layer.args if a.kind in ("tuple", "shape") and layer.is_stored(a)}
    for name, (shape, condition) in layer.parameters.items():
        shape = python_expression(shape, shapes)
        made = f"self.{name} = Parameter(empty({shape}, device=device, dtype=dtype))"
        lines += [f"if {condition}:", f"    {made}", "else:", f'    self.register_parameter("{name}", None)'] if condition else [made]
    for name, (value, condition) in layer.buffers.items():
        value = value[:-1] + (", device=device)" if "int64" in value else ", device=device, dtype=dtype)")
        lines.append(f"self.register_buffer({name!r}, {value}" + (f" if {condition} else None)" if condition else ")"))
    return lines + ["self.reset_parameters()"] * bool(layer.get("reset"))


def _repr(layer: Layer) -> list[str]:
    def literal(text: str) -> str:
        out = ""
        for constant, expression, wants_repr in format_pieces(text):
            out += constant if expression is None else "{" + _own(layer, expression) + "!r" * wants_repr + "}"
        return ("f" if "{" in out else "") + '"' + out.replace('"', "'") + '"'
    pieces = layer.get("repr")
    if all(isinstance(p, str) for p in pieces):
        return [f"return {literal(', '.join(pieces))}"]
    lines = ["parts = []"]
    for piece in pieces:
        lines += [f"parts.append({literal(piece)})"] if isinstance(piece, str) else [
            f"if {_own(layer, piece[0])}:", f"    parts.append({literal(piece[1])})"]
    return [*lines, 'return ", ".join(parts)']


def _method(name: str, signature: str, body: list[str]) -> list[str]:
    return ["", f"    def {name}({signature}):", *("        " + line for line in body)]


def python_layer(layer: Layer) -> str:
    doc = layer.get("doc")
    if len(doc) > 110:
        doc = "\n".join(textwrap.wrap(doc, 112, subsequent_indent="    ")) + "\n    "
    lines = [f"class {layer.name}({layer.base}):", f'    """{doc}"""']
    if layer.get("constructor") != "custom":
        lines += _method("__init__", _signature(layer), _constructor(layer))
    if text := layer.get("reset"):
        body = python_body(text, _attributes(layer), HELPERS)
        lines += _method("reset_parameters", "self", [body[0].removeprefix("return ")] if len(body) == 1 else body)
    inputs = ["self", *(i.name + (f"={i.default}" if i.default is not None else "") for i in layer.inputs)]
    body = []
    for condition, message in layer.get("input_checks", []):
        body += [f"if not ({_own(layer, condition)}):", f"    raise ValueError(f{message!r})"]
    own = layer.get("forward_py")
    body += python_body(own, {}) if own else python_body(layer.get("forward"), _attributes(layer), HELPERS)
    lines += _method("forward", ", ".join(inputs), body)
    if layer.get("repr"):
        lines += _method("extra_repr", "self", _repr(layer))
    return "\n".join(lines) + "\n"


def python_module(layers: list[Layer]) -> str:
    ordered, pending = [], list(layers)
    while pending:  # a generated base comes before what derives from it
        names = {layer.name for layer in pending}
        ordered += [layer for layer in pending if layer.base not in names]
        pending = [layer for layer in pending if layer.base in names]
    names = sorted(layer.name for layer in layers)
    listing = "\n".join(textwrap.wrap(", ".join(f'"{n}"' for n in names), 112, initial_indent="    ", subsequent_indent="    "))
    return HEADER + f"__all__ = [\n{listing},\n]\n\n\n" + "\n\n".join(python_layer(layer) for layer in ordered)
