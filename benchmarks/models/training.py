"""Steps of training and of inference of a model, on a CPU or a GPU, in either library."""

import contextlib

import numpy as np

from . import Model
from .sizes import Sizes

RATE = 1e-3  # of every optimizer


def tensors(lib, model: Model, sizes: Sizes, n: int):
    """(inputs, target): the same numbers in every library."""
    inputs, target = model.batch(sizes, np.random.default_rng(1), n)
    inputs, target = (lib.from_numpy(np.ascontiguousarray(a)).to(sizes.device) for a in inputs), lib.from_numpy(target).to(sizes.device)
    return tuple(inputs), target


def common_numbers(shapes):
    """An array for each (name, shape), which depends on nothing but these and their order."""
    numbers = np.random.default_rng(2)
    for name, shape in shapes:
        if len(shape) == 1 and name.endswith("weight"):  # of a norm
            yield np.ones(shape, np.float32)
        else:
            bound = 0.1 if len(shape) == 1 else (3 / np.prod(shape[1:])) ** 0.5
            yield (numbers.random(shape, np.float32) * 2 - 1) * np.float32(bound)


def fill(lib, module) -> None:
    """Gives every parameter the numbers that are the same in every library."""
    named = dict(module.named_parameters())
    with lib.no_grad():
        for p, numbers in zip(named.values(), common_numbers((name, tuple(p.shape)) for name, p in named.items()), strict=True):
            p.copy_(lib.from_numpy(numbers))


def optimizers(lib, model: Model, module, graphed: bool = False) -> list:
    """The model's optimizers; sparse gradients have one of their own."""
    if model.optimizer == "SGD":
        return [lib.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)]
    options = {"capturable": True} if graphed else {}
    if model.optimizer == "SparseAdam":
        rows = [p for m in module.modules() if isinstance(m, lib.nn.Embedding) for p in m.parameters()]
        rest = [p for p in module.parameters() if not any(p is r for r in rows)]
        return [lib.optim.SparseAdam(rows, lr=RATE), lib.optim.Adam(rest, lr=RATE, **options)]
    return [getattr(lib.optim, model.optimizer)(module.parameters(), lr=RATE, **options)]


def lowered(lib, device: str, dtype: str, **options):
    return contextlib.nullcontext() if dtype in ("float32", "float64") else lib.autocast(device, dtype=getattr(lib, dtype), **options)


class Run:
    """A model on one batch that stays where it is. `step()` trains: forward and backward pass and the optimizers, and gives the
    loss; `infer()` is the forward pass alone. `dtype`: float32; float64, which tells models apart that only round differently;
    bfloat16, under autocast. `wrap` changes the module that is called, as compile does."""

    def __init__(self, lib, model: Model, sizes: Sizes, n: int, dtype: str = "float32", training: bool = True, graphed: bool = False, wrap=lambda m: m):
        self.lib, self.model, self.sizes, self.n, self.dtype, self.graphed = lib, model, sizes, n, dtype, graphed
        lib.manual_seed(0)
        with lib.device(sizes.device):
            self.module = model.build(lib, sizes)
        self.inputs, self.target = tensors(lib, model, sizes, n)
        if dtype == "float64":
            self.module.double()
            *self.inputs, self.target = (t.double() if t.is_floating_point() else t for t in (*self.inputs, self.target))
        self.module.train(training)
        self.called = wrap(self.module)
        self.optimizers = optimizers(lib, model, self.module, graphed) if training else []

    def refill(self) -> None:
        """Begins again with the numbers that are the same in every library."""
        fill(self.lib, self.module)
        self.optimizers = optimizers(self.lib, self.model, self.module, self.graphed) if self.optimizers else []

    def clear(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def train(self):
        with lowered(self.lib, self.sizes.device, self.dtype, cache_enabled=not self.graphed):
            out = self.called(*self.inputs)
            if self.model.loss == "cross_entropy":
                out = out.reshape(-1, out.shape[-1])
            elif self.dtype == "bfloat16":
                out = out.float()
            loss = getattr(self.lib.nn.functional, self.model.loss)(out, self.target)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def step(self):
        self.clear()
        return self.train()

    def infer(self):
        with self.lib.inference_mode(), lowered(self.lib, self.sizes.device, self.dtype):
            return self.called(*self.inputs)


def losses(run: Run, steps: int = 3) -> list[float]:
    """The losses of the first steps from the common weights, and between them the length of the first gradient: what a wrong
    model, gradient or optimizer changes."""
    run.refill()
    found = []
    for i in range(steps):
        found.append(run.step().item())
        if i == 0:
            squares = [(p.grad.coalesce().values() if p.grad.is_sparse else p.grad).double().square().sum().item() for p in run.module.parameters() if p.grad is not None]
            found.append(sum(squares) ** 0.5)
    return found
