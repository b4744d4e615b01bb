"""Tensor parallel: models that ranks share train as in one process, and as torch's."""

import copy
import itertools
import pickle
import warnings

import pytest
import tapegrad as tg
import tapegrad.distributed.tensor.parallel as tp
import tapegrad.nn.functional as F
from distributed.ranks import no_differences, results, run_ranks
from tapegrad import nn
from tapegrad.distributed import init_device_mesh
from tapegrad.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_tensor,
    ones,
    rand,
)


def block(nn, hidden=6):
    """A model with what styles there are for."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.columns = nn.Embedding(7, 4), nn.Embedding(7, 4)
            self.norm, self.up, self.down, self.head = nn.LayerNorm(4), nn.Linear(4, hidden), nn.Linear(hidden, 4), nn.Linear(4, 5, bias=False)

        def forward(self, ids):
            x = self.rows(ids) + self.columns(ids)
            x = x + self.down(self.up(self.norm(x)).tanh())
            return self.head(x)

    return Block()


def plan(styles, names, sequence: bool):
    """Two ways to share a block out: activations whole between layers, or cut along the sequence."""
    if not sequence:
        return {"rows": styles.RowwiseParallel(input_layouts=names.Replicate()), "columns": styles.ColwiseParallel(output_layouts=names.Replicate()),
                "u*": styles.ColwiseParallel(), "down": styles.RowwiseParallel(),
                "head": styles.ColwiseParallel(output_layouts=names.Shard(-1), use_local_output=False)}
    return {"rows": styles.RowwiseParallel(input_layouts=names.Replicate(), output_layouts=names.Shard(1), use_local_output=False),
            "columns": styles.ColwiseParallel(output_layouts=names.Shard(1), use_local_output=False), "norm": styles.SequenceParallel(),
            "up": styles.ColwiseParallel(input_layouts=names.Shard(1)),
            "down": styles.RowwiseParallel(output_layouts=names.Shard(1), use_local_output=False),
            "head": styles.ColwiseParallel(input_layouts=names.Shard(1), use_local_output=False)}


def train(lib, model, optimizer, loss_of, ids, targets, clip=None, steps=3):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(ids), targets)
        loss.backward()
        if clip:
            losses.append(float(lib.nn.utils.clip_grad_norm_(model.parameters(), clip)))
        optimizer.step()
        losses.append(float(loss.full_tensor() if hasattr(loss, "full_tensor") else loss))
    return losses


def plain_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def data(lib):
    return lib.arange(16).reshape(2, 8) % 7, lib.arange(16).reshape(2, 8) % 5


OPTIMIZERS = {"SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {"lr": 0.02}, "AdamW": {"lr": 0.02}}


def share_and_train(rank, size, hidden):
    mesh, wrong = init_device_mesh("cpu", (size,)), []
    ids, targets = data(tg)
    for sequence, (name, options), foreach in itertools.product((False, True), OPTIMIZERS.items(), (False, True)):
        tg.manual_seed(3)
        model = block(nn, hidden).double()
        alone = copy.deepcopy(model)
        make = getattr(tg.optim, name)
        expected = train(tg, alone, make(alone.parameters(), foreach=foreach, **options), plain_loss, ids, targets, 0.3)
        tp.parallelize_module(model, mesh, plan(tp, tg.distributed.tensor, sequence))

        def loss_of(logits, targets):
            with tp.loss_parallel():
                at = distribute_tensor(targets.flatten(), mesh, [Replicate()])
                return F.cross_entropy(logits.flatten(0, 1), at)

        got = train(tg, model, make(model.parameters(), foreach=foreach, **options), loss_of, ids, targets, 0.3)
        if not tg.allclose(tg.tensor(expected), tg.tensor(got), rtol=1e-10):
            wrong.append((sequence, name, foreach, expected, got))
        state = model.state_dict()
        for key, value in alone.state_dict().items():
            other = state[key].full_tensor() if isinstance(state[key], DTensor) else state[key]
            if not tg.allclose(value, other, rtol=1e-9, atol=1e-12):
                wrong.append((sequence, name, foreach, key))
    return wrong


@pytest.mark.parametrize(("ranks", "hidden"), [(2, 6), (2, 5), (3, 6)])
def test_shared_models_train_as_in_one_process(ranks, hidden):
    for wrong in results(run_ranks(ranks, share_and_train, hidden, start="fork")):
        assert not wrong


def train_beside_torch(rank, size, store):
    import torch
    import torch.distributed.tensor.parallel as their_tp
    import torch.nn.functional as their_F

    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    grid, their_grid = init_device_mesh("cpu", (size,)), torch.distributed.init_device_mesh("cpu", (size,))
    different = []
    for sequence in (False, True):
        torch.manual_seed(0)
        model, theirs = block(nn).double(), block(torch.nn).double()
        model.load_state_dict({k: tg.tensor(v.tolist(), dtype=tg.float64) for k, v in theirs.state_dict().items()})
        tp.parallelize_module(model, grid, plan(tp, tg.distributed.tensor, sequence))
        their_tp.parallelize_module(theirs, their_grid, plan(their_tp, torch.distributed.tensor, sequence))

        def losses(lib, names, mesh, F, model, tensor_names):
            ids, targets = data(lib)
            optimizer = lib.optim.AdamW(model.parameters(), lr=0.02, foreach=False)

            def loss_of(logits, targets):
                with names.loss_parallel():
                    at = tensor_names.distribute_tensor(targets.flatten(), mesh, [tensor_names.Replicate()])
                    return F.cross_entropy(logits.flatten(0, 1), at)

            return train(lib, model, optimizer, loss_of, ids, targets)

        a = losses(tg, tp, grid, F, model, tg.distributed.tensor)
        b = losses(torch, their_tp, their_grid, their_F, theirs, torch.distributed.tensor)
        if not torch.allclose(torch.tensor(a), torch.tensor(b), rtol=1e-9):
            different.append((sequence, a, b))
        for (key, p), q in zip(model.named_parameters(), theirs.parameters(), strict=True):
            if isinstance(p, DTensor) and (repr(p.placements) != repr(q.placements) or p.to_local().shape != tuple(q.to_local().shape)):
                different.append((key, p.placements, q.placements))
    torch.distributed.destroy_process_group()
    return different


@pytest.mark.long
def test_losses_are_torch_s(tmp_path):
    no_differences(2, train_beside_torch, str(tmp_path / "store"))


# --- what else there is ---

def smaller_things(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    whole = tg.arange(15.).reshape(5, 3) - 7

    # In place, views, values.
    x = distribute_tensor(whole, mesh, [Shard(0)])
    x.mul_(2).add_(1)
    x[1, :] = 4.0
    expected = whole * 2 + 1
    expected[1, :] = 4.0
    assert x.full_tensor().equal(expected) and x.placements == (Shard(0),)
    row = x[0]
    with pytest.raises(RuntimeError, match="fill_: the tensor is a copy, since __getitem__ could not look into the parts"):
        row.fill_(9.0)
    x[:, 0:3].zero_()
    assert x.full_tensor().count_nonzero() == 0
    assert float(distribute_tensor(tg.tensor(3.0), mesh).item()) == 3.0 and distribute_tensor(whole, mesh, [Shard(1)]).tolist() == whole.tolist()
    for make, what in [(lambda: x + tg.ones(5, 3), RuntimeError), (lambda: tg.ones(5, 3).add_(x), RuntimeError), (lambda: x.numpy(), NotImplementedError),
                       (lambda: x.set_(tg.ones(2)), NotImplementedError), (lambda: x.view(4, 4), RuntimeError), (lambda: x @ x, RuntimeError),
                       (lambda: tg.add(x, x, out=x), NotImplementedError), (lambda: x.sum(7), IndexError), (lambda: x.backward(), RuntimeError),
                       (lambda: DTensor.from_local(tg.ones(2), mesh, [Shard(3)]), IndexError),
                       (lambda: x + distribute_tensor(whole, tg.distributed.DeviceMesh("cpu", list(range(size))[::-1])), RuntimeError)]:
        with pytest.raises(what):
            make()
    assert (x + 1).full_tensor().equal(tg.ones(5, 3))  # after errors as before

    # Copies.
    w = nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
    (w * w).sum().backward()
    for other in (copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        assert type(other) is type(w) and isinstance(other, nn.Parameter) and other.requires_grad and other.placements == w.placements
        assert other.full_tensor().equal(whole)
    assert copy.deepcopy(w).grad.full_tensor().equal(2 * whole) and w.detach().requires_grad is False and "Shard(dim=0)" in repr(w)
    with tg.no_grad():
        assert not (w * 2).requires_grad and w.shape == (5, 3) and w.is_leaf and w.dtype == tg.float32

    # Randomness: as one process draws, though ranks have other seeds.
    tg.manual_seed(rank)
    dropped = F.dropout(ones(5, 3, device_mesh=mesh, placements=[Shard(0)]), 0.5).full_tensor()
    drawn = rand(5, 3, device_mesh=mesh, placements=[Shard(1)]).full_tensor()
    tg.manual_seed(0)
    assert dropped.equal(F.dropout(tg.ones(5, 3), 0.5)) and drawn.equal(tg.rand(5, 3))
    layer = nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
    tg.manual_seed(rank + 5)
    nn.init.kaiming_uniform_(layer)
    tg.manual_seed(5)
    assert layer.full_tensor().equal(nn.init.kaiming_uniform_(tg.empty(5, 3))) and layer.placements == (Shard(0),)

    # Norms.
    model = tp.parallelize_module(nn.Linear(3, 5).double(), mesh, tp.ColwiseParallel())
    model(tg.ones(2, 3).double()).sum().backward()
    for kind in (1.0, 2.0, float("inf")):
        grads = [p.grad.full_tensor().flatten() for p in model.parameters()]
        assert abs(nn.utils.get_total_norm([p.grad for p in model.parameters()], kind).item() - tg.cat(grads).norm(kind).item()) < 1e-12
    if rank == size - 1:
        model.bias.grad.to_local().fill_(float("nan"))
    for kind in (2.0, float("inf")):
        with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, kind, error_if_nonfinite=True)
    sharded = tg.distributed.fsdp.fully_shard(nn.Linear(3, 5))
    sharded(tg.ones(2, 3)).sum().backward()
    if rank == 0:
        next(sharded.parameters()).grad.to_local().fill_(float("inf"))
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        nn.utils.clip_grad_norm_(sharded.parameters(), 1.0, error_if_nonfinite=True)

    # Plans.
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tp.parallelize_module(nn.Linear(2, 2), mesh, {"nothing": tp.ColwiseParallel()})
    assert "could not be resolved" in str(seen[0].message)
    for wrong, error in [(lambda: tp.parallelize_module(nn.Linear(2, 2), mesh, 3), TypeError),
                         (lambda: tp.parallelize_module(nn.Conv1d(1, 1, 1), mesh, tp.ColwiseParallel()), NotImplementedError),
                         (lambda: tp.parallelize_module(model, mesh, tp.ColwiseParallel()), RuntimeError),
                         (lambda: tp.parallelize_module(nn.Linear(2, 2), None, tp.ColwiseParallel()), RuntimeError)]:
        with pytest.raises(error):
            wrong()
    prepared = tp.parallelize_module(nn.Identity(), mesh, tp.PrepareModuleInputOutput(
        input_layouts=Shard(0), desired_input_layouts=Replicate(), output_layouts=Replicate(), desired_output_layouts=Shard(1)))
    assert prepared(tg.ones(2, 2 * size)).shape == (2 * size, 2)
    return True


@pytest.mark.parametrize("ranks", [2, 3])
def test_smaller_things(ranks):
    assert all(results(run_ranks(ranks, smaller_things, start="fork")))


def saved_and_loaded(rank, size, folder):
    """A trained model in one layout and its optimizer, read into another layout and into a model of this process alone."""
    import tapegrad.distributed.checkpoint as dcp

    mesh = init_device_mesh("cpu", (size,))

    def made(styles):
        tg.manual_seed(5)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4)).double()
        tp.parallelize_module(model, mesh, styles) if styles else None
        return model, tg.optim.AdamW(model.parameters(), lr=0.1)

    one = {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()}
    other = {"0": tp.RowwiseParallel(input_layouts=Replicate()), "2": tp.ColwiseParallel(output_layouts=Replicate())}
    x = tg.arange(8.).double().reshape(2, 4)

    def step(model, optimizer):
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()
        return model(x)

    model, optimizer = made(one)
    step(model, optimizer)
    state = optimizer.state_dict()["state"][0]
    assert isinstance(state["exp_avg"], DTensor) and state["exp_avg"].shape == (5, 4) and state["step"].dim() == 0
    dcp.save(dict(zip(("model", "optimizer"), dcp.state_dict.get_state_dict(model, optimizer), strict=True)), checkpoint_id=folder)
    whole = copy.deepcopy(dcp.state_dict.get_state_dict(model, optimizer, options=dcp.state_dict.StateDictOptions(full_state_dict=True)))
    expected = step(model, optimizer)
    for styles in (one, other, None):
        again, its = made(styles)
        read = dict(zip(("model", "optimizer"), dcp.state_dict.get_state_dict(again, its), strict=True))
        dcp.load(read, checkpoint_id=folder)
        dcp.state_dict.set_state_dict(again, its, model_state_dict=read["model"], optim_state_dict=read["optimizer"])
        assert tg.allclose(step(again, its), expected, rtol=1e-12), styles
        again, its = made(styles)
        dcp.state_dict.set_state_dict(again, its, model_state_dict=whole[0], optim_state_dict=whole[1])
        assert tg.allclose(step(again, its), expected, rtol=1e-12), styles
    return True


def test_states_fit_another_layout(tmp_path):
    assert all(results(run_ranks(2, saved_and_loaded, str(tmp_path / "saved"), start="fork")))
