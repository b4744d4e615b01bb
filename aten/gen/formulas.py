"""What a row's gradient formulas need from the forward pass: which tensors are saved, which only described."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .cpp import uses, uses_only_meta
from .model import Arg, Op


@dataclass
class Saved:
    """A member of the node. `needed_by`: indexes of the tensor arguments whose gradients use it."""

    name: str
    kind: str  # "tensor", "list", "meta", "value", "output"
    member: str
    needed_by: list[int]
    arg: Arg | None = None
    output: int = -1


@dataclass
class Formula:
    targets: list[int]  # indexes into op.tensor_args
    expression: str
    saved: list[Saved]


def grad_names(op: Op) -> dict[str, int]:
    """The names by which a formula knows the gradients of the results."""
    outputs = op.differentiable_outputs
    if op.num_outputs == 1:
        return {"grad": 0}
    found = {f"grad_{op.output_names[o]}": i for i, o in enumerate(outputs)}
    if len(outputs) == 1:
        found["grad"] = 0
    return found


def analyse(op: Op) -> tuple[list[Formula], list[Saved]]:
    tensor_args = op.tensor_args
    position = {a.name: i for i, a in enumerate(tensor_args)}
    parts = [([position[t] for t in targets], text) for targets, text in op.grads if text != "none"]
    members: dict[str, Saved] = {}
    formulas = []
    for targets, text in parts:
        needed = []
        candidates = [(a.name, a, -1) for a in op.args]
        candidates += [(n, None, i) for i, n in enumerate(op.output_names) if not op.returns_list]
        if op.num_outputs > 1 and "result" not in op.output_names:
            candidates.append(("result", None, 0))
        for name, arg, output in candidates:
            if not uses(text, name) or (arg and not arg.info.saved):
                continue
            if arg is None:
                kind = "output"
            elif arg.is_list:
                kind = "metas" if _list_only_meta(text, name) else "list"
            elif arg.is_tensor:
                kind = "meta" if uses_only_meta(text, name) else "tensor"
            else:
                kind = "value"
            key = f"{name}:{kind}"
            if key not in members:
                suffix = "_meta_" if kind in ("meta", "metas") else "_"
                members[key] = Saved(name, kind, f"{name}{suffix}", [], arg, output)
            saved = members[key]
            saved.needed_by += [t for t in targets if t not in saved.needed_by]
            needed.append(saved)
        formulas.append(Formula(targets, text, needed))
    return formulas, list(members.values())


def _list_only_meta(text: str, name: str) -> bool:
    """`sizes_of(tensors)` asks only for shapes."""
    rest = re.sub(rf"(?:sizes_of|dtypes_of)\(\s*{re.escape(name)}\s*\)", "", text)
    return not uses(rest, name)
