"""Rows of the op table as validated objects. Every mistake is reported as `file:line: op: what: expected`."""

import itertools
import re
from dataclasses import dataclass
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
RESULTS = {"pointwise": POINTWISE_RESULTS, "reduce": REDUCE_RESULTS}
DTYPE_GROUPS = {
    "bool": ["bool_"],
    "integral": ["uint8", "int8", "int16", "int32", "int64"],
    "floating": ["float32", "float64"],
    "complex": ["complex64", "complex128"],
    "stored": ["uint16", "uint32", "uint64"],  # by the kernels of the dtypes with the same bits; only where a row says so
}
KEYS = {"name", "args", "returns", "variants", "module", "alias", "kind", "doc", "grad", "differentiable", "test", "checks",
        "functor", "promotion", "result", "dtypes", "empty", "view", "shape", "cpu", "cpu_once", "any_device", "contiguous", "dynamic",
        "body", "impl", "overloads", "inplace", "method_name", "node_name", "sparse", "variadic", "optional_grads", "batch", "autocast", "devices", "number_first",
        "out_dtype", "out_shape", "apart", "numbers", "flag", "alone", "method_arguments", "one_value"}
REQUIRED_BY_KIND = {"view": "view", "overload": "overloads"}


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


def named_after(row: dict) -> dict:
    """What a row has by its name, unless it says otherwise: the functions of C++, and the module where the name begins with one."""
    name, takes_kernel = row["name"].strip("_"), row["kind"] in ("kernel", "random")
    found = {"impl": name} if row["kind"] == "composite" and "body" not in row else {}
    if (module := name.split("_")[0]) in ("fft", "linalg"):
        found["module"] = [module]
    if takes_kernel and not row.get("dynamic") and not row["name"].removesuffix("__").endswith("_"):
        found["shape"] = f"{name}_shape"
    return {**found, "cpu": f"{name}_cpu"} if takes_kernel and "cpu_once" not in row else found


class Op:
    """A row. `returns` are (type, name), `grads` (argument names, expression)."""

    def __init__(self, family: str, where: str, row: dict):
        row = {**named_after(row), **row}
        self.name, self.kind, self.family, self.where, self.row, self.get = row["name"], row["kind"], family, where, row, row.get
        self.args, self.returns = parse_args(row.get("args", "")), parse_returns(row.get("returns", "Tensor"))
        self.grads = [([t.strip() for t in k.split(",")], text) for k, text in row.get("grad", {}).items()]
        self.variants = row.get("variants", [])
        self.hidden = self.name.startswith("_")
        self.shown = row.get("method_name", self.name).strip("_")  # in messages: the name under which it is called
        self.is_inplace_only = self.name.endswith("_") and not self.name.endswith("__")
        self.has_inplace, self.has_out = "inplace" in self.variants, "out" in self.variants
        self.has_method = "method" in self.variants or "method_only" in self.variants
        self.tensor_args = [a for a in self.args if a.is_tensor]
        self.num_outputs, self.output_names = len(self.returns), [n or "result" for _, n in self.returns]
        self.returns_list, self.returns_plain = self.returns[0][0] == "Tensor[]", self.returns[0][0] in RETURN_SCALARS
        self.is_random, self.is_differentiable = self.kind == "random", bool(self.grads)
        self.has_kernel = self.kind in ("pointwise", "reduce") or (
            self.kind in ("kernel", "random", "create") and bool(row.get("cpu") or row.get("cpu_once")))
        self.dtype_names = [t for g in row.get("dtypes", list(DTYPE_GROUPS)[:-1]) for t in DTYPE_GROUPS.get(g, [g])]

    def public_name(self, module: str) -> str:
        """What Python calls the row in a module: `linalg_svd` is `svd` in `linalg`."""
        return self.name.removeprefix(module.rsplit(".", 1)[-1] + "_") if module else self.name

    @property
    def differentiable_outputs(self) -> list[int]:
        return [self.output_names.index(n) for n in self.row.get("differentiable", self.output_names)]


def _require(condition, message: str):
    if not condition:
        raise ValueError(message)


def _one_of(what: str, value, allowed, more=""):
    _require(value in allowed, f"{what} '{value}': expected one of {', '.join(allowed)}{more}")


def split_top(text: str) -> list[str]:
    """Splits at commas that are in no bracket or string."""
    parts = re.findall(r"""(?:\[[^\]]*\]|\([^)]*\)|\{[^}]*\}|<[^>]*>|"[^"]*"|'[^']*'|[^,])+""", text)
    return [part.strip() for part in parts if part.strip()]


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


