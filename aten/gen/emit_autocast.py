"""Autocast: rows with the key `autocast` cast their tensors first, where the mode is on (autograd/autocast.h)."""

from __future__ import annotations

from .cpp import names, params, return_type
from .emit_batch import call_args, tensors_and_lists
from .model import Op

POLICIES = {"lower": "Lower", "float32": "Float32", "promote": "Promote", "keep": ""}


def emit_function(op: Op) -> list[str]:
    """The function that does the call with other tensors, and without the mode."""
    if not op.get("autocast"):
        return []
    if op.get("autocast") == "keep":
        return ["namespace cast {", f"TG_COLD TG_NOINLINE {return_type(op)} {op.name}({params(op.args)}) {{",
                "  ModeGuard guard(0, kModeAutocast);", f"  return tapegrad::{op.name}({names(op.args)});", "}", "}  // namespace cast"]
    return ["namespace cast {", f"TG_COLD TG_NOINLINE {return_type(op)} {op.name}({params(op.args)}) {{",
            f"  autocast::Call call(autocast::Policy::{POLICIES[op.get('autocast')]}, {tensors_and_lists(op)});",
            f"  return tapegrad::{op.name}({call_args(op)});", "}", "}  // namespace cast"]


def hooked(op: Op, lines: list[str]) -> list[str]:
    """The public function, whose first line looks at the mode."""
    if not op.get("autocast"):
        return lines
    return [lines[0], f"  if (TG_UNLIKELY(modes() & kModeAutocast)) return cast::{op.name}({names(op.args)});", *lines[1:]]
