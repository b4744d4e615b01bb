"""What a rank does in the tests of DistributedDataParallel, written on the names that PyTorch and tapegrad share: each scenario runs through
both libraries, as several processes, and gives arrays to compare.
"""

import importlib
import types

import numpy as np


def library(name: str):
    """The parts of a library by short names."""
    root = importlib.import_module(name)
    load = importlib.import_module
    return types.SimpleNamespace(
        name=name, root=root, nn=root.nn, dist=load(f"{name}.distributed"), F=root.nn.functional, DDP=load(f"{name}.nn.parallel").DistributedDataParallel)


def values(shape, seed: int) -> np.ndarray:
    """Numbers that both libraries begin with."""
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def fill(lib, model, seed: int = 1) -> None:
    """Weights that depend on the seed only."""
    with lib.root.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(lib.root.from_numpy(values(tuple(p.shape), 100 * seed + i)).to(p.dtype) * 0.4)


def wrapped(lib, model, seed: int = 1, **options):
    """DistributedDataParallel around the model, which begins with weights of the seed."""
    fill(lib, model, seed)
    return lib.DDP(model, **options)


def mlp(lib):
    nn = lib.nn
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def half_used(lib):
    """Of its two layers it uses only the first one, unless both are asked for."""
    nn = lib.nn

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.left = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x, both):
            return self.used(x) + self.left(x) if both else self.used(x)

    return Half()


def batch(lib, step: int, rank: int, rows: int = 4):
    return lib.root.from_numpy(values((rows, 6), 1000 + 10 * step + rank)), lib.root.from_numpy(values((rows, 3), 5000 + 10 * step + rank))


def arrays(tensors) -> list:
    return [None if t is None else t.detach().float().numpy().copy() if not t.is_sparse else t.detach().to_dense().numpy().copy() for t in tensors]


def grads(model) -> list:
    return arrays(p.grad for p in model.parameters())


def state(model) -> list:
    return arrays(model.state_dict().values())


def train(lib, ddp, rank: int, steps: int = 3, lr: float = 0.1, loss_of=None, set_to_none: bool = True) -> list:
    """Steps of SGD; the losses."""
    optimizer = lib.root.optim.SGD(ddp.parameters(), lr=lr, momentum=0.5)
    losses = []
    for step in range(steps):
        x, y = batch(lib, step, rank)
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = lib.F.mse_loss(ddp(x), y) if loss_of is None else loss_of(ddp, x, y, step)
        loss.backward()
        optimizer.step()
        losses.append(np.float32(loss.item()))
    return losses


# Scenarios: (lib, rank, size) -> arrays.
def plain(lib, rank, size):
    model = mlp(lib)
    ddp = wrapped(lib, model, 1 + rank, bucket_cap_mb=0.001)  # rank 0's go to all
    start = state(model)
    return [start, train(lib, ddp, rank), state(model), grads(model)]


def keeps_gradients(lib, rank, size):
    model = mlp(lib)
    ddp = wrapped(lib, model)
    return [train(lib, ddp, rank, set_to_none=False), state(model), grads(model)]


def no_sync(lib, rank, size):
    model = mlp(lib)
    ddp = wrapped(lib, model)
    found = []
    with ddp.no_sync():
        for step in range(2):
            x, y = batch(lib, step, rank)
            lib.F.mse_loss(ddp(x), y).backward()
    found.append(grads(model))
    x, y = batch(lib, 2, rank)
    lib.F.mse_loss(ddp(x), y).backward()
    found.append(grads(model))
    lib.F.mse_loss(ddp(x), y).backward()  # adds up what was reduced
    found.append(grads(model))
    return found


def branches(lib):
    nn = lib.nn

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.left, self.right, self.never = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x, left: bool):
            h = self.first(x).tanh()
            return (self.left if left else self.right)(h)

    return Branches()


def unused(lib, rank, size):
    """A part without use, one that all ranks use, one that only rank 0 uses."""
    model = branches(lib)
    ddp = wrapped(lib, model, find_unused_parameters=True)
    found = []
    for step in range(3):
        ddp.zero_grad()
        x, y = batch(lib, step, rank)
        lib.F.mse_loss(ddp(x, step == 2 or rank == 0), y).backward()
        found.append(grads(model))
    return found


def dtypes(lib, rank, size):
    nn = lib.nn

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(5, 5).double(), nn.Linear(5, 3)

        def forward(self, x):
            return self.c(self.b(self.a(x).double()).float())

    model = Mixed()
    ddp = wrapped(lib, model)
    return [train(lib, ddp, rank), state(model), grads(model)]


def buffers(lib, rank, size):
    nn = lib.nn
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    ddp = wrapped(lib, model)
    losses = train(lib, ddp, rank)
    ddp.eval()
    with lib.root.no_grad():
        out = ddp(batch(lib, 9, 0)[0])
    return [losses, state(model), arrays([out])]


def tied(lib, rank, size):
    nn = lib.nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return {"out": [self.out(self.b(self.a(x).tanh()))], "n": 3}

    model = Tied()
    ddp = wrapped(lib, model)
    losses = train(lib, ddp, rank, loss_of=lambda ddp, x, y, step: lib.F.mse_loss(ddp(x)["out"][0], y))
    return [losses, state(model), grads(model)]


