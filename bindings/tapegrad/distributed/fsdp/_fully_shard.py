"""fully_shard: a module's parameters become pieces, one per rank, that are gathered while the module runs."""

import functools
from contextlib import nullcontext

from ... import accelerator, is_grad_enabled, no_grad
from ...autograd.graph import saved_tensors_hooks
from ...nn import Module
from ...utils.checkpoint import inside
from ..utils import _cast_floats, _cast_forward_inputs
from ._api import MixedPrecisionPolicy, OffloadPolicy
from ._pieces import mesh_of
from ._units import Unit, units_of

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]

_PLAIN = MixedPrecisionPolicy()


def _run(unit: Unit, forward, args, kwargs):
    policy = unit.policy
    if policy.cast_forward_inputs:
        args, kwargs = _cast_forward_inputs(policy.param_dtype, *args, **kwargs)
    unit.enter_forward()
    unit.depth += 1  # a method may call another one
    recorded = is_grad_enabled()
    try:
        with inside(unit.standing), saved_tensors_hooks(unit.pack, unit.unpack) if recorded and unit.frees else nullcontext():
            result = forward(*args, **kwargs)
    finally:
        unit.depth -= 1
        if unit.depth == 0:
            unit.leave_forward(recorded)
    return _cast_floats(policy.output_dtype, result)


class UnshardHandle:
    """A gathering that unshard(async_op=True) has begun."""

    def __init__(self, unit: Unit):
        self._unit = unit

    def wait(self) -> None:
        """Until the whole parameters are in their places."""
        self._unit.enter_forward()


class FSDPModule:
    """What fully_shard adds to a module's class."""

    def __new__(cls, *args, **kwargs):
        """A module made of this one's class, as slices of containers are, is one of the class before."""
        before = cls.__mro__[2]
        made = before.__new__(before, *args, **kwargs)
        made.__init__(*args, **kwargs)
        return made

    def __deepcopy__(self, memo):
        raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Puts the whole parameters of this unit in their places until reshard() or the end of the next forward pass.

        async_op: only begins to gather them; they are in their places after wait() of what it gives, or in the forward pass.
        """
        self._fsdp_unit.begin_gathering()
        if async_op:
            return UnshardHandle(self._fsdp_unit)
        self._fsdp_unit.enter_forward()
        return None

    def reshard(self) -> None:
        """Puts the pieces back and frees the whole values of this unit."""
        self._fsdp_unit.to_pieces()

    def _apply(self, fn, recurse=True):
        units = units_of(self)
        for unit in units:
            unit.to_pieces()
        result = super()._apply(fn, recurse)
        for unit in units:
            unit.refresh()
        return result

    def _units(self, recurse: bool) -> list:
        return units_of(self) if recurse else [self._fsdp_unit]

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes scatter gradients (True) or keep them whole and add them up."""
        for unit in self._units(recurse):
            unit.syncs = unit.all_reduces = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether gradients are added up over the copies of the model (mesh of two dimensions), or kept by each copy until they are."""
        for unit in self._units(recurse):
            unit.all_reduces = requires_all_reduce

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Without effect: every backward pass ends by itself."""

    def reset_iter_state(self) -> None:
        """Without need: a pass that failed leaves nothing behind. Forgets gradients that were not synchronised."""
        self._fsdp_unit.root.forget()

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether whole values are freed between forward and backward. Raises ValueError for what is no bool."""
        if not isinstance(reshard_after_forward, bool):
            raise ValueError(f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}")
        for unit in self._units(recurse):
            unit.set_reshard(reshard_after_forward)

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether whole values are freed after the backward pass; the next forward pass uses those that are there, unless the pieces have
        changed."""
        for unit in self._units(recurse):
            unit.reshards_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether this unit is gathered ahead in backward; where its values are needed they are gathered in any case."""
        self._fsdp_unit.gathers_in_backward = unshard_in_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Gradients are the ranks' sum divided by factor, in place of their mean."""
        self._fsdp_unit.divisor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def _set_prefetches(self, step: int, modules, who: str) -> None:
        wrong = [type(m).__name__ for m in modules if not isinstance(m, FSDPModule)]
        if wrong:
            raise ValueError(f"{who}: expected modules that fully_shard was called on: got {', '.join(wrong)}")
        self._fsdp_unit.prefetches[step] = [m._fsdp_unit for m in modules]

    def set_modules_to_forward_prefetch(self, modules: list) -> None:
        """Modules whose gathering begins when this one's is done in forward, in place of the one that came next the last time.

        Raises ValueError for modules that are not sharded.
        """
        self._set_prefetches(1, modules, "set_modules_to_forward_prefetch")

    def set_modules_to_backward_prefetch(self, modules: list) -> None:
        """The same in backward."""
        self._set_prefetches(-1, modules, "set_modules_to_backward_prefetch")


def _wrap(module: Module, unit: Unit, name: str) -> None:
    inner = getattr(module, name)

    @functools.wraps(inner)
    def forward(*args, **kwargs):
        return _run(unit, inner, args, kwargs)

    module.__dict__[name] = forward


def device_type_of(module: Module) -> str:
    """Where the parameters are, or will be."""
    found = next((p.device.type for p in module.parameters() if not p.is_meta), None)
    chosen = accelerator.current_accelerator(check_available=True) if found is None else None
    return found or (chosen.type if chosen is not None else "cpu")


def fully_shard(module, *, mesh=None, reshard_after_forward: bool | int | None = None, shard_placement_fn=None,
                mp_policy: MixedPrecisionPolicy = _PLAIN, offload_policy: OffloadPolicy | None = None, ignored_params=None):
    """Cuts the module's parameters among the ranks; call it on inner modules first, on the model last.

    Args:
        module: the module, or a list of modules whose parameters become one unit; parameters must be equal on all ranks.
        mesh: a DeviceMesh or a process group; the world. Of two dimensions, parameters are cut along the second, and the first has copies.
            Parameters that are DTensors over other dimensions of the mesh that it was cut from are cut further.
        reshard_after_forward: False keeps the whole parameters from forward to backward; a number keeps of each group of so many ranks
            a share on each, so that only these exchange them in backward. Default: True, for the outermost unit False.
        shard_placement_fn: parameter -> the Shard that says along which dimension it is cut, or None for the first.
        mp_policy: dtypes while at work.
        offload_policy: without effect on the CPU, where pieces are in the host's memory.
        ignored_params: parameters that stay whole and whose gradients are not reduced.

    Returns the module (or the list), whose class is now a subclass of FSDPModule. Raises ValueError when it is a unit already, has a
    parameter that another unit has, or for a number that does not divide the ranks; NotImplementedError, IndexError for placements that
    cannot be.
    """
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    for m in modules:
        if getattr(m, "_fsdp_unit", None) is not None:
            raise ValueError(f"fully_shard: {type(m).__name__} is sharded already")
    inner = list(dict.fromkeys(u for m in modules for u in units_of(m)))
    with no_grad():
        unit = Unit(modules, mesh_of(mesh, device_type_of(modules[0])), mp_policy, reshard_after_forward, inner, shard_placement_fn, ignored_params or ())
    for m in modules:
        m.__dict__["_fsdp_unit"] = unit
        cls = type(m)
        m.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
        _wrap(m, unit, "forward")
    return module


def register_fsdp_forward_method(module, method_name: str) -> None:
    """Makes another method one that finds whole parameters, as forward does. Raises ValueError for a method that is not there."""
    if getattr(module, "_fsdp_unit", None) is not None:
        if not hasattr(module, method_name):
            raise ValueError(f"{type(module)} does not have a method {method_name}")
        _wrap(module, module._fsdp_unit, method_name)
