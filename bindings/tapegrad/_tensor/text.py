"""How tensors are printed: like PyTorch's, number for number."""

import math
import sys
import warnings
from dataclasses import dataclass

from .. import _C

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = PRINT_OPTS = _Options()  # the second name is PyTorch's
_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Sets how tensors are printed; `profile` is "default", "short" or "full", the other arguments change it.

    Another profile changes nothing, as in PyTorch (public programs ask for "long"), and warns."""
    if profile in _PROFILES:
        _options.precision, _options.threshold, _options.edgeitems, _options.linewidth = _PROFILES[profile]
    elif profile is not None:
        warnings.warn(f"set_printoptions: unknown profile: {profile!r}; known are {', '.join(_PROFILES)}", stacklevel=2)
    if precision is not None:
        _options.precision = precision
    if threshold is not None:
        _options.threshold = threshold
    if edgeitems is not None:
        _options.edgeitems = edgeitems
    if linewidth is not None:
        _options.linewidth = linewidth
    _options.sci_mode = sci_mode


def get_printoptions() -> dict:
    """The options of set_printoptions, as a dictionary."""
    return dict(vars(_options))


class printoptions:
    """A context with other print options."""

    def __init__(self, **options):
        self._new = options

    def __enter__(self):
        self._saved = get_printoptions()
        set_printoptions(**self._new)

    def __exit__(self, *exc):
        set_printoptions(**self._saved)


class _Formatter:
    """One format for all numbers of a tensor: plain, integral with a point, or scientific."""

    def __init__(self, values: list, floating: bool):
        self.floating = floating
        self.integral = True
        self.scientific = False
        self.width = 1
        if not floating:
            self.width = max([1, *(len(str(v)) for v in values)])
            return
        finite = [v for v in values if v != 0 and math.isfinite(v)]
        if not finite:
            return
        smallest, largest = min(map(abs, finite)), max(map(abs, finite))
        self.integral = all(v == math.ceil(v) for v in finite)
        self.scientific = _options.sci_mode
        if self.scientific is None:
            self.scientific = largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4
        if self.scientific:
            widths = (len(f"{v:.{_options.precision}e}") for v in finite)
        elif self.integral:
            widths = (len(f"{v:.0f}") + 1 for v in finite)
        else:
            widths = (len(f"{v:.{_options.precision}f}") for v in finite)
        self.width = max([1, *widths])

    def __call__(self, value) -> str:
        if not self.floating:
            text = str(value)
        elif self.scientific:
            text = f"{value:{self.width}.{_options.precision}e}"
        elif self.integral:
            text = f"{value:.0f}" + ("." if math.isfinite(value) else "")
        else:
            text = f"{value:.{_options.precision}f}"
        return text.rjust(self.width)


class _ComplexFormatter:
    """Real and imaginary parts, each in a format of their own."""

    def __init__(self, values: list):
        self.real = _Formatter([v.real for v in values], True)
        self.imag = _Formatter([v.imag for v in values], True)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value) -> str:
        imag = (self.imag(value.imag) + "j").lstrip()
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


_GAP = object()  # where elements are left out


def _summary(array, edge: int):
    """Nested lists of an array's edges, with _GAP in the middle of every long dimension."""
    if array.ndim == 0:
        return array.item()
    n = array.shape[0]
    if n <= 2 * edge:
        return [_summary(row, edge) for row in array]
    head, tail = [_summary(row, edge) for row in array[:edge]], [_summary(row, edge) for row in array[n - edge:]]
    return head + [_GAP] + tail


def _flatten(data) -> list:
    if isinstance(data, list):
        return [v for row in data for v in _flatten(row)]
    return [] if data is _GAP else [data]


