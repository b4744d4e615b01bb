"""Functions whose arguments or results have more forms than a row can say."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from .. import _C
from .._C import Tensor

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "einsum", "frobenius_norm", "nuclear_norm", "tensordot"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_F = TypeVar("_F", bound=Callable)
_rows, _private = _C._functions[""], _C._functions["_C._ops"]
_overridden, _ask = _C._has_torch_function_variadic, _C._handle_torch_function


def overridable(function: _F) -> _F:
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


def _subscripts(indices) -> str:
    """A list of subscripts as letters: [0, ..., 1] is "A...B"."""
    if not isinstance(indices, (list, tuple)):
        raise TypeError(f"einsum(): expected subscripts, a list of ints and Ellipsis, behind each operand: got {type(indices).__name__}")
    for index in indices:
        if index is not Ellipsis and not (isinstance(index, int) and 0 <= index < len(_LETTERS)):
            raise ValueError(f"einsum(): subscripts in subscript list are not within the valid range [0, {len(_LETTERS)}): got {index!r}")
    return "".join("..." if index is Ellipsis else _LETTERS[index] for index in indices)


@overridable
def einsum(*args: str | Tensor | Sequence) -> Tensor:
    """Sum of products in Einstein's notation, with ellipsis and repeated subscripts: einsum("bij,bjk->bik", x, y), or with a list of
    subscripts behind each operand and perhaps one for the result: einsum(x, [0, 1], y, [1, 2], [0, 2]). Operands are contracted from left to right.
    """
    if len(args) < 2:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list")
    if isinstance(args[0], _C.Tensor):
        equation = ",".join(_subscripts(indices) for indices in args[1::2]) + (f"->{_subscripts(args[-1])}" if len(args) % 2 else "")
        args = (equation, *args[0:len(args) - len(args) % 2:2])
    return _rows["einsum"](*args)


@overridable
def nuclear_norm(input, dim=None, keepdim=False, *, out=None):
    """The sum of the singular values of the matrices in two dimensions (None: the last two), by PyTorch's old name."""
    return _C._functions["linalg"]["matrix_norm"](input, "nuc", (-2, -1) if dim is None else dim, keepdim, **({} if out is None else {"out": out}))


@overridable
def frobenius_norm(input, dim=None, keepdim=False, *, out=None):
    """The root of the sum of squares over dimensions (None or []: all), by PyTorch's old name."""
    return _C._functions["linalg"]["vector_norm"](input, 2, dim or None, keepdim, **({} if out is None else {"out": out}))


@overridable
def _aminmax(input, dim=None, keepdim=False):
    """aminmax by the private name that old observers of quantization call."""
    return _rows["aminmax"](input, dim=dim, keepdim=keepdim)


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
            raise RuntimeError(f"tensordot: expects dims >= 0: got {dims}")
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
