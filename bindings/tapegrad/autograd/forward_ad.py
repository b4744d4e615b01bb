"""Forward mode: tensors with tangents. A dual tensor is the start of a recording; the tangent of what is computed from it is
taken out of the recording when it is asked for, as the gradient of u -> u^T J, which is linear in u (exact)."""

from __future__ import annotations

from typing import NamedTuple

from .._C import Parameter, Tensor, _vmap_depth, strided
from .._C._autograd import _apply_then
from .._C._autograd import apply as _apply
from . import function
from .grad_mode import _decorate, enable_grad, is_grad_enabled

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_levels: list[list] = []  # of each level its dual tensors
_current_level = -1  # the number of the level that is open, for those who ask


_enabled = True


def _is_fwd_grad_enabled() -> bool:
    """Whether tensors have tangents: unpack_dual gives none while this is off."""
    return _enabled


class _set_fwd_grad_enabled:
    """Switches tangents on or off, as a call and a context."""

    def __init__(self, mode: bool) -> None:
        global _enabled
        self.before, _enabled = _enabled, bool(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception) -> None:
        global _enabled
        _enabled = self.before


class UnpackedDualTensor(NamedTuple):
    """What unpack_dual returns; tangent is None where nothing depends on a dual tensor."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begins a level; its number."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    global _current_level
    _levels.append([])
    _current_level = len(_levels) - 1
    function._in_forward_mode = _apply_function
    return _current_level


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the last level. Raises RuntimeError for another."""
    if not _levels or (level is not None and level != len(_levels) - 1):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    global _current_level
    _levels.pop()
    _current_level = len(_levels) - 1
    if not _levels:
        function._in_forward_mode = None


class dual_level:
    """A level as a context manager and decorator."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exception) -> None:
        exit_dual_level()

    def clone(self) -> dual_level:
        return dual_level()

    def __call__(self, function):
        return _decorate(self, function)


def _level(level: int | None) -> int:
    return len(_levels) - 1 if level is None else level


def _laid_out_alike(tensor, tangent) -> bool:
    """Whether a tangent has the tensor's place in a storage of the same size, so that any view of it can be taken."""
    if tensor.numel() == 0:
        return True
    if not all(type(t) in (Tensor, Parameter) and t.layout is strided for t in (tensor, tangent)) or _vmap_depth():
        return True
    return (tensor.storage_offset() == tangent.storage_offset() and tensor.untyped_storage().nbytes() == tangent.untyped_storage().nbytes()
            and all(a == b or size <= 1 for a, b, size in zip(tensor.stride(), tangent.stride(), tensor.shape)))


def make_dual(tensor, tangent, *, level: int | None = None):
    """A tensor of the same values that carries a tangent of its shape. Raises RuntimeError outside of a level."""
    level = _level(level)
    if level < 0:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first.")
    for name, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {t.dtype}")
    if tangent.shape != tensor.shape:
        raise RuntimeError("make_dual: Trying to set a forward gradient that has a different size than that of the original Tensor: "
                           f"got {tuple(tangent.shape)} for {tuple(tensor.shape)}")
    if tangent.dtype != tensor.dtype:
        raise RuntimeError(f"make_dual: expected a tangent like the primal: got {tuple(tangent.shape)} {tangent.dtype} for "
                           f"{tuple(tensor.shape)} {tensor.dtype}")
    if unpack_dual(tangent, level=level).tangent is not None:
        raise RuntimeError("make_dual: Attempting to use as tangent a tensor that has a forward gradient at the same level is not supported")
    return _made_dual(tensor, tangent, level)


def _made_dual(tensor, tangent, level: int):
    from .. import zeros
    from ..func._gradients import fresh

    if not _laid_out_alike(tensor, tangent):  # views of the dual tensor are taken of its tangent, too
        storage = zeros(tensor.untyped_storage().nbytes() // tensor.itemsize, dtype=tensor.dtype, device=tensor.device)
        tangent = storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tangent)
    start = fresh(tensor, is_grad_enabled())
    with enable_grad():
        dual = _Alias.apply(start) if start.is_leaf else start
    _levels[level].append(_Dual(start, tangent, dual, start.grad_fn, dual.grad_fn))
    return dual


