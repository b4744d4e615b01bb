"""PyTorch's functions over lists of tensors: `_foreach_add_(tensors, others, alpha=...)`, which optimizers of others call.

Each is created on first use from the function for one tensor; the work is done tensor by tensor.
"""

from .. import _C
from ..autograd import is_grad_enabled

_ops = _C._functions[""]

UNARY = frozenset("abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid "
                  "sign sin sinh sqrt tan tanh trunc".split())
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow", "maximum": "maximum", "minimum": "minimum",
          "clamp_max": "minimum", "clamp_min": "maximum"}


def _each(value, count: int, name: str) -> list:
    """A value per tensor: of a list its entries, else the value for all."""
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise RuntimeError(f"{name}: Tensor lists must have the same number of tensors, got {count} and {len(value)}")
        return list(value)
    return [value] * count


def _operand(value, like):
    return value if isinstance(value, _C.Tensor) else _ops["tensor"](value, dtype=like.dtype, device=like.device)


def _two(op: str, t, other, alpha):
    if op in ("maximum", "minimum"):
        return _ops[op](t, _operand(other, t))
    if op in ("add", "sub") and alpha != 1:
        return _ops[op](t, other, alpha=alpha)
    return _ops[op](t, other)


def _written(tensors, results):
    """Into the tensors themselves, as the functions with a _ at the end do."""
    for t, result in zip(tensors, results):
        t.copy_(result)


_KINDS = (_C.Tensor, _C.Parameter)
_WRITE = frozenset(f"{base}_" for base in UNARY | {"add", "sub", "mul", "div", "lerp"})


def _wrote(base: str, tensors, operands, **named) -> bool:
    """Calls the function of one tensor that writes, which leaves no results to copy. False, with nothing written, unless it is sure before the first
    call that none is refused: dense tensors of floating point, outside of the tape, with numbers and tensors alike."""
    lists = [o if o.__class__ in (list, tuple) else [o] * len(tensors) for o in operands]
    recording = is_grad_enabled()
    for t in tensors:
        if t.__class__ not in _KINDS or not t.is_floating_point() or not t.is_contiguous() or (recording and t.requires_grad):
            return False
    for values in lists:
        if len(values) != len(tensors):
            return False
        for t, o in zip(tensors, values):
            if o.__class__ is float or o.__class__ is int:
                continue
            if o.__class__ not in _KINDS or not o.is_same_size(t) or o.dtype is not t.dtype or o.device != t.device or (recording and o.requires_grad):
                return False
    write = getattr(_C.Tensor, base)
    if named:
        for row in zip(tensors, *lists):
            write(*row, **named)
    else:
        for row in zip(tensors, *lists):
            write(*row)
    return True


def _binary(name: str, op: str):
    def function(tensors, other, *, alpha=1):
        return [_two(op, t, o, alpha) for t, o in zip(tensors, _each(other, len(tensors), name))]

    def pow_of_scalar(tensors, other, *, alpha=1):
        if not isinstance(tensors, (list, tuple)):  # 2 ** each
            return [_ops["pow"](tensors, o) for o in other]
        return function(tensors, other)

    return pow_of_scalar if op == "pow" else function


def _with_product(name: str, op: str):
    def function(tensors, first, second, value=1, *, scalars=None):
        factors = scalars if scalars is not None else value
        factors = factors.tolist() if isinstance(factors, _C.Tensor) and factors.dim() else factors
        rows = zip(tensors, _each(first, len(tensors), name), _each(second, len(tensors), name), _each(factors, len(tensors), name))
        return [_ops[op](t, a, b, value=v.item() if isinstance(v, _C.Tensor) else v) for t, a, b, v in rows]

    return function


def _lerp(tensors, end, weight):
    """lerp of each."""
    return [_ops["lerp"](t, e, w) for t, e, w in zip(tensors, end, _each(weight, len(tensors), "_foreach_lerp"))]


def _norm(tensors, ord=2, dtype=None) -> list:
    """The norm of each tensor as a whole."""
    vector_norm = _C._functions["linalg"]["vector_norm"]
    return [vector_norm(t, ord, dtype=dtype) for t in tensors]


def _max(tensors) -> list:
    """The largest element of each."""
    return [_ops["max"](t) for t in tensors]


def _copy_(tensors, source, non_blocking=False):
    """Copies each source into its tensor."""
    for t, s in zip(tensors, _each(source, len(tensors), "_foreach_copy_")):
        t.copy_(s)


def _zero_(tensors):
    """Zeros into each."""
    for t in tensors:
        t.zero_()


def _plain(base: str):
    """The function that gives new tensors; None if there is none of this name."""
    name = f"_foreach_{base}"
    if base in UNARY:
        return lambda tensors: [_ops[base](t) for t in tensors]
    if base in BINARY:
        return _binary(name, BINARY[base])
    if base in ("addcmul", "addcdiv"):
        return _with_product(name, base)
    return {"lerp": _lerp, "norm": _norm, "max": _max}.get(base)


def make(name: str):
    """The function `_foreach_...`; None if there is none of this name."""
    base = name.removeprefix("_foreach_")
    if base in ("copy_", "zero_"):
        return {"copy_": _copy_, "zero_": _zero_}[base]
    function = _plain(base.removesuffix("_"))
    if function is None or (base.endswith("_") and base in ("norm_", "max_")):
        return None
    if not base.endswith("_"):
        made = function
    else:
        def made(tensors, *args, **kwargs):
            if base in _WRITE and kwargs.keys() <= ({"alpha"} if base in ("add_", "sub_") else set()) and _wrote(base, tensors, args, **kwargs):
                return
            _written(tensors, function(tensors, *args, **kwargs))

        if base in ("addcmul_", "addcdiv_"):
            by_copies = made

            def made(tensors, first, second, value=1, **kwargs):
                if kwargs or value.__class__ not in (int, float) or not _wrote(base, tensors, (first, second), value=value):
                    by_copies(tensors, first, second, value, **kwargs)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"{base} of each tensor of a list."
    return made
