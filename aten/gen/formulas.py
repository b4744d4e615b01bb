"""What a row's gradient formulas need from the forward pass: which tensors are saved, which only described."""

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
    several = {f"grad_{op.output_names[o]}": i for i, o in enumerate(outputs)} if op.num_outputs > 1 else {}
    return several | ({"grad": 0} if op.num_outputs == 1 or len(outputs) == 1 else {})


def analyse(op: Op) -> tuple[list[Formula], list[Saved]]:
    position = {a.name: i for i, a in enumerate(op.tensor_args)}
    members: dict[str, Saved] = {}
    formulas = []
    candidates = [(a.name, a, -1) for a in op.args]
    candidates += [(n, None, i) for i, n in enumerate(op.output_names) if not op.returns_list]
    if op.num_outputs > 1 and "result" not in op.output_names:
        candidates.append(("result", None, 0))
    for targets, text in (([position[t] for t in targets], text) for targets, text in op.grads if text != "none"):
        needed = []
        for name, arg, output in candidates:
            if not uses(text, name) or (arg and not arg.info.saved):
                continue
            kind = "output" if arg is None else "value"
            if arg and arg.is_list:
                of_sizes = rf"(?:sizes_of|dtypes_of)\(\s*{re.escape(name)}\s*\)"
                kind = "list" if uses(re.sub(of_sizes, "", text), name) else "metas"
            elif arg and arg.is_tensor:
                kind = "meta" if uses_only_meta(text, name) else "tensor"
            member = name + ("_meta_" if kind in ("meta", "metas") else "_")
            saved = members.setdefault(f"{name}:{kind}", Saved(name, kind, member, [], arg, output))
            saved.needed_by += [t for t in targets if t not in saved.needed_by]
            needed.append(saved)
        formulas.append(Formula(targets, text, needed))
    return formulas, list(members.values())
