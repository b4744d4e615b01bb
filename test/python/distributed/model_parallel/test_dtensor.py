"""DTensors: each operator, with each way in which its arguments may lie, gives what one process gives, gradients included."""

import itertools

import pytest
import tapegrad as tg
import tapegrad.nn.functional as F
from distributed.ranks import no_differences, results, run_ranks
from tapegrad.distributed import init_device_mesh
from tapegrad.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
)
from tapegrad.distributed.tensor._moves import move_plainly
from tapegrad.distributed.tensor._spec import Spec

R, P, S0, S1 = Replicate(), Partial(), Shard(0), Shard(1)


def lay(whole, mesh, placements, requires_grad=False):
    """A DTensor of a value that all ranks have, Partial too."""
    spec = Spec(mesh, [R] * mesh.ndim, whole.shape)
    made = DTensor(move_plainly(whole.detach(), spec, placements), Spec(mesh, placements, whole.shape))
    return made.requires_grad_(requires_grad)


def whole_of(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def same(a, b, tolerance=1e-11) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(tg.allclose(a.detach(), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True))


def ids(rank_of_rows, shape):
    return tg.arange(rank_of_rows * 7, rank_of_rows * 7 + int(tg.tensor(shape).prod())).reshape(shape) % rank_of_rows


# Operator on shapes of its float arguments. 3 and 5 do not divide by 2.
CASES = {
    "add": (lambda a, b: a + b * 2, (3, 4), (3, 4)), "broadcast": (lambda a, b: a * b - 1, (3, 4), (4,)),
    "one row": (lambda a, b: a / (b.abs() + 1), (3, 4), (1, 4)), "scalars": (lambda a: 2 - a / 3 + 1, (4, 3)), "unary": (lambda a: a.tanh().exp(), (5,)),
    "sum": (lambda a: a.sum(), (5, 3)), "sum dim": (lambda a: a.sum(-1, keepdim=True), (3, 4)), "mean": (lambda a: a.mean(0), (3, 4)),
    "mean all": (lambda a: a.mean(), (3, 5)), "amax": (lambda a: a.amax(1), (3, 4)), "max": (lambda a: a.max(0).values, (3, 4)),
    "var": (lambda a: a.var(dim=1, keepdim=True), (3, 4)), "norm": (lambda a: a.norm(), (3, 4)), "softmax": (lambda a: F.softmax(a, -1), (3, 4)),
    "log_softmax": (lambda a: a.log_softmax(0), (3, 4)), "cumsum": (lambda a: a.cumsum(1), (3, 4)), "std all": (lambda a: a.std(), (3, 4)),
    "matmul": (lambda a, b: a @ b, (3, 4), (4, 5)), "batched": (lambda a, b: a @ b, (2, 3, 4), (2, 4, 5)), "wide": (lambda a, b: a @ b, (2, 3, 4), (4, 5)),
    "one batch": (lambda a, b: a @ b, (1, 3, 4), (2, 4, 2)), "vector": (lambda a, b: a @ b, (3, 4), (4,)), "bmm": (tg.bmm, (2, 3, 4), (2, 4, 5)),
    "linear": (F.linear, (3, 4), (5, 4), (5,)), "linear 3": (F.linear, (2, 3, 4), (5, 4), (5,)), "linear 1": (F.linear, (4,), (2, 4)),
    "addmm": (lambda c, a, b: tg.addmm(c, a, b, beta=2, alpha=3), (5,), (3, 4), (4, 5)),
    "baddbmm": (tg.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)), "einsum": (lambda a, b: tg.einsum("ij,kj->ik", a, b), (3, 4), (2, 4)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (3, 4), (4,), (4,)), "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), (3, 4), (4,)),
    "layer_norm 3": (lambda x: F.layer_norm(x, (3, 4)), (2, 3, 4)), "gelu": (F.gelu, (3, 4)), "view": (lambda a: a.view(2, 2, 3), (4, 3)),
    "flatten": (lambda a: a.flatten(), (4, 3)), "view -1": (lambda a: a.reshape(-1, 6), (2, 3, 4)), "unflatten": (lambda a: a.unflatten(1, (2, 2)), (3, 4)),
    "view out": (lambda a: a.view(2, 12) * 2, (2, 3, 4)), "t": (lambda a: a.t() * 2, (3, 4)), "transpose": (lambda a: a.transpose(0, -1), (2, 3, 4)),
    "permute": (lambda a: a.permute(2, 0, 1), (2, 3, 4)), "T": (lambda a: a.T, (3, 4)), "movedim": (lambda a: a.movedim(0, 2), (2, 3, 4)),
    "unsqueeze": (lambda a: a.unsqueeze(-2), (3, 4)), "squeeze": (lambda a: a.squeeze(), (2, 1, 3)), "squeeze 1": (lambda a: a.squeeze(1), (1, 1, 3)),
    "expand": (lambda a: a.expand(2, 3, 4), (3, 1)), "item": (lambda a: a[1], (3, 4)), "slice": (lambda a: a[:, 1:3], (3, 4)),
    "none": (lambda a: a[..., None, 1], (3, 4)), "fancy": (lambda a: a[tg.tensor([0]) if not isinstance(a, DTensor) else [0, 2]] if False else a[[0, 2]], (3, 4)),
    "cat": (lambda a, b: tg.cat([a, b], 1), (3, 4), (3, 2)), "stack": (lambda a, b: tg.stack([a, b]), (3, 4), (3, 4)),
    "split": (lambda a: a.split(2, 1)[1], (3, 4)), "chunk": (lambda a: a.chunk(2, -1)[0], (3, 4)), "select": (lambda a: a.select(0, 2), (3, 4)),
    "where": (lambda a, b: tg.where(a > b, a, b), (3, 4), (4,)), "clamp": (lambda a, b: tg.clamp(a, min=b), (3, 4), (3, 4)),
    "mse": (lambda a, b: F.mse_loss(a, b), (3, 4), (3, 4)), "attention": (F.scaled_dot_product_attention, (2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4)),
    "flip": (lambda a: a.flip(0), (3, 4)), "outer": (lambda a, b: tg.outer(a, b), (3,), (4,)), "relu": (F.relu, (1, 3)), "narrow": (lambda a: a.narrow(1, 1, 2), (3, 4)),
    "zero-dim": (lambda a: a * 2 + 1, ()), "empty": (lambda a, b: (a @ b).sum(), (0, 3), (3, 2)), "pow": (lambda a: a.abs() ** 1.5, (3, 4)), "triu": (lambda a: a.triu(), (3, 4)),
    "clone": (lambda a: a.clone().contiguous().to(tg.float32), (3, 4)), "rsub": (lambda a, b: 1 - a - b, (3, 4), (3, 4)), "lerp": (tg.lerp, (3, 4), (3, 4), (3, 4)),
}


