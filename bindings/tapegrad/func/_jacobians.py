"""Jacobians: a basis of the outputs' (jacrev) or inputs' (jacfwd) space, mapped over by vmap."""

import functools

from .. import _C
from ..autograd import enable_grad
from ..utils._pytree import tree_flatten, tree_unflatten
from ._gradients import Linear, Recording, chosen, split_aux
from ._vmap import vmap

__all__ = ["hessian", "jacfwd", "jacrev"]


def basis(tensors) -> tuple:
    """The unit vectors of the space of all elements of the tensors: for each tensor a part, (all elements, *shape)."""
    from .. import zeros

    sizes = [t.numel() for t in tensors]
    total, start, parts = sum(sizes), 0, []
    for t, size in zip(tensors, sizes, strict=True):
        part = zeros(total, size, dtype=t.dtype, device=t.device)
        part.diagonal(-start).fill_(1) if size else None
        parts.append(part.view(total, *t.shape))
        start += size
    return tuple(parts)


def _check_real(name: str, tensors, what: str) -> None:
    if any(t.is_complex() for t in tensors):
        raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor\nview_as_real gives a real one")


def _leaves(name: str, output):
    leaves, spec = tree_flatten(output)
    if not leaves or not all(isinstance(leaf, _C.Tensor) for leaf in leaves):
        raise RuntimeError(f"{name}: Expected f to return a tensor or a nesting of tensors: got {type(output).__name__}")
    _check_real(name, leaves, "outputs")
    return leaves, spec


def _start(name: str, func, args, kwargs, argnums, has_aux: bool):
    wanted, replaced = chosen(args, argnums)
    recording = Recording(wanted)
    _check_real(name, recording.inputs, "inputs")
    with enable_grad():
        output, aux = split_aux(name, func(*replaced(recording.args), **kwargs), has_aux)
    return (recording, *_leaves(name, output), aux)


def _assemble(rows, leaves, spec, recording, argnums):
    """rows[o][i]: the Jacobian of output o by input i, as a nesting of outputs of a nesting of inputs."""
    def of_inputs(row):
        nested = tree_unflatten(row, recording.spec)
        return nested if isinstance(argnums, tuple) else nested[0]

    return tree_unflatten([of_inputs(row) for row in rows], spec)


def jacrev(func, argnums=0, *, has_aux: bool = False, chunk_size: int | None = None, _preallocate_and_copy: bool = False):
    """A function that gives the Jacobian of func by reverse mode: for each output and argument a tensor of their shapes,
    one after the other. `chunk_size`: that many rows at a time. Raises RuntimeError for complex tensors."""
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func, updated=())
    def wrapper(*args, **kwargs):
        recording, leaves, spec, aux = _start("jacrev", func, args, kwargs, argnums, has_aux)

        def row(weights):
            return recording.gradients(leaves, weights, retain=True)

        columns = vmap(row, chunk_size=chunk_size)(basis(leaves)) if any(y.numel() for y in leaves) else \
            [x.new_zeros(0, *x.shape) for x in recording.inputs]
        rows, start = [], 0
        for y in leaves:
            rows.append([recording.finish(c.narrow(0, start, y.numel()).reshape((*y.shape, *x.shape)))
                         for c, x in zip(columns, recording.inputs, strict=True)])
            start += y.numel()
        result = _assemble(rows, leaves, spec, recording, argnums)
        return (result, recording.finish(aux)) if has_aux else result

    return wrapper


def jacfwd(func, argnums=0, has_aux: bool = False, *, chunk_size: int | None = None, randomness: str = "error"):
    """A function that gives the Jacobian of func column by column, along the inputs, as jacrev does row by row."""

    @functools.wraps(func, updated=())
    def wrapper(*args, **kwargs):
        recording, leaves, spec, aux = _start("jacfwd", func, args, kwargs, argnums, has_aux)
        derivative = Linear(recording, leaves)
        columns = vmap(lambda t: derivative(t), chunk_size=chunk_size, randomness=randomness)(basis(recording.inputs))
        rows = []
        for y, column in zip(leaves, columns, strict=True):
            row, start = [], 0
            for x in recording.inputs:
                part = column.narrow(0, start, x.numel()).movedim(0, -1)
                row.append(recording.finish(part.reshape((*y.shape, *x.shape))))
                start += x.numel()
            rows.append(row)
        result = _assemble(rows, leaves, spec, recording, argnums)
        return (result, recording.finish(aux)) if has_aux else result

    return wrapper


def hessian(func, argnums=0):
    """A function that gives the Hessian of func: jacfwd(jacrev(func))."""
    return jacfwd(jacrev(func, argnums), argnums)
