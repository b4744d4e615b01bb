"""Rows of nn/*.toml as validated objects. Every mistake is reported as `file:line: layer: what: expected`."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from .model import expanded, read_rows, split_top

KEYS = {"name", "args", "keyword_args", "base", "checks", "check_py", "check_cpp", "parameters", "buffers", "reset",
        "inputs", "input_checks", "returns", "forward", "forward_py", "forward_cpp", "repr", "test", "factory", "doc",
        "attributes", "rename", "store", "constructor", "buffers_from_args", "methods_cpp"}


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
    length: int | None   # of `int[2]`, `tuple[2]`, `padding[2]`
    kind: str            # the type without it


class Layer:
    """A row. `parameters` and `buffers`: name -> (shape or value, condition)."""

    def __init__(self, row: dict, where: str):
        self.name, self.row, self.where, self.get = row["name"], row, where, row.get
        for key in row:
            self.require(key in KEYS, f"unknown key `{key}`: expected one of {', '.join(sorted(KEYS))}")
        for key in ("args", "doc", "test"):
            self.require(key in row, f"key `{key}` is missing")
        self.require("forward" in row or ("forward_py" in row and "forward_cpp" in row), "expected `forward`, or `forward_py` and `forward_cpp`")
        self.args = [] if row["args"] == "ignored" else self.arguments(row["args"])
        self.args += self.arguments(row.get("keyword_args", ""), keyword_only=True)
        self.inputs = self.arguments(row.get("inputs", "Tensor input"))
        self.parameters, self.buffers = self.conditional(row.get("parameters", {})), self.conditional(row.get("buffers", {}))
        self.base = row.get("base", "Module")
        self.has_factory = bool(row.get("factory", self.parameters or self.buffers))
        self.tensor_args = [a.name for a in self.args if a.type == "Tensor" and not a.name.startswith("_")]
        self.legacy = [a.name for a in self.args if a.type == "legacy"]
        self.tensors = {*self.parameters, *self.buffers, *self.tensor_args}

    def require(self, condition, message: str):
        if not condition:
            raise LayerError(f"{self.where}: {self.name}: {message}")

    def arguments(self, text: str, keyword_only=False) -> list[Argument]:
        result: list[Argument] = []
        for part in split_top(text):
            found = re.fullmatch(r"([\w\[\]]+)(\??) (\w+)(?:=(.*))?", part)
            self.require(found, f"argument `{part}`: expected `type name` or `type name=default`")
            type_, optional, name, default = found.groups()
            same = default if default in {a.name for a in result} else None
            length = re.search(r"\[(\d+)\]", type_)
            result.append(Argument(name, type_, bool(optional), default, same, keyword_only, length and int(length[1]),
                                   type_.split("[")[0] if length else type_))
        return result

    def conditional(self, table: dict[str, str]) -> dict[str, tuple[str, str | None]]:
        result = {}
        for name, text in table.items():
            value, _, condition = (part.strip() for part in text.partition(" if "))
            for piece in filter(None, (value, condition)):
                try:
                    ast.parse(piece, mode="eval")
                except SyntaxError:
                    self.require(False, f"{name}: `{text}` is no expression")
            result[name] = (value, condition or None)
        return result

    def attribute_of(self, argument: str) -> str:
        return self.row.get("rename", {}).get(argument, argument)

    def is_stored(self, a: Argument) -> bool:
        """Whether the argument becomes a plain attribute of the same name."""
        if a.type in ("legacy", "Tensor") or a.name.startswith("_"):
            return False
        return a.name not in self.parameters or a.name in self.row.get("store", [])


def load_layers(folder: str | Path) -> list[Layer]:
    """The rows of every table in the folder."""
    layers: dict[str, Layer] = {}
    for path in sorted(Path(folder).glob("*.toml")):
        for row, where in ((row, f"{path}:{line}") for line, unexpanded in read_rows(path, "layer") for row in expanded(unexpanded)):
            if row["name"] in layers:
                raise LayerError(f"{where}: {row['name']}: defined twice: {layers[row['name']].where}")
            layers[row["name"]] = Layer(row, where)
    return list(layers.values())
