"""What a misspelt name may have meant."""

from __future__ import annotations

import sys

# Names of other libraries, and what they are called here.
_ELSEWHERE = {"ndarray": "Tensor", "array": "tensor", "asarray": "as_tensor", "random": "rand", "power": "pow", "astype": "to",
              "concat": "cat", "expand_dims": "unsqueeze", "transpose_": "t_", "copy": "clone", "absolute": "abs", "ceiling": "ceil",
              "repeat_elements": "repeat_interleave", "matmult": "matmul", "nelements": "numel"}


def did_you_mean(name: str, candidates) -> str:
    """A second line for an error message: the most similar of the names, or nothing."""
    from difflib import get_close_matches

    names = {c for c in candidates if not c.startswith("_")}
    close = [c for c in [_ELSEWHERE.get(name)] if c in names] or get_close_matches(name, names, n=1, cutoff=0.7)
    return f"\ndid you mean '{close[0]}'?" if close else ""


def no_attribute(module: str, name: str, candidates) -> AttributeError:
    """The error of a module that has no such name."""
    hint = did_you_mean(name, candidates) if not name.startswith("_") else ""
    compat = sys.modules.get(f"{__package__}.compat")
    if compat is not None and compat.is_installed():
        vision = f"{__package__}.vision"
        theirs = module.replace(vision, "torchvision", 1) if module.startswith(vision) else module.replace(__package__, "torch", 1)
        hint = hint or f"\n{theirs} is {module} here: dir({theirs}) lists its names, docs/compat.md what tapegrad leaves out"
        module = theirs
    return AttributeError(f"module '{module}' has no attribute '{name}'{hint}", name=name)
