"""FlopCounterMode: the floating-point operations of products and convolutions, forward and backward, per module.

A multiplication with its addition counts as two. Counted are operators as the profiler records them.
"""

from collections import defaultdict

from .. import _C
from ..profiler._events import read_logs
from ..profiler._flops import flops_of, matmul_flops

__all__ = ["FlopCounterMode", "addmm_flop", "baddbmm_flop", "bmm_flop", "conv_flop_count", "mm_flop", "register_flop_formula", "sdpa_flop_count"]

_ELEMENTWISE = ("add", "add_", "mul", "mul_")
flop_registry: dict = {}  # of register_flop_formula: the operator's name -> a function of the arguments' shapes


def mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs) -> int:
    """Of (m, k) @ (k, n)."""
    return matmul_flops(list(a_shape), list(b_shape))


def addmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs) -> int:
    """Of the product in addmm."""
    return matmul_flops(list(a_shape), list(b_shape))


def bmm_flop(a_shape, b_shape, out_shape=None, **kwargs) -> int:
    """Of (b, m, k) @ (b, k, n)."""
    return matmul_flops(list(a_shape), list(b_shape))


def baddbmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs) -> int:
    """Of the products in baddbmm."""
    return matmul_flops(list(a_shape), list(b_shape))


def conv_flop_count(x_shape, w_shape, out_shape, transposed: bool = False) -> int:
    """Of a convolution of (N, C, ...) by a weight with result (N, O, ...), with PyTorch's shapes."""
    from math import prod

    return 2 * x_shape[0] * prod((x_shape if transposed else out_shape)[2:]) * prod(w_shape)


def sdpa_flop_count(query_shape, key_shape, value_shape) -> int:
    """Of attention over (batch, heads, length, width)."""
    q, k, v = list(query_shape), list(key_shape), list(value_shape)
    return matmul_flops(q, [*k[:-2], k[-1], k[-2]]) + matmul_flops([*q[:-1], k[-2]], v)


def _name(target) -> str:
    """mm for "mm", "aten.mm", "aten::mm.default" or a function of that name."""
    text = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    text = text.replace("::", ".")
    parts = [p for p in text.split(".") if p not in ("tapegrad", "torch", "ops", "aten", "default")]
    return parts[-1] if parts else text


def register_flop_formula(targets, get_raw: bool = False):
    """Decorator: the function gives the operations of operators (by name, or functions of that name) from the shapes of their
    tensors; other arguments that are integers come as they are, the rest as None."""

    def decorate(formula):
        for target in targets if isinstance(targets, (list, tuple, set)) else [targets]:
            flop_registry[_name(target)] = formula
        return formula

    return decorate


def _plain(argument):
    """A shape for a tensor, shapes for a list of them, integers as they are."""
    if isinstance(argument, tuple) and len(argument) == 2 and isinstance(argument[1], list):
        return tuple(argument[1])
    return [_plain(a) for a in argument] if isinstance(argument, list) else argument


def _count(events, mapping: dict):
    """(path of the module, operator's name, operations) of each event that has a formula."""
    for e in events:
        if e.kind != 0 or e.inputs is None:
            continue
        name = e.name[6:]
        own = mapping.get(name, flop_registry.get(name))
        flops = own(*map(_plain, e.inputs)) if own is not None else None if name in _ELEMENTWISE else flops_of(name, e.inputs)
        if flops:
            yield e.module_path, name, flops


def count_by_module(model, call) -> dict:
    """The operations of call() by the path of the model's modules; "" is the model itself."""
    _C._profiler_start(True, False, False, True)
    try:
        call()
    finally:
        log = _C._profiler_stop()
    totals: dict = defaultdict(int)
    known = {name for name, _ in model.named_modules()}
    for path, _, flops in _count(read_logs(*log)[0], {}):
        name = (path or "").partition(".")[2]
        while name and name not in known:
            name = name.rpartition(".")[0]
        totals[name] += flops
    return dict(totals)


class FlopCounterMode:
    """A context that counts the operations of what runs in it.

    Args:
        mods: not needed; modules are found as they are called.
        depth: how many levels of modules the table has.
        display: whether the table is printed at the end.
        custom_mapping: formulas per operator, as register_flop_formula's.

    RuntimeError where a profiler runs.
    """

    def __init__(self, mods=None, depth: int = 2, display: bool = True, custom_mapping: dict | None = None):
        self.depth, self.display = depth, display
        self.custom_mapping = {_name(k): v for k, v in (custom_mapping or {}).items()}
        self.flop_counts: dict = {}

    def __enter__(self):
        self.flop_counts = {}
        _C._profiler_start(True, False, False, True)
        return self

    def __exit__(self, *error) -> None:
        counts: dict = {"Global": defaultdict(int)}
        for path, name, flops in _count(read_logs(*_C._profiler_stop())[0], self.custom_mapping):
            counts["Global"][f"aten.{name}"] += flops
            parts = path.split(".") if path else []
            for k in range(1, len(parts) + 1):  # each module that the operator is in
                counts.setdefault(".".join(parts[:k]), defaultdict(int))[f"aten.{name}"] += flops
        self.flop_counts = {k: dict(v) for k, v in counts.items()}
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict:
        """{module: {operator: operations}}; "Global" has all."""
        return {k: dict(v) for k, v in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules, operations and their share."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        size, unit = next(((s, u) for s, u in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")) if total >= s), (1, ""))
        rows = [("Module", "FLOP", "% Total")]
        for module, counts in self.flop_counts.items():
            level = 0 if module == "Global" else module.count(".") + 1
            if level > depth:
                continue
            entries = [(module, sum(counts.values())), *((f" - {op}", n) for op, n in counts.items())]
            rows += [(" " * level + name, f"{n / size:.3f}{unit}" if size > 1 else str(n), f"{100 * n / total:.2f}%" if total else "0%") for name, n in entries]
        widths = [max(len(r[k]) for r in rows) for k in range(3)]
        lines = [f"{r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}" for r in rows]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])
