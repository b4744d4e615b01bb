"""DistributedDataParallel applied to a module in place, without a wrapper."""

import functools

from ... import device as _device
from ...nn import Module
from ...nn.parallel import DistributedDataParallel
from ..fsdp import FSDPModule

__all__ = ["DDP", "replicate"]


class DDP:
    """What replicate adds to a module's class."""

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether the gradients of the next forward passes are reduced, or added up on each rank."""
        self._replica.synchronised = requires_gradient_sync

    def register_comm_hook(self, state, hook) -> None:
        """DistributedDataParallel's."""
        self._replica.hooks.append((state, hook))

    def __deepcopy__(self, memo):
        raise AssertionError("DDP does not support deepcopy. Please use state dict for serialization.")


class _Replica:
    """The DistributedDataParallel of a module, made with its first forward pass."""

    def __init__(self, module: Module, ignored: set, options: dict) -> None:
        self.module, self.ignored, self.options = module, ignored, options
        self.ddp = None
        self.synchronised = True
        self.hooks: list = []

    def ready(self) -> DistributedDataParallel:
        module = self.module
        if self.ddp is None:
            left_out = {id(p) for m in self.ignored for p in m.parameters()}
            names = [name for name, p in module.named_parameters() if id(p) in left_out]
            before = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [*before, *names])
            self.ddp = DistributedDataParallel(module, **self.options)
        while self.hooks:
            self.ddp.register_comm_hook(*self.hooks.pop(0))
        self.ddp.require_backward_grad_sync = self.synchronised
        return self.ddp


def replicate(module: Module, ignored_modules=None, **kwargs) -> Module:
    """Makes the module's forward passes those of DistributedDataParallel; returns it.

    Args:
        module: its class becomes a subclass of DDP here, which has `set_requires_gradient_sync` and `register_comm_hook`.
        ignored_modules: modules in it whose parameters are left alone.
        kwargs: of DistributedDataParallel, and `device_id`, an int or a device.

    Raises RuntimeError where it is sharded (`fully_shard`) or replicated already, and what DistributedDataParallel raises with the first forward
    pass.
    """
    if "device_id" in kwargs:
        place = kwargs.pop("device_id")
        if not isinstance(place, (int, _device)):
            raise RuntimeError(f"Expected device_id to be int or torch.device, but got {type(place)}")
        kwargs["device_ids"] = None if isinstance(place, _device) and place.type == "cpu" else [place]
    if isinstance(module, FSDPModule):
        raise RuntimeError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    if isinstance(module, DDP):
        raise RuntimeError(f"replicate: {type(module).__name__} is replicated already")
    replica = _Replica(module, set(ignored_modules or ()), kwargs)
    inner, cls = module.forward, type(module)

    @functools.wraps(inner)
    def forward(*inputs, **options):
        ddp = replica.ready()
        inputs, options, recorded = ddp._enter_forward(inputs, options)
        return ddp._leave_forward(inner(*inputs, **options), recorded)

    module.__dict__["_replica"] = replica
    module.__class__ = type(f"DDP{cls.__name__}", (DDP, cls), {"__module__": cls.__module__})
    module.__dict__["forward"] = forward
    return module
