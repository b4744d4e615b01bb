"""Rows of the op table as validated objects. Every mistake is reported as `file:line: op: what: expected`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from .cpp_types import RETURN_SCALARS, TYPES

KINDS = ("pointwise", "reduce", "view", "create", "random", "kernel", "composite", "overload")
VARIANTS = ("method", "inplace", "out", "method_only")
PROMOTIONS = {"promote": "Promote", "float": "Float", "first": "KeepFirst", "rest": "PromoteRest"}
POINTWISE_RESULTS = {"compute": "Compute", "bool": "Bool", "real": "Real"}
REDUCE_RESULTS = {"compute": "Compute", "sum": "SumLike", "float": "Float", "bool": "Bool", "index": "Index", "real": "Real"}
DTYPE_GROUPS = {
    "bool": ["bool_"],
    "integral": ["uint8", "int8", "int16", "int32", "int64"],
    "floating": ["float32", "float64"],
    "complex": ["complex64", "complex128"],
    "stored": ["uint16", "uint32", "uint64"],  # by the kernels of the dtypes with the same bits; only where a row says so
}
KEYS = {
    "name", "args", "returns", "variants", "module", "alias", "kind", "doc", "grad", "differentiable", "test", "checks",
    "functor", "promotion", "result", "dtypes", "empty", "view", "shape", "cpu", "cpu_once", "any_device", "contiguous", "dynamic",
    "body", "impl", "overloads", "inplace", "method_name", "node_name", "sparse", "variadic", "optional_grads", "batch", "autocast", "devices", "number_first",
    "out_dtype", "apart", "numbers",
}
REQUIRED_BY_KIND = {"view": ["view"], "overload": ["overloads"]}


class RowError(Exception):
    """A wrong row; the text says where, what and what was expected."""


@dataclass(frozen=True)
class Arg:
    name: str
    type: str
    default: str | None = None
    keyword_only: bool = False

    @property
    def info(self):
        return TYPES[self.type]

    @property
    def is_tensor(self) -> bool:
        return self.info.tensor

    @property
    def is_list(self) -> bool:
        return self.type == "Tensor[]"


@dataclass
class Op:
    name: str
    family: str
    where: str
    kind: str
    args: list[Arg]
    returns: list[tuple[str, str]]  # (type, name)
    row: dict
    grads: list[tuple[list[str], str]] = field(default_factory=list)  # (argument names, expression)

    def get(self, key, default=None):
        return self.row.get(key, default)

    @property
    def variants(self):
        return self.row.get("variants", [])

    def public_name(self, module: str) -> str:
        """What Python calls the row in a module: `linalg_svd` is `svd` in `linalg`."""
        prefix = module.rsplit(".", 1)[-1] + "_"
        return self.name[len(prefix):] if module and self.name.startswith(prefix) else self.name

    @property
    def hidden(self) -> bool:
        return self.name.startswith("_")

    @property
    def shown(self) -> str:
        """The name in messages: that under which it is called."""
        return self.row.get("method_name", self.name).strip("_")

    @property
    def is_inplace_only(self) -> bool:
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def tensor_args(self):
        return [a for a in self.args if a.is_tensor]

    @property
    def has_inplace(self) -> bool:
        return "inplace" in self.variants

    @property
    def has_out(self) -> bool:
        return "out" in self.variants

    @property
    def has_method(self) -> bool:
        return "method" in self.variants or "method_only" in self.variants

    @property
    def returns_list(self) -> bool:
        return self.returns[0][0] == "Tensor[]"

    @property
    def returns_plain(self) -> bool:
        return self.returns[0][0] in RETURN_SCALARS

    @property
    def num_outputs(self) -> int:
        return len(self.returns)

    @property
    def has_kernel(self) -> bool:
        return self.kind in ("pointwise", "reduce") or (
            self.kind in ("kernel", "random", "create") and bool(self.get("cpu") or self.get("cpu_once")))

    @property
    def output_names(self):
        return [n or "result" for _, n in self.returns]

    @property
    def differentiable_outputs(self) -> list[int]:
        names = self.output_names
        return [names.index(n) for n in self.row.get("differentiable", names)]

    @property
    def is_differentiable(self) -> bool:
        return bool(self.grads)

    @property
    def is_random(self) -> bool:
        return self.kind == "random"

    @property
    def dtype_names(self) -> list[str]:
        groups = self.row.get("dtypes", list(DTYPE_GROUPS)[:-1])
        return [t for g in groups for t in DTYPE_GROUPS.get(g, [g])]


def _require(condition, message: str):
    if not condition:
        raise ValueError(message)


def _one_of(what: str, value, allowed, more=""):
    _require(value in allowed, f"{what} '{value}': expected one of {', '.join(allowed)}{more}")


def split_top(text: str) -> list[str]:
    """Splits at commas that are in no bracket or string."""
    parts, depth, quote, current = [], 0, None, ""
    for c in text:
        if quote:
            quote = None if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        if c == "," and depth == 0 and quote is None:
            parts.append(current)
            current = ""
        else:
            current += c
    if current.strip():
        parts.append(current)
    return [p.strip() for p in parts]


def parse_args(text: str) -> list[Arg]:
    args, keyword_only = [], False
    for part in split_top(text):
        if part == "*":
            keyword_only = True
            continue
        match = re.fullmatch(r"(\S+)\s+(\w+)\s*(?:=\s*(.+))?", part)
        _require(match, f"argument '{part}': expected `Type name` or `Type name=default`")
        type_, name, default = match.groups()
        _one_of(f"argument '{name}': unknown type", type_, TYPES)
        follows = default is None and not keyword_only and any(a.default is not None and not a.keyword_only for a in args)
        _require(not follows, f"argument '{name}' without default follows one with a default")
        _require(all(a.name != name for a in args), f"argument '{name}' appears twice")
        args.append(Arg(name, type_, default, keyword_only))
    return args


def parse_returns(text: str) -> list[tuple[str, str]]:
    result = []
    for part in split_top(text):
        words = part.split()
        _require(words[0] in ("Tensor", "Tensor[]", *RETURN_SCALARS) and len(words) <= 2,
                 f"returns '{part}': expected Tensor, Tensor[], or one of {', '.join(RETURN_SCALARS)}, and a name")
        result.append((words[0], words[1] if len(words) == 2 else ""))
    _require(len(result) < 2 or all(name for _, name in result), "returns: several results need names: `Tensor values, Tensor indices`")
    return result


def _flatten_grad(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten_grad(value, prefix + key + ".")
        else:
            yield prefix + key, value


def _check_row(op: Op):
    from .emit_batch import RULES
    from .emit_dispatch import CASTS

    row, names = op.row, {a.name for a in op.tensor_args}
    for key in row:
        _require(key in KEYS, f"unknown key '{key}': expected one of {', '.join(sorted(KEYS))}")
    for key in REQUIRED_BY_KIND.get(op.kind, []):
        _require(key in row, f"kind {op.kind} needs the key '{key}'")
    for v in op.variants:
        _require(v in VARIANTS, f"unknown variant '{v}': expected one of {', '.join(VARIANTS)}")
    _require(row.get("doc"), "doc is missing: expected a sentence")
    if op.kind == "pointwise":
        _one_of("promotion", row.get("promotion", "promote"), PROMOTIONS)
        _one_of("result", row.get("result", "compute"), POINTWISE_RESULTS)
        _require(1 <= len(op.tensor_args) <= 4, f"a pointwise operator has 1 to 4 tensor arguments: got {len(op.tensor_args)}")
        _require(len(op.args) - len(op.tensor_args) <= 4, "a pointwise operator has at most 4 parameters")
    if op.kind == "reduce":
        _one_of("result", row.get("result", "compute"), REDUCE_RESULTS)
    if op.kind in ("kernel", "random"):
        _require(op.is_inplace_only or row.get("dynamic") or row.get("shape"), f"kind {op.kind} needs the key 'shape' (or dynamic = true)")
        _require(row.get("cpu") or row.get("cpu_once"), f"kind {op.kind} needs the key 'cpu' or 'cpu_once'")
    if "autocast" in row:
        _one_of("autocast", row["autocast"], CASTS)
    _require(row.get("number_first", True) in (True, "with a tensor"), f"number_first '{row.get('number_first')}': expected true or 'with a tensor'")
    _require(row.get("out_dtype", "cast") in ("exact", "cast"), f"out_dtype '{row.get('out_dtype')}': expected exact or cast")
    for name in row.get("apart", []):
        _require(name in names, f"apart '{name}': expected a tensor argument")
    if "(" not in row.get("batch", "("):
        _one_of("batch", row["batch"], RULES, ", or an expression")
    if op.kind == "composite":
        _require(row.get("body") or row.get("impl"), "kind composite needs the key 'body' or 'impl'")
    if (op.has_method or op.has_inplace) and op.kind != "overload":
        _require(op.args and op.args[0].is_tensor, "a method or in-place form needs a tensor as first argument")
    for group in row.get("dtypes", []):
        known = group in DTYPE_GROUPS or any(group in g for g in DTYPE_GROUPS.values())
        _require(known, f"dtypes '{group}': expected one of {', '.join(DTYPE_GROUPS)} or a dtype")
    seen = set()
    for t in (t for targets, _ in op.grads for t in targets):
        _require(t in names, f"grad.{t}: not a tensor argument: expected one of {', '.join(sorted(names)) or 'none'}")
        _require(t not in seen, f"grad.{t}: given twice")
        seen.add(t)
    recorded = op.kind in ("pointwise", "reduce", "kernel", "view", "random")
    nothing = row.get("differentiable") == [] or row.get("result") in ("bool", "index")
    _require(not recorded or not names or nothing or seen == names,
             f"no gradient for {', '.join(sorted(names - seen))}: expected grad.NAME = \"expression\", \"none\", or differentiable = []")
    for name in row.get("differentiable") or []:
        _require(name in op.output_names, f"differentiable '{name}': not a result: expected one of {', '.join(op.output_names)}")


def _row_lines(text: str) -> list[int]:
    return [i for i, line in enumerate(text.splitlines(), 1) if line.strip() == "[[op]]"]


def _key_line(text: str, start: int, key: str) -> int:
    lines = text.splitlines()
    for i in range(start, len(lines)):
        if lines[i].strip() == "[[op]]":
            break
        if re.match(rf"\s*{re.escape(key)}\s*[.=]", lines[i]):
            return i + 1
    return start


def _load_file(path: Path, errors: list[str]) -> list[Op]:
    text = path.read_text()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        errors.append(f"{path}: not TOML: {error}")
        return []
    lines = _row_lines(text)
    ops = []
    for number, row in enumerate(document.get("op", [])):
        line = lines[number] if number < len(lines) else 1
        name = row.get("name", "?")
        key = None
        try:
            _require("name" in row, "name is missing: expected the operator's public name")
            key = "kind"
            _one_of("kind", row.get("kind"), KINDS)
            key = None
            _require(row["kind"] == "overload" or "args" in row, "args is missing: expected a signature such as \"Tensor input, *, Scalar alpha=1\"")
            key = "args"
            args = parse_args(row.get("args", ""))
            key = "returns"
            returns = parse_returns(row.get("returns", "Tensor"))
            key = None
            op = Op(name, path.stem, f"{path.name}:{line}", row["kind"], args, returns, row)
            op.grads = [([t.strip() for t in k.split(",")], v) for k, v in _flatten_grad(row.get("grad", {}))]
            try:
                _check_row(op)
            except ValueError as error:
                match = re.match(r"(?:unknown key '(\w+)'|(\w+))", str(error))
                key = match and (match.group(1) or match.group(2))
                raise
            ops.append(op)
        except ValueError as error:
            at = _key_line(text, line, key) if key else line
            errors.append(f"{path}:{at}: {name}: {error}")
    return ops


def load_table(folder: Path) -> list[Op]:
    """All rows in the order of files and rows; raises RowError with every mistake found."""
    errors: list[str] = []
    ops = [op for path in sorted(folder.glob("*.toml")) for op in _load_file(path, errors)]
    seen: dict[str, Op] = {}
    for op in ops:
        if op.name in seen:
            errors.append(f"{folder}/{op.where}: {op.name}: already a row at {seen[op.name].where}")
        seen[op.name] = op
    for op in ops:
        for other in op.get("overloads", []):
            if other not in seen:
                errors.append(f"{folder}/{op.where}: {op.name}: overload '{other}' is not a row")
    if errors:
        raise RowError("\n".join(errors))
    return ops