def sparse(lib, rank, size):
    nn = lib.nn
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))
    ddp = wrapped(lib, model)
    found = []
    for step in range(2):
        ddp.zero_grad()
        index = lib.root.tensor([[1 + rank, 2], [step, 2], [5, 1]])
        ddp(index).square().sum().backward()
        found.append(grads(model))
    return found


def ignored(lib, rank, size):
    model = mlp(lib)
    fill(lib, model, 1 + rank)
    lib.DDP._set_params_and_buffers_to_ignore_for_model(model, ["2.weight", "2.bias"])
    ddp = lib.DDP(model)
    x, y = batch(lib, 0, rank)
    lib.F.mse_loss(ddp(x), y).backward()
    return [state(model), grads(model)]


def static_graph(lib, rank, size):
    """A part that is used in two reentrant checkpoints, and one that is never used."""
    nn, checkpoint = lib.nn, importlib.import_module(f"{lib.name}.utils.checkpoint").checkpoint

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out, self.never = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(2, 2)

        def forward(self, x):
            x = x.clone().requires_grad_()
            for _ in range(2):
                x = checkpoint(lambda x: self.inner(x).tanh(), x, use_reentrant=True)
            return self.out(x)

    model = Twice()
    ddp = wrapped(lib, model, static_graph=True)
    return [train(lib, ddp, rank), state(model), grads(model)]


def _hooked(lib, rank, hook, make_state=lambda lib: None, steps=3, **settings):
    model = mlp(lib)
    ddp = wrapped(lib, model, **settings)
    ddp.register_comm_hook(make_state(lib), hook)
    return [train(lib, ddp, rank, steps), state(model), grads(model)]


def _hooks(lib, name: str):
    return importlib.import_module(f"{lib.name}.distributed.algorithms.ddp_comm_hooks.{name}")


def hook_allreduce(lib, rank, size):
    return _hooked(lib, rank, _hooks(lib, "default_hooks").allreduce_hook)


def hook_fp16(lib, rank, size):
    return _hooked(lib, rank, _hooks(lib, "default_hooks").fp16_compress_hook)


def hook_bf16(lib, rank, size):
    hook = _hooks(lib, "default_hooks").bf16_compress_hook
    return _hooked(lib, rank, lambda state, bucket: hook(state, bucket))  # by its name PyTorch refuses it without NCCL


def hook_wrapped(lib, rank, size):
    hooks = _hooks(lib, "default_hooks")
    hook = hooks.bf16_compress_wrapper(hooks.allreduce_hook)
    return _hooked(lib, rank, lambda state, bucket: hook(state, bucket))


def hook_chain(lib, rank, size):
    """A hook whose second step is a collective, too."""
    def hook(state, bucket):
        first = lib.dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def again(future):
            total = future.value()[0]
            return total.mul_(2.0 / lib.dist.get_world_size()) if lib.name == "torch" else _twice(lib, total)

        return first.then(again)

    return _hooked(lib, rank, hook, bucket_cap_mb=0.001)


def _twice(lib, total):
    copy = total.clone().div_(lib.dist.get_world_size())
    lib.dist.all_reduce(copy)  # of equal numbers: the same times the number of ranks
    return total.copy_(copy).mul_(2.0 / lib.dist.get_world_size())


def local_sgd(lib, rank, size):
    hooks = _hooks(lib, "post_localSGD_hook")
    averagers = importlib.import_module(f"{lib.name}.distributed.algorithms.model_averaging.averagers")
    model = mlp(lib)
    ddp = wrapped(lib, model)
    ddp.register_comm_hook(hooks.PostLocalSGDState(None, None, 2, post_local_gradient_allreduce=False), hooks.post_localSGD_hook)
    optimizer = importlib.import_module(f"{lib.name}.distributed.optim").PostLocalSGDOptimizer(
        lib.root.optim.SGD(ddp.parameters(), lr=0.1), averagers.PeriodicModelAverager(period=2, warmup_steps=2))
    found = []
    for step in range(6):
        x, y = batch(lib, step, rank)
        optimizer.zero_grad()
        lib.F.mse_loss(ddp(x), y).backward()
        optimizer.step()
        found.append(state(model))
    return [*found, [np.float32(optimizer.state_dict()["step"])]]


def _uneven(lib, rank, divide):
    nn = lib.nn
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    ddp = wrapped(lib, model, bucket_cap_mb=0.0001)
    with ddp.join(divide_by_initial_world_size=divide):
        train(lib, ddp, rank, steps=1 + 2 * rank)
    return [state(model)]


def join_all(lib, rank, size):
    return _uneven(lib, rank, True)


def join_active(lib, rank, size):
    return _uneven(lib, rank, False)


def run(rank: int, size: int, name: str, scenarios: list, store: str) -> dict:
    """Scenarios as one rank of a world of a library, one after the other."""
    lib = library(name)
    if name == "torch":
        lib.root.set_num_threads(1)
        lib.dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    found = {}
    for scenario in scenarios:
        found[scenario] = globals()[scenario](lib, rank, size)
        lib.dist.barrier()
    if name == "torch":
        lib.dist.destroy_process_group()
    return found


PEERS = [plain, keeps_gradients, no_sync, unused, dtypes, buffers, tied, sparse, ignored, static_graph, hook_allreduce, hook_fp16, hook_bf16,
         hook_wrapped, hook_chain, local_sgd, join_all, join_active]
