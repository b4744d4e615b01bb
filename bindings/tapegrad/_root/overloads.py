"""Functions whose arguments or results have more forms than a row can say."""

from .. import _C

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "tensordot"]

_rows, _private = _C._functions[""], _C._functions["_C._ops"]
_overridden, _ask = _C._has_torch_function_variadic, _C._handle_torch_function


def overridable(function):
    """Makes a function written in Python call its arguments' `__torch_function__`, as rows of the op table do. overrides.py finds such functions
    by the name of the inner one."""
    def overridable_function(*args, **kwargs):
        given = (*args, *kwargs.values()) if kwargs else args
        if _overridden(*given):
            return _ask(overridable_function, given, *args, **kwargs)
        return function(*args, **kwargs)

    overridable_function.__name__, overridable_function.__qualname__, overridable_function.__module__ = function.__name__, function.__qualname__, function.__module__
    overridable_function.__doc__, overridable_function.__wrapped__ = function.__doc__, function
    return overridable_function


@overridable
def tensordot(a, b, dims=2, out=None):
    """Sum of products over dimensions of a and b.

    `dims`: how many (the last of a, the first of b), or two lists that pair them.
    """
    extra = {} if out is None else {"out": out}
    if isinstance(dims, _C.Tensor):
        dims = dims.tolist() if dims.numel() > 1 else dims.item()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot: dims must not be negative: got {dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot: dims must not exceed the operands' {min(a.dim(), b.dim())} dimensions: got {dims}")
        return _rows["tensordot"](a, b, dims, **extra)
    of_a, of_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    return _private["_tensordot"](a, b, of_a, of_b, **extra)


def _atleast(name):
    row = _rows[name]

    def atleast(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], _C.Tensor):
            return row(tensors[0])
        if len(tensors) == 1:
            (tensors,) = tensors
        return tuple(row(t) for t in tensors)

    atleast.__name__ = atleast.__qualname__ = name
    atleast.__doc__ = row.__doc__
    return overridable(atleast)


atleast_1d, atleast_2d, atleast_3d = _atleast("atleast_1d"), _atleast("atleast_2d"), _atleast("atleast_3d")
