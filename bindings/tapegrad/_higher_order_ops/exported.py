"""Control flow in programs (tapegrad.export): operations with bodies, which are programs of their own. Both branches of a `cond` are written
down, and a turn of a `while_loop`, whatever the example's predicate says."""

from __future__ import annotations

from .. import _C, Tensor
from ..utils._pytree import tree_flatten, tree_unflatten
from .cond import checked_branches
from .trees import check_alike
from .while_loop import predicate


def _body(leaves: list, function, results: list):
    """What function() calls, as a body that takes `leaves`; its result goes to `results`."""
    def tensors() -> list:
        result = function()
        results.append(result)
        return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]

    return _C._trace_body(leaves, tensors)


def cond(pred, true_fn, false_fn, operands):
    """cond in a program that is being made."""
    leaves = tree_flatten(operands)[0]
    results: list = []
    bodies = [_body(leaves, lambda function=function: function(*operands), results) for function in (true_fn, false_fn)]
    trues, falses, structure = checked_branches(*results)
    for a, b in zip(trues, falses, strict=True):
        if not isinstance(a, Tensor) and a != b:
            raise RuntimeError(f"cond: in a program a result that is no tensor must be the same in both branches: got {a} and {b}")
    made = _C._trace_control(False, *bodies, [pred], leaves)
    if not made:  # no program is made any more, for a reason that is told in the end
        return results[0]
    tensors = iter(made)
    return tree_unflatten([next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in trues], structure)


def while_loop(cond_fn, body_fn, carried):
    """while_loop in a program that is being made, of tensors alone: (None, its result), or (what cond_fn gave, None) if that is no tensor: then
    the turns are written down one by one."""
    leaves, structure = tree_flatten(carried)
    found: list = []

    def holds():
        found.append(predicate(cond_fn(*carried)))
        return found[0]

    more = _body(leaves, holds, [])
    if not isinstance(found[0], Tensor):
        return found[0], None
    results: list = []
    turn = _body(leaves, lambda: body_fn(*carried), results)
    after, form = tree_flatten(results[0])
    check_alike(after, leaves, "body_fn_output", "carried_inputs")
    made = _C._trace_control(True, more, turn, leaves, [])
    return None, tree_unflatten(made or after, form)
