"""Forward mode: tensors with tangents. A dual tensor is the start of a recording; the tangent of what is computed from it is
taken out of the recording when it is asked for, as the gradient of u -> u^T J, which is linear in u (exact)."""

from __future__ import annotations

from typing import NamedTuple

from .._C import Tensor
from .grad_mode import _decorate, enable_grad, is_grad_enabled

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_levels: list[list] = []  # of each level the pairs (start, tangent)
_current_level = -1  # the number of the level that is open, for those who ask


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
    return _current_level


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the last level. Raises RuntimeError for another."""
    if not _levels or (level is not None and level != len(_levels) - 1):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not supported.")
    global _current_level
    _levels.pop()
    _current_level = len(_levels) - 1


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


def make_dual(tensor, tangent, *, level: int | None = None):
    """A tensor of the same values that carries a tangent of its shape. Raises RuntimeError outside of a level."""
    from ..func._gradients import fresh

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
    dual = fresh(tensor, is_grad_enabled())
    _levels[level].append((dual, tangent))
    return dual


def unpack_dual(tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor computed from dual ones."""
    from .. import zeros_like
    from ..func._gradients import Linear, Recording

    level = _level(level)
    if level < 0 or level >= len(_levels) or not _levels[level] or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    recording = Recording(())
    recording.inputs = [dual for dual, _ in _levels[level]]
    for dual, tangent in _levels[level]:
        if dual is tensor:
            return UnpackedDualTensor(recording.finish(tensor), tangent)
    with enable_grad():
        linear = Linear(recording, [tensor])
    if all(product is None for product in linear.products):
        return UnpackedDualTensor(tensor, None)
    (derivative,) = linear([t for _, t in _levels[level]])
    return UnpackedDualTensor(recording.finish(tensor), derivative if derivative is not None else zeros_like(tensor))