def _layout(data, ndim: int, indent: int, format_number) -> str:
    if ndim == 0:
        return format_number(data)
    if ndim > 1:
        rows = ["..." if row is _GAP else _layout(row, ndim - 1, indent + 1, format_number) for row in data]
        return "[" + ("," + "\n" * (ndim - 1) + " " * (indent + 1)).join(rows) + "]"
    width = format_number.width + 2
    per_line = max(1, (_options.linewidth - indent) // width)
    items = [" ..." if v is _GAP else format_number(v) for v in data]
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _numbers(tensor, indent: int) -> str:
    if tensor.dtype in (_C.float16, _C.bfloat16):
        tensor = tensor.float()
    summarize = tensor.numel() > _options.threshold
    if not summarize:
        data = tensor.tolist()
    elif _options.edgeitems == 0:
        data = [_GAP]
    else:
        data = _summary(tensor.numpy(), _options.edgeitems)
    values = _flatten(data)
    formatter = _ComplexFormatter(values) if tensor.is_complex() else _Formatter(values, tensor.is_floating_point())
    return _layout(data, max(1, tensor.dim()) if summarize and not _options.edgeitems else tensor.dim(), indent, formatter)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """PyTorch's name and arguments; with `force_newline` the suffixes begin on a line of their own."""
    parts = [tensor_str]
    used = len(tensor_str) - tensor_str.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or used + len(suffix) + 2 > _options.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            used = indent + len(suffix)
            force_newline = False
        else:
            parts.append(", " + suffix)
            used += len(suffix) + 2
    return "".join(parts) + ")"


_tensor_str = _numbers


def sparse_str(tensor) -> str:
    """What repr of a sparse tensor gives: its parts, each on lines of its own; their dtype and device are the tensor's."""
    indent = len("tensor(")

    def part(name: str, value) -> str:
        start = f"{name}=tensor("
        return f"{start}{_numbers(value.detach().cpu(), indent + len(start)) if value.numel() else f'[], size={tuple(value.shape)}'})"

    if tensor.is_sparse:
        named, values = [("indices", tensor._indices())], tensor._values()
    else:
        from .._root.sparse import compressed_parts, index_names

        _, starts, others, values = compressed_parts(tensor)
        named = list(zip(index_names(tensor.layout), (starts, others), strict=True))
    default = _C._functions[""]["get_default_dtype"]()
    suffixes = [f"size={tuple(tensor.shape)}", f"nnz={tensor._nnz()}"]
    if tensor.device.type != _C._functions[""]["get_default_device"]().type:
        suffixes.insert(0, f"device='{tensor.device}'")
    if tensor.dtype not in (default, default.to_complex(), _C.int64, _C.bool):
        suffixes.append(f"dtype={tensor.dtype}")
    suffixes.append(f"layout={tensor.layout}")
    parts = "tensor(" + f",\n{' ' * indent}".join(part(name, value) for name, value in (*named, ("values", values)))
    return _add_suffixes(parts, suffixes, indent, force_newline=tensor.is_sparse)


def tensor_str(tensor, contents: str | None = None) -> str:
    """What repr(tensor) gives; `contents` in place of the numbers."""
    if level := _C._vmap_level(tensor):
        inside = tensor_str(_C._vmap_physical(tensor)).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={level}, value=\n    {inside}\n)"
    if tensor._is_any_sparse:
        return sparse_str(tensor)
    plain = type(tensor) in (_C.Tensor, _C.Parameter)
    prefix = "tensor(" if plain else f"{type(tensor).__name__}("
    indent = len(prefix)
    suffixes = []
    default = _C._functions[""]["get_default_dtype"]()
    implied = (default, default.to_complex(), _C.int64, _C.bool)
    hidden = contents is not None or "_wrapper_device" in (getattr(tensor, "__dict__", None) or ())  # a wrapper's own data are not asked
    data = tensor if hidden else tensor.detach()
    if data.device.type != _C._functions[""]["get_default_device"]().type:
        suffixes.append(f"device='{data.device}'")
    if contents is not None:
        body = contents
    elif data.is_meta or hidden:
        suffixes.append(f"size={tuple(data.shape)}")
        if data.dtype != default:
            suffixes.append(f"dtype={data.dtype}")
        body = "..."
    elif data.numel() == 0:
        if data.dim() != 1:
            suffixes.append(f"size={tuple(data.shape)}")
        if data.dtype != default:
            suffixes.append(f"dtype={data.dtype}")
        body = "[]"
    else:
        if data.dtype not in implied:
            suffixes.append(f"dtype={data.dtype}")
        body = _numbers(data.cpu(), indent)
    if tensor.grad_fn is not None:
        suffixes.append(f"grad_fn=<{_node_name(tensor.grad_fn)}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    tangent = _tangent(tensor)
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    text = _add_suffixes(prefix + body, suffixes, indent, force_newline=False)
    return text if plain or not isinstance(tensor, _C.Parameter) or isinstance(type(tensor), type(_C.Parameter)) else f"Parameter({text})"


def _tangent(tensor):
    """Of a dual tensor; None where no level of forward mode is open."""
    forward_ad = sys.modules.get("tapegrad.autograd.forward_ad")
    return forward_ad.unpack_dual(tensor).tangent if forward_ad and forward_ad._levels else None


def _node_name(node) -> str:
    name = getattr(node, "name", None)
    return name() if callable(name) else type(node).__name__