def placements_of(shape):
    return [R, P, *(Shard(d) for d in range(len(shape)))]


def check_case(name, mesh, chosen) -> list:
    function, *shapes = CASES[name]
    tg.manual_seed(1)
    plain = [tg.randn(s, dtype=tg.float64, requires_grad=True) for s in shapes]
    expected = function(*plain)
    weights = tg.randn(expected.shape, dtype=tg.float64).to(expected.dtype)
    grads = tg.autograd.grad((expected * weights).sum(), plain, allow_unused=True)
    given = [lay(p, mesh, c, True) for p, c in zip(plain, chosen, strict=True)]
    out = function(*given)
    wrong = []
    if not isinstance(out, DTensor) or tuple(out.shape) != tuple(expected.shape) or not same(out.full_tensor(), expected, 1e-6 if name == "clone" else 1e-11):
        wrong.append(f"{name} {chosen}: value: {out.shape} {expected.shape}")
    if tuple(out.to_local().shape) != out._spec.local_shape():
        wrong.append(f"{name} {chosen}: part {out.to_local().shape} of {out.shape} as {out.placements}")
    (out * lay(weights, mesh, [R] * mesh.ndim)).sum().backward()
    for i, (g, e) in enumerate(zip(given, grads, strict=True)):
        if (g.grad is None) != (e is None) or (e is not None and not same(g.grad.full_tensor(), e, 1e-6 if name == "clone" else 1e-11)):
            wrong.append(f"{name} {chosen}: gradient {i}")
    return wrong


def all_cases(rank, size, mesh_shape, step):
    mesh, wrong, seen = init_device_mesh("cpu", mesh_shape), [], 0
    for name, (_, *shapes) in CASES.items():
        each = [list(itertools.product(placements_of(s), repeat=mesh.ndim)) for s in shapes]
        for chosen in list(itertools.product(*each))[::step]:
            seen += 1
            try:
                wrong += check_case(name, mesh, chosen)
            except Exception as error:
                wrong.append(f"{name} {chosen}: {type(error).__name__}: {error}")
    return wrong, seen


@pytest.mark.parametrize(("ranks", "mesh_shape", "step"), [(2, (2,), 1), pytest.param(4, (2, 2), 37, marks=pytest.mark.long)])
def test_operators_give_what_one_process_gives(ranks, mesh_shape, step):
    for wrong, seen in results(run_ranks(ranks, all_cases, mesh_shape, step, start="fork", timeout=120)):
        assert not wrong and seen > 200, wrong


# --- from one placement to another ---

