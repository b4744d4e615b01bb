"""A module on another RPC worker."""

from __future__ import annotations

from .... import device as _device
from ....nn import Module
from ... import rpc

__all__ = ["RemoteModule"]

_KEPT = ("on", "device", "is_device_map_set", "is_scriptable", "module_rref")  # what travels
_REFUSED = ("add_module", "apply", "bfloat16", "buffers", "children", "cpu", "cuda", "double", "extra_repr", "float", "half", "ipu",
            "load_state_dict", "modules", "named_buffers", "named_children", "named_modules", "named_parameters", "register_backward_hook",
            "register_buffer", "register_forward_hook", "register_forward_pre_hook", "register_parameter", "requires_grad_", "share_memory",
            "state_dict", "to", "type", "xpu", "zero_grad")


def _place_of(text: str) -> tuple:
    """Worker (name or rank) and device of "worker/device", "rank:1/device" or "worker"; the device is the CPU where it is not said."""
    if not isinstance(text, str):
        raise ValueError(f"RemoteModule: expected 'worker/device' or 'rank:number/device': got {text!r}")
    worker, slash, place = text.partition("/")
    if not worker or slash and not place or "/" in place:
        raise ValueError(f"Could not parse remote_device: {text}. The valid format is '<workername>/<device>' or 'rank:<rank>/<device>' or "
                         "'<device>'")
    if worker.startswith("rank:"):
        if not worker[5:].isdigit():
            raise ValueError(f"Could not parse remote_device: {text}: the rank is no number")
        worker = int(worker[5:])
    return worker, str(_device(place or "cpu"))


def _make(module_cls, args: tuple, kwargs: dict, place: str) -> Module:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, Module):
        raise ValueError("Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it returns an instance of "
                         f"{type(module)}.")
    return module.to(place)


def _parameters(module_rref, recurse: bool) -> list:
    return [rpc.RRef(p) for p in module_rref.local_value().parameters(recurse)]


def _forward(module_rref, place: str, back: bool, args: tuple, kwargs: dict):
    """The forward pass on the worker; tensors go to the module's device, results come back to the CPU unless there is a device map."""
    from ....utils._pytree import tree_map

    def moved(value, where):
        return tree_map(lambda x: x.to(where) if hasattr(x, "to") and hasattr(x, "device") else x, value)

    module = module_rref.local_value()
    if place == "cpu":
        return module(*args, **kwargs)
    result = module(*moved(args, place), **moved(kwargs, place))
    return moved(result, "cpu") if back else result


class RemoteModule(Module):
    """A module that lies on another worker and is called from here, with gradients in a context of distributed.autograd.

    Args:
        remote_device: "worker/device" or "rank:number/device"; without a device, the CPU.
        module_cls: the class of the module, which the worker finds under the same name.
        args, kwargs: of the class.

    It may be an argument of calls, and is the same module there. What modules have beside `forward`, `train` and `eval` raises ValueError.
    """

    def __init__(self, remote_device: str, module_cls: type, args: tuple | None = None, kwargs: dict | None = None,
                 _module_interface_cls=None) -> None:
        super().__init__()
        if not rpc._is_current_rpc_agent_set():
            raise AssertionError("RemoteModule only works in RPC.")
        if _module_interface_cls is not None:
            raise ValueError("RemoteModule: _module_interface_cls: there is no TorchScript here")
        self.on, self.device = _place_of(remote_device)
        agent = rpc._get_current_rpc_agent()
        self.is_device_map_set = agent.worker(self.on).name in agent.options.device_maps
        self.is_scriptable = False
        self.module_rref = rpc.remote(self.on, _make, args=(module_cls, tuple(args or ()), dict(kwargs or {}), self.device))

    def _arguments(self, args: tuple, kwargs: dict) -> tuple:
        return self.module_rref, self.device, not self.is_device_map_set, args, kwargs

    def forward(self, *args, **kwargs):
        """What the module's forward pass gives; waits for it."""
        return rpc.rpc_sync(self.module_rref.owner(), _forward, args=self._arguments(args, kwargs))

    def forward_async(self, *args, **kwargs):
        """A Future of what the module's forward pass gives."""
        return rpc.rpc_async(self.module_rref.owner(), _forward, args=self._arguments(args, kwargs))

    def remote_parameters(self, recurse: bool = True) -> list:
        """RRefs to the module's parameters, for a DistributedOptimizer."""
        return rpc.rpc_sync(self.on, _parameters, args=(self.module_rref, recurse))

    def get_module_rref(self):
        """An RRef to the module."""
        return self.module_rref

    def parameters(self, recurse: bool = True):
        raise ValueError("Method ``parameters`` not supported for RemoteModule. Please use ``remote_parameters`` instead.")

    def train(self, mode: bool = True) -> RemoteModule:
        """Sets the module's mode, there and here."""
        rpc.rpc_sync(self.on, _set_mode, args=(self.module_rref, mode))
        self.__dict__["training"] = mode
        return self

    def eval(self) -> RemoteModule:
        """train(False)."""
        return self.train(False)

    def _rpc_reduced(self, writer) -> dict:
        return {"$remotemodule": writer.encode([self.__dict__[name] for name in _KEPT])}

    def __getstate__(self):
        raise RuntimeError("Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC")

    def __setstate__(self, state):
        raise RuntimeError("Cannot unpickle RemoteModule in python pickler. RemoteModule can only be unpickled when using RPC")


def _set_mode(module_rref, mode: bool) -> None:
    module_rref.local_value().train(mode)


def _received(*kept) -> RemoteModule:
    made = RemoteModule.__new__(RemoteModule)
    Module.__init__(made)
    for name, value in zip(_KEPT, kept, strict=True):
        setattr(made, name, value)
    return made


def _refusal(name: str):
    def refuse(self, *args, **kwargs):
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule")

    refuse.__name__ = name
    return refuse


for _name in _REFUSED:
    setattr(RemoteModule, _name, _refusal(_name))
