"""Rows of nn/*.toml as validated objects. Every mistake is reported as `file:line: layer: what: expected`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from .model import split_top

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

KEYS = {
    "name", "expand", "args", "keyword_args", "base", "checks", "check_py", "check_cpp", "parameters", "buffers", "reset",
    "inputs", "input_checks", "returns", "forward", "forward_py", "forward_cpp", "repr", "test", "factory", "doc",
    "attributes", "rename", "store", "constructor", "buffers_from_args", "methods_cpp",
}


class LayerError(ValueError):
    """A wrong row; the text says where, what and what was expected."""


@dataclass(frozen=True)
class Argument:
    name: str
    type: str            # int, float, bool, str, Tensor, shape, legacy, int[2], tuple[2], padding[2], float[]
    optional: bool
    default: str | None  # Python text; the name of an earlier argument when `same_as` is set
    same_as: str | None
    keyword_only: bool

    @property
    def length(self) -> int | None:
        found = re.fullmatch(r"\w+\[(\d+)\]", self.type)
        return int(found[1]) if found else None

    @property
    def kind(self) -> str:
        return self.type.split("[")[0] if self.length else self.type


@dataclass
class Layer:
    name: str
    where: str
    row: dict
    args: list[Argument]
    inputs: list[Argument]
    parameters: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # name -> (shape, condition)
    buffers: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def get(self, key, default=None):
        return self.row.get(key, default)

    @property
    def base(self) -> str:
        return self.row.get("base", "Module")

    @property
    def has_factory(self) -> bool:
        return bool(self.row.get("factory", bool(self.parameters or self.buffers)))

    @property
    def tensor_args(self) -> list[str]:
        return [a.name for a in self.args if a.type == "Tensor" and not a.name.startswith("_")]

    @property
    def legacy(self) -> list[str]:
        return [a.name for a in self.args if a.type == "legacy"]

    @property
    def tensors(self) -> set[str]:
        return {*self.parameters, *self.buffers, *self.tensor_args}

    def attribute_of(self, argument: str) -> str:
        return self.row.get("rename", {}).get(argument, argument)

    def is_stored(self, a: Argument) -> bool:
        """Whether the argument becomes a plain attribute of the same name."""
        if a.type in ("legacy", "Tensor") or a.name.startswith("_"):
            return False
        return a.name not in self.parameters or a.name in self.row.get("store", [])


def _arguments(text: str, fail, keyword_only=False) -> list[Argument]:
    result: list[Argument] = []
    for part in split_top(text):
        found = re.fullmatch(r"([\w\[\]]+)(\??) (\w+)(?:=(.*))?", part)
        if not found:
            fail(f"argument `{part}`: expected `type name` or `type name=default`")
        kind, optional, name, default = found.groups()
        same = default if default in {a.name for a in result} else None
        result.append(Argument(name, kind, bool(optional), default, same, keyword_only))
    return result


def _fill(value, d: int):
    """Replaces <d>, <2*d> and the like in every text of a row."""
    if isinstance(value, str):
        return re.sub(r"<([\d*+ ]*\bd\b[\d*+ ]*)>", lambda m: str(eval(m[1], {"__builtins__": {}}, {"d": d})), value)  # noqa: S307
    if isinstance(value, list):
        return [_fill(v, d) for v in value]
    if isinstance(value, dict):
        return {k: _fill(v, d) for k, v in value.items()}
    return value


def _conditional(table: dict[str, str], fail) -> dict[str, tuple[str, str | None]]:
    result = {}
    for name, text in table.items():
        value, _, condition = text.partition(" if ")
        for piece in filter(None, (value, condition)):
            try:
                ast.parse(piece.strip(), mode="eval")
            except SyntaxError:
                fail(f"{name}: `{text}` is no expression")
        result[name] = (value.strip(), condition.strip() or None)
    return result


def _layer(row: dict, where: str) -> Layer:
    name = row["name"]

    def fail(message: str):
        raise LayerError(f"{where}: {name}: {message}")

    for key in row:
        if key not in KEYS:
            fail(f"unknown key `{key}`: expected one of {', '.join(sorted(KEYS))}")
    for key in ("args", "doc", "test"):
        if key not in row:
            fail(f"key `{key}` is missing")
    if "forward" not in row and not ("forward_py" in row and "forward_cpp" in row):
        fail("expected `forward`, or `forward_py` and `forward_cpp`")
    args = [] if row["args"] == "ignored" else _arguments(row["args"], fail)
    args += _arguments(row.get("keyword_args", ""), fail, keyword_only=True)
    return Layer(
        name=name, where=where, row=row, args=args, inputs=_arguments(row.get("inputs", "Tensor input"), fail),
        parameters=_conditional(row.get("parameters", {}), fail), buffers=_conditional(row.get("buffers", {}), fail))


def load_layers(folder: str | Path) -> list[Layer]:
    """The rows of every table in the folder."""
    layers: dict[str, Layer] = {}
    for path in sorted(Path(folder).glob("*.toml")):
        for layer in _load_table(path):
            if layer.name in layers:
                raise LayerError(f"{layer.where}: {layer.name}: defined twice: {layers[layer.name].where}")
            layers[layer.name] = layer
    return list(layers.values())


def _load_table(path: Path) -> list[Layer]:
    text = path.read_text()
    try:
        rows = tomllib.loads(text).get("layer", [])
    except tomllib.TOMLDecodeError as error:
        raise LayerError(f"{path}: {error}") from None
    lines = [i + 1 for i, line in enumerate(text.splitlines()) if line.strip() == "[[layer]]"]
    layers: list[Layer] = []
    for row, line in zip(rows, lines, strict=True):
        where = f"{path}:{line}"
        expand = row.pop("expand", None)
        for value in expand["d"] if expand else [None]:
            layers.append(_layer(row if value is None else _fill(row, value), where))
    return layers
