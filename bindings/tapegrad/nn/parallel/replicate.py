"""A module on several devices."""

import importlib

from ..module import Module

__all__ = ["replicate"]


class _Replica(Module):
    """A module with copies of its parameters and buffers on another device; gradients go to the module's own parameters, and what
    happens to the copies of the buffers is forgotten."""

    def __init__(self, network, device, detach: bool):
        super().__init__()
        self._network = (network,)  # not a part of this
        self._tensors = {}
        for entries in (network.named_parameters(), network.named_buffers()):
            for name, t in entries:
                self._tensors[name] = (t.detach() if detach else t).to(device)
        self.training = network.training

    def forward(self, *inputs, **kwargs):
        call = importlib.import_module("tapegrad.func").functional_call
        return call(self._network[0], self._tensors, inputs, kwargs)


def replicate(network, devices, detach: bool = False) -> list:
    """The module for the first device, on which it has to be, and a replica of it for each other one. detach: without gradients."""
    root = importlib.import_module("tapegrad")
    places = [root.device("cuda", d) if isinstance(d, int) else root.device(d) for d in devices]
    return [network, *(_Replica(network, place, detach) for place in places[1:])]
