"""fully_shard: a module's parameters become pieces, one per rank, that are gathered while the module is at work."""

from __future__ import annotations

import functools

from ... import is_grad_enabled, no_grad
from ...autograd.graph import saved_tensors_hooks
from ...nn import Module
from ...utils import _pytree
from .. import distributed_c10d as dist
from ..device_mesh import DeviceMesh
from ._api import MixedPrecisionPolicy, OffloadPolicy
from ._units import Root, Unit, units_of

__all__ = ["FSDPModule", "fully_shard", "register_fsdp_forward_method"]

_PLAIN = MixedPrecisionPolicy()


def groups_of(mesh) -> tuple:
    """(group among which parameters are cut, group of the ranks with equal pieces or None)"""
    if mesh is None:
        return dist._get_default_group(), None
    if isinstance(mesh, DeviceMesh):
        if mesh.ndim > 2:
            raise ValueError(f"fully_shard: expected a mesh of one dimension, or of two for copies of shards: got {mesh.ndim}")
        return (mesh.get_group(), None) if mesh.ndim == 1 else (mesh.get_group(1), mesh.get_group(0))
    return mesh if isinstance(mesh, tuple) else (mesh, None)


def _cast(value, dtype):
    return _pytree.tree_map(lambda x: x.to(dtype) if hasattr(x, "is_floating_point") and x.is_floating_point() else x, value)


def _run(module, unit: Unit, forward, args, kwargs):
    policy = unit.policy
    if policy.param_dtype is not None and policy.cast_forward_inputs:
        args, kwargs = _cast(args, policy.param_dtype), _cast(kwargs, policy.param_dtype)
    unit.enter_forward()
    unit.depth += 1  # a method may call another one
    recorded = is_grad_enabled()
    try:
        if recorded and unit.reshard and unit.size > 1:
            with saved_tensors_hooks(unit.pack, unit.unpack):
                result = forward(*args, **kwargs)
        else:
            result = forward(*args, **kwargs)
    finally:
        unit.depth -= 1
        if unit.depth == 0:
            unit.leave_forward(recorded)
    return _cast(result, policy.output_dtype) if policy.output_dtype is not None else result


class FSDPModule:
    """What fully_shard adds to a module's class."""

    def _unit(self) -> Unit:
        return self._fsdp_unit

    def unshard(self, async_op: bool = False):
        """Puts the whole parameters of this unit in their places until reshard() or the end of the next forward pass."""
        self._fsdp_unit.begin_gathering()
        if not async_op:
            self._fsdp_unit.enter_forward()
        return _Gathering(self._fsdp_unit) if async_op else None

    def reshard(self) -> None:
        """Puts the pieces back and frees the whole values of this unit."""
        self._fsdp_unit.leave_forward(False)
        self._fsdp_unit.free()

    def _apply(self, fn, recurse=True):
        result = super()._apply(fn, recurse)
        for unit in units_of(self):
            for slot in unit.slots:
                slot.refresh()
        return result

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes scatter gradients (True) or keep them whole and add them up."""
        for unit in units_of(self) if recurse else [self._fsdp_unit]:
            unit.syncs = requires_gradient_sync

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Without effect: every backward pass ends by itself."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether whole values are freed between forward and backward."""
        for unit in units_of(self) if recurse else [self._fsdp_unit]:
            unit.reshard = reshard_after_forward

    set_reshard_after_backward = set_requires_all_reduce = set_is_last_backward

    def set_modules_to_forward_prefetch(self, modules) -> None:
        """Without effect: the unit that came next last time is gathered ahead."""

    set_modules_to_backward_prefetch = set_modules_to_forward_prefetch


class _Gathering:
    def __init__(self, unit: Unit):
        self._unit = unit

    def wait(self) -> None:
        """Until the whole parameters are in their places."""
        self._unit.enter_forward()


def _wrap(module: Module, unit: Unit, name: str) -> None:
    inner = getattr(module, name)

    @functools.wraps(inner)
    def forward(*args, **kwargs):
        return _run(module, unit, inner, args, kwargs)

    module.__dict__[name] = forward


def fully_shard(module, *, mesh=None, reshard_after_forward=None, shard_placement_fn=None, mp_policy: MixedPrecisionPolicy = _PLAIN,
                offload_policy: OffloadPolicy | None = None, ignored_params=None):
    """Cuts the module's parameters among the ranks; call it on inner modules first, on the model last.

    Args:
        module: the module or a list of modules that become one unit each; its parameters must be equal on all ranks.
        mesh: a DeviceMesh or a process group; the world. Of two dimensions, parameters are cut along the second, and the first has copies.
        reshard_after_forward: False keeps the whole parameters from forward to backward. Default: True, for the outermost unit False.
        mp_policy: dtypes while at work.
        offload_policy: without effect on the CPU, where pieces are in the host's memory.
        ignored_params: parameters that stay whole and whose gradients are not reduced.

    Returns the module, whose class is now a subclass of FSDPModule. Raises ValueError when it is a unit already, NotImplementedError for
    shard_placement_fn.
    """
    if shard_placement_fn is not None:
        raise NotImplementedError("fully_shard: parameters are cut along their first dimension: shard_placement_fn is not supported")
    if isinstance(module, (list, tuple)):
        return [fully_shard(m, mesh=mesh, reshard_after_forward=reshard_after_forward, mp_policy=mp_policy, offload_policy=offload_policy,
                            ignored_params=ignored_params)
                for m in module]
    if getattr(module, "_fsdp_unit", None) is not None:
        raise ValueError(f"fully_shard: {type(module).__name__} is sharded already")
    inner = units_of(module)
    root = Root()
    with no_grad():
        group, replicas = groups_of(mesh)
        unit = Unit(module, group, mp_policy, reshard_after_forward is not False, root, replicas, ignored_params or ())
    for other in inner:
        root.units.append(other)
        other.root = root
    module.__dict__["_fsdp_unit"] = unit
    cls = type(module)
    module.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
    _wrap(module, unit, "forward")
    return module


def register_fsdp_forward_method(module, method_name: str) -> None:
    """Makes another method one that finds whole parameters, as forward does."""
    if getattr(module, "_fsdp_unit", None) is not None:
        _wrap(module, module._fsdp_unit, method_name)