def _check_row(op: Op):
    from .emit_batch import RULES
    from .emit_dispatch import CASTS

    row, names = op.row, {a.name for a in op.tensor_args}
    choices = {"autocast": CASTS, "promotion": PROMOTIONS, "out_dtype": ("exact", "cast", "any"), **({"result": RESULTS[op.kind]} if op.kind in RESULTS else {})}
    for key, value in row.items():
        _require(key in KEYS, f"unknown key '{key}': expected one of {', '.join(sorted(KEYS))}")
        if key in choices:
            _one_of(key, value, choices[key])
    _require(row.get("number_first", True) in (True, "with a tensor"), f"number_first '{row.get('number_first')}': expected true or 'with a tensor'")
    needed = REQUIRED_BY_KIND.get(op.kind)
    _require(needed is None or row.get(needed), f"kind {op.kind} needs the key '{needed}'")
    for v in op.variants:
        _require(v in VARIANTS, f"unknown variant '{v}': expected one of {', '.join(VARIANTS)}")
    _require(row.get("doc"), "doc is missing: expected a sentence")
    if op.kind == "pointwise":
        _require(1 <= len(op.tensor_args) <= 4, f"a pointwise operator has 1 to 4 tensor arguments: got {len(op.tensor_args)}")
        _require(len(op.args) - len(op.tensor_args) <= 4, "a pointwise operator has at most 4 parameters")
    if "(" not in row.get("batch", "("):
        _one_of("batch", row["batch"], RULES, ", or an expression")
    if (op.has_method or op.has_inplace) and op.kind != "overload":
        _require(op.args and op.args[0].is_tensor, "a method or in-place form needs a tensor as first argument")
    for group in row.get("dtypes", []):
        known = group in DTYPE_GROUPS or any(group in g for g in DTYPE_GROUPS.values())
        _require(known, f"dtypes '{group}': expected one of {', '.join(DTYPE_GROUPS)} or a dtype")
    for name in row.get("apart", []):
        _require(name in names, f"apart '{name}': expected a tensor argument")
    targets = [t for listed, _ in op.grads for t in listed]
    for i, t in enumerate(targets):
        _require(t in names, f"grad.{t}: not a tensor argument: expected one of {', '.join(sorted(names)) or 'none'}")
        _require(t not in targets[:i], f"grad.{t}: given twice")
    recorded = op.kind in ("pointwise", "reduce", "kernel", "view", "random")
    nothing = row.get("differentiable") == [] or row.get("result") in ("bool", "index")
    _require(not recorded or not names or nothing or set(targets) == names,
             f"no gradient for {', '.join(sorted(names - set(targets)))}: expected grad.NAME = \"expression\", \"none\", or differentiable = []")
    for name in row.get("differentiable") or []:
        _require(name in op.output_names, f"differentiable '{name}': not a result: expected one of {', '.join(op.output_names)}")


def _filled(value, names: dict):
    """Replaces `<d>`, `<2*d>` and the like in every text; a text that is one name alone becomes what it stands for, which may be a list."""
    def text(match):
        given = names[match[2]]
        return str(int(match[1] or 1) * given + int(match[3] or 0)) if isinstance(given, int) else given

    if isinstance(value, str):
        alone = names.get(value[1:-1]) if value[:1] == "<" else None
        return alone if isinstance(alone, list) else re.sub(rf"<(?:(\d+)\*)?({'|'.join(names)})(?:\+(\d+))?>", text, value)
    if isinstance(value, list):
        return [_filled(v, names) for v in value]
    return {k: _filled(v, names) for k, v in value.items()} if isinstance(value, dict) else value


def expanded(row: dict) -> list[dict]:
    """The rows that a row with `expand` stands for. A key whose text is one name alone, and then empty, is left out."""
    names = row.pop("expand", {})
    _require(len({len(values) for values in names.values()}) < 2 and all(names.values()), "expand: expected lists of one length")
    if not names:
        return [row]
    filled = [_filled(row, dict(zip(names, values))) for values in zip(*names.values())]
    return [{k: v for k, v in one.items() if v != "" or row[k] == ""} for one in filled]


def read_rows(path: Path, kind: str) -> list[tuple[int, dict]]:
    """Line and content of each `[[kind]]` of a table, with what `[defaults]` has for all of its rows."""
    text = path.read_text()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    lines = [i for i, line in enumerate(text.splitlines(), 1) if line.strip() == f"[[{kind}]]"]
    rows = [{**document.get("defaults", {}), **dict(("kind", k) for k, key in REQUIRED_BY_KIND.items() if key in row), **row} for row in document.get(kind, [])]
    return list(zip(lines, rows, strict=True))


def _key_line(text: str, start: int, key: str) -> int:
    row = itertools.takewhile(lambda line: line.strip() != "[[op]]", text.splitlines()[start:])
    return next((i for i, line in enumerate(row, start + 1) if re.match(rf"\s*{re.escape(key)}\s*[.=]", line)), start)


def _load_row(row: dict, path: Path, line: int) -> list[Op]:
    ops, name = [], row.get("name", "?")
    try:
        for one in expanded(row):
            _require("name" in one, "name is missing: expected the operator's public name")
            name = one["name"]
            _one_of("kind", one.get("kind"), KINDS)
            _require(one["kind"] == "overload" or "args" in one, "args is missing: expected a signature such as \"Tensor input, *, Scalar alpha=1\"")
            ops.append(Op(path.stem, f"{path.name}:{line}", one))
            _check_row(ops[-1])
        return ops
    except ValueError as error:
        found = re.match(r"unknown key '(\w+)'|(arg)ument '|(\w+)", str(error))
        key = found[1] or (found[2] and "args") or found[3]
        raise ValueError(f"{path}:{_key_line(path.read_text(), line, key)}: {name}: {error}") from None


def load_table(folder: Path) -> list[Op]:
    """All rows in the order of files and rows; raises RowError with every mistake found."""
    errors: list[str] = []

    def noted(function, *args) -> list:
        try:
            return function(*args)
        except ValueError as error:
            errors.append(str(error))
            return []

    ops = [op for path in sorted(folder.rglob("*.toml"), key=lambda path: path.name) for line, row in noted(read_rows, path, "op") for op in noted(_load_row, row, path, line)]
    seen: dict[str, Op] = {}
    for op in ops:
        if op.name in seen:
            errors.append(f"{folder}/{op.where}: {op.name}: already a row at {seen[op.name].where}")
        seen[op.name] = op
    for op in ops:
        named = [("alone", op.row.get("alone")), *(("overloads", o) for o in op.get("overloads", [])), *(("flag", o) for o in op.get("flag", {}).values())]
        errors += [f"{folder}/{op.where}: {op.name}: {key} '{other}' is not a row" for key, other in named if other and other not in seen]
    if errors:
        raise RowError("\n".join(errors))
    return ops