def unpack_dual(tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor computed from dual ones."""
    from .. import zeros_like
    from ..func._gradients import Linear, Recording

    level = _level(level)
    if not _enabled or level < 0 or level >= len(_levels) or not _levels[level] or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    recording = Recording(())
    recording.inputs = [dual.start for dual in _levels[level]]
    for dual in _levels[level]:
        if dual.start.grad_fn is not dual.start_node:
            raise NotImplementedError("unpack_dual: a dual tensor of one that is recorded by the tape as well was written to in place: write to a copy of it")
        if dual.tensor is tensor and tensor.grad_fn is dual.node:  # and was not written to
            return UnpackedDualTensor(recording.finish(tensor), dual.tangent)
    _Gate.closed = True
    try:
        with enable_grad():
            linear = Linear(recording, [tensor])
    finally:
        _Gate.closed = False
    if all(product is None for product in linear.products):
        return UnpackedDualTensor(tensor, None)
    (derivative,) = linear([dual.tangent for dual in _levels[level]])
    if any(derivative is dual.tangent for dual in _levels[level]):  # of an output of its own
        derivative = derivative.clone()
    return UnpackedDualTensor(recording.finish(tensor), derivative if derivative is not None else zeros_like(tensor))


class _Dual(NamedTuple):
    """A dual tensor: where its recording starts, its tangent, the tensor that the program has, and the nodes that both had then."""

    start: Tensor
    tangent: Tensor
    tensor: Tensor
    start_node: object
    node: object


class _Alias(function.Function):
    """The tensor itself, but no leaf: dual tensors may be written to in place."""

    @staticmethod
    def forward(ctx, t):
        return t.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad


class _Gate(function.Function):
    """Passes a tensor through. While a derivative in forward mode is taken, no gradient passes: the tensor has a tangent of its own,
    which holds what comes from the dual tensors before it."""

    closed = False

    @staticmethod
    def forward(ctx, t):
        return t.view_as(t)

    @staticmethod
    def backward(ctx, grad):
        return None if _Gate.closed else grad


def _apply_function(cls, args):
    """A call of a custom Function: with its jvp where it has one and an argument has a tangent."""
    if cls.jvp is function.Function.jvp and cls.backward is not function.Function.backward:
        return _apply(cls, *args)
    pairs = [unpack_dual(a) if isinstance(a, Tensor) else UnpackedDualTensor(a, None) for a in args]
    if all(tangent is None for _, tangent in pairs):
        return _apply(cls, *args)
    primals = [primal for primal, _ in pairs]
    return _apply_then(lambda ctx, outputs: _with_tangents(cls, ctx, args, primals, [t for _, t in pairs], outputs), cls, *primals)


def _with_tangents(cls, ctx, args, primals, tangents, outputs) -> tuple:
    """The outputs as dual tensors, by the Function's jvp."""
    from .. import zeros_like

    given = [zeros_like(p) if t is None and isinstance(p, Tensor) and (p.is_floating_point() or p.is_complex()) and ctx._materializes else t
             for p, t in zip(primals, tangents, strict=True)]
    versions = [t._version if isinstance(t, Tensor) else None for t in given]
    found = cls.jvp(ctx, *given)
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(outputs):
        raise RuntimeError(f"{cls.__name__}: jvp must return as many tangents as forward returns outputs: {len(outputs)}: got {len(found)}")
    inputs = [_Input(*row) for row in zip(args, primals, given, versions, strict=True)]
    return tuple(_dual_output(cls, ctx, out, tangent, inputs) for out, tangent in zip(outputs, found, strict=True))


class _Input(NamedTuple):
    """An argument of a custom Function: as it was given, as forward saw it, its tangent and that one's version before jvp ran."""

    given: object
    primal: object
    tangent: Tensor | None
    version: int | None


def _dual_output(cls, ctx, out, tangent, inputs):
    differentiable = isinstance(out, Tensor) and (out.is_floating_point() or out.is_complex()) and not ctx._is_non_differentiable(out)
    if not differentiable:
        if tangent is not None:
            raise RuntimeError(f"{cls.__name__}: jvp returned a tangent for an output that is not differentiable. You should return None at that position instead.")
        return out
    if tangent is None:
        return out
    _check_tangent(cls, ctx, out, tangent, inputs)
    for i in inputs:  # a dual tensor that was written to, and its tangent with it, is itself the output
        if isinstance(i.given, Tensor) and ctx._is_dirty(i.primal) and i.primal._shares_storage(out) and any(dual.tensor is i.given for dual in _levels[-1]):
            return i.given
    start = _Gate.apply(out) if out.requires_grad and is_grad_enabled() else out
    return _made_dual(start, tangent, -1)


def _check_tangent(cls, ctx, out, tangent, inputs) -> None:
    """A tangent is to its primal what the output is: written to in place, or a view."""
    for given, primal, t, version in inputs:
        if not isinstance(primal, Tensor) or t is None or not primal._shares_storage(out) or primal.numel() == 0:
            continue
        if ctx._is_dirty(primal):
            if tangent is not t or t._version == version:
                raise RuntimeError(f"{cls.__name__}: An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                                   "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace.")
            return
        problem = None
        if not tangent._is_view() or tangent is t:
            problem = "but the jvp is not returning a view."
        elif not tangent._shares_storage(t):
            problem = f"but the jvp is not returning a view of the {'same base' if given._is_view() else 'given'} as the input gradient it received."
        if problem:
            raise RuntimeError(f"{cls.__name__}: A custom Function's forward is returning a view (or an input as-is) {problem}")