def all_moves(rank, size):
    mesh, wrong = init_device_mesh("cpu", (size,)), []
    kinds = [R, P, S0, S1, Shard(-1)]
    for dtype, shape in itertools.product((tg.float64, tg.bfloat16, tg.float16, tg.int64), ((5, 4), (1, 3), (0, 2))):
        whole = (tg.arange(shape[0] * shape[1]).reshape(shape) + 1).to(dtype)
        for a, b in itertools.product(kinds, kinds):
            x = lay(whole, mesh, [a if a.is_partial() or a.is_replicate() else Shard(a.dim % 2)])
            x = x.requires_grad_(dtype.is_floating_point)
            if b.is_partial() and a != b:
                with pytest.raises(RuntimeError, match="redistributing to Partial is for internal use only"):
                    x.redistribute(placements=[b])
                continue
            y = x.redistribute(placements=[b])
            if not y.full_tensor().equal(whole) or y.shape != whole.shape or y.to_local().shape != y._spec.local_shape():
                wrong.append((dtype, shape, a, b))
            if dtype.is_floating_point:
                (y * y).sum().backward()
                if not x.grad.full_tensor().equal(2 * whole) or tuple(x.grad.shape) != shape:
                    wrong.append(("gradient", dtype, shape, a, b, x.grad.full_tensor()))
    strided = tg.arange(12.).reshape(3, 4).t()
    x = DTensor.from_local(strided, mesh, [S1])
    wrong += [] if x.full_tensor().equal(tg.cat([strided] * size, 1)) and tuple(x.shape) == (4, 3 * size) else ["strided"]
    whole = tg.arange(30.).reshape(6, 5)
    if size == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        for a, b in itertools.product(itertools.product((R, P, S0, S1), repeat=2), itertools.product((R, S0, S1), repeat=2)):
            x = lay(whole, grid, a, True)
            y = x.redistribute(placements=b)
            (y * y).sum().backward()
            if not (y.full_tensor().equal(whole) and x.grad.full_tensor().equal(2 * whole) and y.to_local().shape == y._spec.local_shape()):
                wrong.append((a, b))
    return wrong


@pytest.mark.parametrize("ranks", [3, pytest.param(2, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)])
def test_every_placement_becomes_every_other(ranks):
    for wrong in results(run_ranks(ranks, all_moves, start="fork")):
        assert not wrong


# --- as torch's ---

def beside_torch(rank, size, store):
    """What both libraries say of the same tensors over gloo."""
    import torch
    import torch.distributed.tensor as theirs
    from tapegrad.distributed import tensor as ours
    from tapegrad.distributed.tensor._utils import compute_local_shape_and_global_offset as places
    from torch.distributed.tensor._utils import (
        compute_local_shape_and_global_offset as their_places,
    )

    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    grid, their_grid = init_device_mesh("cpu", (size,)), torch.distributed.init_device_mesh("cpu", (size,))

    def described(names, lib, mesh, place):
        said = []
        whole = lib.arange(15.).reshape(5, 3)
        for p in (names.Replicate(), names.Shard(0), names.Shard(-1)):
            x = names.distribute_tensor(whole, mesh, [p])
            y = x.redistribute(placements=[names.Shard(1)])
            said.append((x.to_local().tolist(), repr(x.placements), tuple(x.shape), x.stride(), y.to_local().tolist(), (x + 1).placements == x.placements,
                         x.sum().full_tensor().item(), repr(x.sum().placements), repr((x @ x.t()).placements), x.numel(), x.dim(),
                         repr(x.t().placements), tuple(names.zeros(5, 3, device_mesh=mesh, placements=x.placements).to_local().shape),
                         place((5, 3), mesh, x.placements), place((1,), mesh, [names.Shard(0)])))
        leaf = lib.ones(2, 2, requires_grad=True)
        for p, g in itertools.product((names.Replicate(), names.Shard(0), names.Partial()), (None, [names.Partial()], [names.Replicate()])):
            x = names.DTensor.from_local(leaf * (rank + 1), mesh, [p])
            if g is not None and p.is_shard():
                continue
            leaf.grad = None
            (x.to_local(grad_placements=g) * (rank + 2)).sum().backward()
            said.append(leaf.grad.tolist())
        for wrong in (lambda: names.distribute_tensor(whole, mesh, []), lambda: names.DTensor.from_local(x, mesh, [names.Shard(0)]),
                      lambda: x.redistribute(), lambda: names.distribute_tensor(leaf * 2, mesh), lambda: x + lib.ones(5, 2),
                      lambda: names.distribute_tensor(names.ones(3, device_mesh=mesh), mesh, [names.Shard(0)])):
            try:
                wrong()
            except Exception as error:
                said.append(type(error).__name__)
        return said

    mine, his = described(ours, tg, grid, places), described(theirs, torch, their_grid, their_places)
    torch.distributed.destroy_process_group()
    return [(i, a, b) for i, (a, b) in enumerate(zip(mine, his, strict=True)) if repr(a) != repr(b)]


@pytest.mark.long
def test_as_torch_says(tmp_path):
    no_differences(2, beside_torch, str(tmp_path / "store"))
