"""Modules whose parameters are DTensors: layers, optimizers, their states and files give what one process gives."""

import copy
import io

import pytest
import tapegrad as tg
from distributed.ranks import results, run_ranks
from tapegrad import nn, optim
from tapegrad.distributed import init_device_mesh
from tapegrad.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

R, S0, S1 = Replicate(), Shard(0), Shard(1)
LAYOUTS = {1: [[R], [S0], [S1]], 2: [[R, R], [S0, R], [S0, S1], [S0, S0], [R, S0]]}
MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 5), nn.ReLU()), (4, 6)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), (4, 6)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)), (4, 3, 4, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 6), (4, 6, 3)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 3, 8)),
    "prelu": (lambda: nn.PReLU(6), (4, 6)),
}
OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), "AdamW": lambda p: optim.AdamW(p, lr=0.01, amsgrad=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1), "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, centered=True),
    "Adadelta": optim.Adadelta, "Rprop": optim.Rprop, "NAdam": lambda p: optim.NAdam(p, lr=0.01), "ASGD": optim.ASGD,
    # Steps over whole matrices or all parameters at once. Muon counts in bfloat16, where the order of sums shows.
    "Muon": lambda p: optim.Muon([q for q in p if q.ndim == 2], lr=0.01), "Adafactor": lambda p: optim.Adafactor(p, lr=0.01),
    "LBFGS": lambda p: optim.LBFGS(p, lr=0.5, max_iter=3),
}


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def same(a, b, tolerance=1e-9) -> bool:
    return a.shape == b.shape and bool(tg.allclose(whole(a).detach(), whole(b).detach(), rtol=tolerance, atol=tolerance))


def spread(model, mesh, placements):
    """A copy whose parameters lie over the mesh, as far as they have the dimensions."""
    def cut(name, module, mesh):
        for key, value in list(module._parameters.items()):
            if value is not None:
                fitting = [p if not isinstance(p, Shard) or p.dim < value.dim() else R for p in placements]
                module.register_parameter(key, nn.Parameter(distribute_tensor(value.detach(), mesh, fitting)))

    return distribute_module(copy.deepcopy(model), mesh, cut)


def check_modules(rank, size, shape):
    mesh, wrong = init_device_mesh("cpu", shape), []
    for name, (make, sizes) in MODULES.items():
        for placements in LAYOUTS[len(shape)]:
            for of_input in ([R] * len(shape), [S0] + [R] * (len(shape) - 1)):
                tg.manual_seed(3)
                model, x = make().double(), tg.randn(sizes, dtype=tg.float64)
                cut = spread(model, mesh, placements)
                y, z = model(x), cut(distribute_tensor(x, mesh, of_input))
                weights = tg.linspace(0.5, 2, y.numel(), dtype=tg.float64).reshape(y.shape)
                (y * weights).sum().backward()
                (z * distribute_tensor(weights, mesh, [R] * len(shape))).sum().backward()
                grads = zip(model.parameters(), cut.parameters(), strict=True)
                if not same(z, y) or not all(same(b.grad, a.grad) for a, b in grads):
                    wrong.append((name, str(placements), str(of_input)))
    return wrong


def check_optimizers(rank, size, shape):
    mesh, wrong = init_device_mesh("cpu", shape), []
    for name, make in OPTIMIZERS.items():
        tolerance = 1e-2 if name == "Muon" else 1e-7
        for placements in LAYOUTS[len(shape)]:
            tg.manual_seed(3)
            model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5)).double(), tg.randn(4, 6, dtype=tg.float64)
            pairs = [(model, x), (spread(model, mesh, placements), distribute_tensor(x, mesh, [R] * len(shape)))]
            optimizers = [make(list(m.parameters())) for m, _ in pairs]

            def steps(count, pairs=pairs, optimizers=optimizers, name=name):
                for (m, inputs), optimizer in zip(pairs, optimizers, strict=True):
                    def closure(m=m, inputs=inputs, optimizer=optimizer):
                        optimizer.zero_grad()
                        loss = (m(inputs) ** 2).mean()
                        loss.backward()
                        if name != "LBFGS":
                            nn.utils.clip_grad_norm_(m.parameters(), 0.05)
                        return loss

                    for _ in range(count):
                        optimizer.step(closure)
                return all(same(b, a, tolerance) for a, b in zip(*(m.parameters() for m, _ in pairs), strict=True))

            good = steps(3)
            # The state goes through a file into an optimizer of a model that was saved, too.
            file = io.BytesIO()
            tg.save({"model": pairs[1][0].state_dict(), "optimizer": optimizers[1].state_dict()}, file)
            file.seek(0)
            saved = tg.load(file)
            again = spread(model, mesh, placements)
            again.load_state_dict(saved["model"])
            pairs[1] = (again, pairs[1][1])
            optimizers[1] = make(list(again.parameters()))
            optimizers[1].load_state_dict(saved["optimizer"])
            if not good or not steps(2):
                wrong.append((name, str(placements), good))
    return wrong


@pytest.mark.parametrize(("size", "shape"), [(2, (2,)), pytest.param(3, (3,), marks=pytest.mark.long), pytest.param(4, (2, 2), marks=pytest.mark.long)])
@pytest.mark.parametrize("check", [check_modules, check_optimizers])
def test_modules_and_optimizers(size, shape, check):
    assert results(run_ranks(size, check, shape, start="fork", timeout=120)) == [[]] * size


def refusals(rank, size):
    mesh, said = init_device_mesh("cpu", (size,)), []
    d = distribute_tensor(tg.arange(6.0).reshape(3, 2), mesh, [S0])
    file = io.BytesIO()
    tg.save({"d": d, "p": nn.Parameter(d)}, file)
    data = file.getvalue()
    back = tg.load(io.BytesIO(data))
    assert type(back["d"]) is DTensor and isinstance(back["p"], nn.Parameter) and same(back["p"], d) and back["d"].placements == (S0,)
    files = [None] * size
    tg.distributed.all_gather_object(files, data)
    with pytest.raises(ValueError, match="each rank reads the file that it wrote"):
        tg.load(io.BytesIO(files[1 - rank]))
    with pytest.raises(NotImplementedError, match="vmap: the parts of a DTensor"):
        tg.vmap(lambda row: row.sum())(d)
    tg.distributed.destroy_process_group()
    with pytest.raises(tg.serialization.FileError if hasattr(tg.serialization, "FileError") else RuntimeError, match="init_process_group"):
        tg.load(io.BytesIO(data))
    return said


def test_files_of_other_ranks_and_what_is_refused():
    assert results(run_ranks(2, refusals, start="fork", timeout=60)) == [[], []]
