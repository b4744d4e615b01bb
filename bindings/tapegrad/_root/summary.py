"""summary(model, input): a table of a model's modules."""

from .. import _C, Tensor, no_grad

__all__ = ["ModelSummary", "summary"]


class Row:
    """A module: `name`, `kind` (its class), `depth`, `input_shape` and `output_shape` of its last call (None: not called),
    `calls`, own `parameters` and those of them that are `trainable`, own `mult_adds`, bytes of its outputs."""

    def __init__(self, name: str, module, depth: int):
        self.name, self.kind, self.depth, self.module = name, type(module).__name__, depth, module
        self.input_shape = self.output_shape = None
        self.calls = self.parameters = self.trainable = self.mult_adds = self.output_bytes = 0


def _shapes(value):
    """The shape of a tensor, or those of several."""
    if isinstance(value, Tensor):
        return list(value.shape)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        found = [s for s in map(_shapes, value) if s is not None]
        return found[0] if len(found) == 1 else found or None
    return None


def _bytes(value) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def _count(n: int) -> str:
    return f"{n:,}"


class ModelSummary:
    """What `summary` found: `rows` (Row), `total_params`, `trainable_params`, `total_mult_adds`, and in bytes `param_bytes`,
    `input_bytes` and `output_bytes` (of modules without children: what one forward pass makes)."""

    def __init__(self, model, rows, max_depth: int):
        self.rows, self.max_depth = rows, max_depth
        parameters = list(model.parameters())
        self.total_params = sum(p.numel() for p in parameters)
        self.trainable_params = sum(p.numel() for p in parameters if p.requires_grad)
        self.param_bytes = sum(p.numel() * p.element_size() for p in parameters)
        self.buffer_bytes = sum(b.numel() * b.element_size() for b in model.buffers())
        self.total_mult_adds: int | None = sum(r.mult_adds for r in rows)
        self.input_bytes = 0
        self.output_bytes = sum(r.output_bytes for r in rows if next(iter(r.module.children()), None) is None)

    def _folded(self):
        """Rows down to the depth; those below are added to the last shown one above them."""
        shown = []
        for r in self.rows:
            if r.depth <= self.max_depth:
                shown.append([r, r.parameters, r.trainable, r.mult_adds])
            else:
                shown[-1][1] += r.parameters
                shown[-1][2] += r.trainable
                shown[-1][3] += r.mult_adds
        return shown

    def __str__(self) -> str:
        table = [("Module", "Input shape", "Output shape", "Parameters", "Trainable", "Mult-adds")]
        for r, parameters, trainable, mult_adds in self._folded():
            label = "  " * r.depth + (f"{r.name.rpartition('.')[2]}: " if r.name else "") + r.kind + (f" (x{r.calls})" if r.calls > 1 else "")
            numbers = [_count(n) if n else "--" for n in (parameters, trainable, mult_adds)]
            table.append((label, *(str(s) if s is not None else "--" for s in (r.input_shape, r.output_shape)), *numbers))
        widths = [max(len(row[k]) for row in table) for k in range(6)]
        lines = ["  ".join(f"{cell:<{w}}" if k < 3 else f"{cell:>{w}}" for k, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in table]
        rule = "-" * max(map(len, lines))
        adds = "--" if self.total_mult_adds is None else _count(self.total_mult_adds)
        mb = [n / 1e6 for n in (self.input_bytes, self.output_bytes, self.param_bytes, self.buffer_bytes)]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule,
                          f"Parameters: {_count(self.total_params)}, trainable: {_count(self.trainable_params)}, "
                          f"not trainable: {_count(self.total_params - self.trainable_params)}",
                          f"Multiply-adds: {adds}",
                          f"Memory (MB): input {mb[0]:.2f}, outputs of a forward pass {mb[1]:.2f}, parameters {mb[2]:.2f}, buffers {mb[3]:.2f}", rule])

    __repr__ = __str__


def _tree(model):
    """Each module once, in the order of registration: (name, module, depth)."""
    for name, module in model.named_modules():
        yield name, module, name.count(".") + 1 if name else 0


def summary(model, input=None, *args, depth: int = 100, **kwargs) -> ModelSummary:
    """The modules of a model with the shapes, parameters and multiply-adds of model(input, *args, **kwargs).

    `input`: a tensor, or a tuple or list of the positional arguments; None: nothing is run, and there are parameters only.
    `depth`: how far down the table goes. The model runs once, without gradients, in eval mode; its mode and the random
    numbers are as before. Multiply-adds are those of products and convolutions; they are missing while a profiler runs.
    Printed, the result is a table.
    """
    rows = {id(module): Row(name, module, level) for name, module, level in _tree(model)}
    counted: set[int] = set()
    for row in rows.values():
        own = [p for p in row.module.parameters(recurse=False) if id(p) not in counted]  # tied ones count once
        counted.update(map(id, own))
        row.parameters, row.trainable = sum(p.numel() for p in own), sum(p.numel() for p in own if p.requires_grad)
    if input is None and not args and not kwargs:
        result = ModelSummary(model, list(rows.values()), depth)
        result.total_mult_adds = None
        return result
    given = (*input, *args) if isinstance(input, (tuple, list)) else (input, *args)
    counts = _run(model, given, kwargs, rows)
    for path, flops in (counts or {}).items():
        named = model.get_submodule(path) if path else model
        rows[id(named)].mult_adds += flops // 2
    result = ModelSummary(model, list(rows.values()), depth)
    result.input_bytes = _bytes([given, kwargs])
    if counts is None:
        result.total_mult_adds = None
    return result


def _run(model, given, kwargs, rows):
    """Calls the model with hooks that fill the rows: operations by the path of the module, or None."""
    from ..random import fork_rng
    from ..utils.flop_counter import count_by_module

    def note(module, inputs, output) -> None:
        row = rows[id(module)]
        row.calls += 1
        row.input_shape, row.output_shape = _shapes(inputs), _shapes(output)
        row.output_bytes += _bytes(output)

    modes = [(m, m.training) for m in model.modules()]
    hooks = [m.register_forward_hook(note) for m, _ in modes]
    model.eval()
    try:
        with no_grad(), fork_rng():
            if _C._profiler_running():
                model(*given, **kwargs)
                return None
            return count_by_module(model, lambda: model(*given, **kwargs))
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
