"""DataParallel: one process with several devices, each with its part of every batch. DistributedDataParallel is quicker: here the model is
copied to all devices in every forward pass."""

import importlib
import itertools

from ..module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _index(device) -> int:
    root = importlib.import_module("tapegrad")
    if isinstance(device, int):
        return device
    device = root.device(device)
    if device.type != "cuda":
        raise ValueError(f"DataParallel: expected a CUDA device: got {device}")
    return root.cuda.current_device() if device.index is None else device.index


class DataParallel(Module):
    """Calls the module on all devices, with parts of the inputs along `dim`, and puts the results together on output_device.

    Without a CUDA device it calls the module. The module has to be on device_ids[0] (None: all devices); with one device it is moved there. The
    names in the state are PyTorch's, `module.` first.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim: int = 0) -> None:
        super().__init__()
        cuda = importlib.import_module("tapegrad").cuda
        self.dim, self.module = dim, module
        self.device_ids, self.output_device = [], output_device
        if not cuda.is_available():
            return
        self.device_ids = [_index(d) for d in (range(cuda.device_count()) if device_ids is None else device_ids)]
        self.output_device = self.device_ids[0] if output_device is None else output_device
        if len(self.device_ids) == 1:
            self.module.to(self._place(self.device_ids[0]))

    @staticmethod
    def _place(index):
        root = importlib.import_module("tapegrad")
        return root.device("cuda", index) if isinstance(index, int) else root.device(index)

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        first = self._place(self.device_ids[0])
        for t in itertools.chain(self.module.parameters(), self.module.buffers()):
            if t.device != first:
                raise RuntimeError(f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of them on device: "
                                   f"{t.device}")
        rows, names = scatter_kwargs(inputs, kwargs, [self._place(d) for d in self.device_ids], self.dim)
        if not rows:
            rows, names = ((),), ({},)
        if len(rows) == 1:
            return self.module(*rows[0], **names[0])
        is_grad_enabled = importlib.import_module("tapegrad").is_grad_enabled
        replicas = replicate(self.module, self.device_ids[:len(rows)], not is_grad_enabled())
        return gather(parallel_apply(replicas, rows, names), self._place(self.output_device), self.dim)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim: int = 0, module_kwargs=None):
    """module(*inputs, **module_kwargs) on several devices."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
