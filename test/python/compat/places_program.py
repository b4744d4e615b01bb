"""Run on PyTorch and under `python -m tapegrad`: prints what modules classes and functions say that they are of, and what pickles name."""

import json
import pickle
import pickletools

import torch
import torch.optim.lr_scheduler
import torch.optim.swa_utils
import torch.utils.data

found = {}
for module in (torch.nn, torch.optim, torch.optim.lr_scheduler, torch.optim.swa_utils, torch.distributions, torch.distributions.transforms,
               torch.utils.data, torch.nn.modules.conv, torch.nn.modules.batchnorm, torch.nn.init, torch.nn.utils, torch.nn.utils.rnn, torch.nn.utils.parametrize):  # fmt: skip
    for name in dir(module):
        value = getattr(module, name)
        if getattr(value, "__module__", None) and (isinstance(value, type) or type(value).__name__ == "function") and value.__module__.startswith("torch"):
            found[f"{module.__name__.partition('.')[2]}.{name}"] = value.__module__
for name in ("Tensor", "no_grad", "enable_grad", "inference_mode", "device", "dtype", "Size", "FloatTensor", "FloatStorage", "UntypedStorage", "save", "load", "add", "cat"):
    found[name] = getattr(torch, name).__module__
for name in ("relu", "softmax", "cross_entropy", "pad", "interpolate"):
    found[f"F.{name}"] = getattr(torch.nn.functional, name).__module__
layers = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.BatchNorm2d(1), torch.nn.ReLU(), torch.nn.Linear(1, 1), torch.nn.LSTM(1, 1),
                             torch.nn.Transformer(4, 1, 1, 1, 4), torch.nn.MultiheadAttention(4, 1), torch.nn.Upsample(2), torch.nn.ModuleList())  # fmt: skip
values = (layers, torch.optim.AdamW(layers.parameters()), torch.optim.SGD(layers.parameters(), 0.1), torch.distributions.Normal(0.0, 1.0), torch.nn.Parameter(torch.ones(1)))
named = set()
for value in values:
    data = pickle.dumps(value, 2)
    named |= {argument.replace(" ", ".") for op, argument, _ in pickletools.genops(data) if op.name == "GLOBAL"}
    assert type(pickle.loads(data)) is type(value)
found["pickled"] = sorted(name for name in named if name.startswith(("torch.nn.modules.", "torch.optim.", "torch.distributions.", "torch.nn.functional.")))
print(json.dumps(found))
