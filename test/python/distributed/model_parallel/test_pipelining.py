"""Pipelines: stages of several ranks train as one process does, and as torch's; failures reach all stages."""

import copy

import pytest
import tapegrad as tg
import tapegrad.nn.functional as F
from distributed.ranks import no_differences, results, run_ranks
from tapegrad import nn
from tapegrad.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    SplitPoint,
    pipe_split,
    pipeline,
)

SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def layers(nn, stages):
    return [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(stages)]


def batch(lib, rows):
    x = lib.arange(rows * 4, dtype=lib.float64).reshape(rows, 4).sin()
    return x, x.cos() * 2


def train(schedule, stage, model, optimizer, x, y, steps=3):
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses: list = []
        out = schedule.step(*([x] if stage.is_first else []), **({"target": y, "losses": losses} if stage.is_last else {}))
        optimizer.step()
        if stage.is_last:
            found.append([float(v) for v in losses] + [float(out.sum())])
    return found


def alone(parts, x, y, chunks, steps=3):
    """The same in one process: the mean of the micro-batches' losses."""
    model = nn.Sequential(*parts)
    optimizer, found = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(steps):
        optimizer.zero_grad()
        outs = [model(part) for part in x.tensor_split(chunks)]
        losses = [F.mse_loss(o, t) for o, t in zip(outs, y.tensor_split(chunks), strict=True)]
        for loss in losses:
            loss.backward()
        for p in model.parameters():
            p.grad.div_(chunks)
        optimizer.step()
        found.append([float(v) for v in losses] + [float(tg.cat(outs).sum())])
    return found, model


def as_alone(rank, size):
    wrong = []
    for name, rows, chunks in (("GPipe", 8, 4), ("1F1B", 8, 4), ("1F1B", 7, 3), ("GPipe", 5, 2), ("1F1B", 12, 6), ("GPipe", 3, 1)):
        if name == "1F1B" and chunks < size:
            continue
        tg.manual_seed(1)
        parts = [m.double() for m in layers(nn, size)]
        x, y = batch(tg, rows)
        expected, model = alone(copy.deepcopy(parts), x, y, chunks)
        stage = PipelineStage(parts[rank], rank, size, "cpu")
        schedule = SCHEDULES[name](stage, chunks, F.mse_loss)
        found = train(schedule, stage, parts[rank], tg.optim.SGD(parts[rank].parameters(), lr=0.1, momentum=0.9), x, y)
        if stage.is_last and found != expected:
            wrong.append((name, rows, chunks, found, expected))
        if not all(a.equal(b) for a, b in zip(parts[rank].parameters(), model[rank].parameters(), strict=True)):
            wrong.append((name, rows, chunks, "parameters"))
        out = schedule.eval(*([x] if stage.is_first else []))
        if stage.is_last and not out.equal(tg.cat([model(p) for p in x.tensor_split(chunks)])) or (out is None) == stage.is_last:
            wrong.append((name, rows, chunks, "eval"))
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_bit_for_bit_as_in_one_process(ranks):
    for wrong in results(run_ranks(ranks, as_alone, start="fork")):
        assert not wrong


def beside_torch(rank, size, store):
    import torch
    import torch.distributed.pipelining as theirs

    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    different = []
    for name, theirs_class in (("GPipe", theirs.ScheduleGPipe), ("1F1B", theirs.Schedule1F1B)):
        for scale in (True, False):
            torch.manual_seed(2)
            their_parts = [m.double() for m in layers(torch.nn, size)]
            part = layers(nn, size)[rank].double()
            part.load_state_dict({k: tg.tensor(v.tolist(), dtype=tg.float64) for k, v in their_parts[rank].state_dict().items()})
            stage = PipelineStage(part, rank, size, "cpu")
            their_stage = theirs.PipelineStage(their_parts[rank], rank, size, torch.device("cpu"))
            ours = train(SCHEDULES[name](stage, 4, F.mse_loss, scale_grads=scale), stage, part, tg.optim.SGD(part.parameters(), lr=0.05), *batch(tg, 8))
            others = train(theirs_class(their_stage, 4, torch.nn.functional.mse_loss, scale_grads=scale), their_stage, their_parts[rank],
                           torch.optim.SGD(their_parts[rank].parameters(), lr=0.05), *batch(torch, 8))
            if not torch.allclose(torch.tensor(ours), torch.tensor(others), rtol=1e-12):
                different.append((name, scale, ours, others))
    torch.distributed.destroy_process_group()
    return different


@pytest.mark.long
def test_losses_are_torch_s(tmp_path):
    no_differences(2, beside_torch, str(tmp_path / "store"))


class Raising(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.bad = nn.Linear(4, 4), ""

    def forward(self, x):
        pipe_split()
        if self.bad == "forward" and x[0, 0] < 0:
            raise ValueError("bad luck")
        out = self.layer(x)
        if self.bad == "backward":
            out.register_hook(lambda g: 1 / 0)
        return out


def failures(rank, size):
    tg.manual_seed(0)
    module = Raising()
    stage = PipelineStage(module, rank, size, "cpu")
    x, y = batch(tg, 8)
    x, y = x.float(), y.float()
    seen = []
    for kind in (ScheduleGPipe, Schedule1F1B):
        schedule = kind(stage, 4, F.mse_loss)

        def step():
            return schedule.step(*([x] if rank == 0 else []), **({"target": y} if stage.is_last else {}))

        step()
        for where in range(size):
            for how in ("forward", "backward"):
                module.bad = how if rank == where else ""
                x[4:] = -1 if how == "forward" else 1
                module.layer.weight.data.copy_(tg.eye(4))
                module.layer.bias.data.zero_()
                with pytest.raises((ValueError, ZeroDivisionError, RuntimeError)) as caught:
                    step()
                seen.append((where, how, type(caught.value).__name__, f"stage {where} failed: " in str(caught.value)))
                module.bad = ""
                module.zero_grad()
                step()  # the next one is as if nothing had been
                with tg.no_grad():
                    assert all(bool(p.grad.isfinite().all()) for p in module.parameters())
    with pytest.raises(RuntimeError, match="requires gradients to be enabled"), tg.no_grad():
        schedule.step()
    for wrong, error in [(lambda: PipelineStage(module, (rank + 1) % size, size, "cpu"), ValueError), (lambda: PipelineStage(3, rank, size, "cpu"), TypeError),
                         (lambda: PipelineStage(module, rank, size + 1, "cpu"), NotImplementedError), (lambda: Schedule1F1B(stage, size - 1), ValueError),
                         (lambda: PipelineStage(module, size, size, "cpu"), ValueError), (lambda: ScheduleGPipe(stage, 0), ValueError),
                         (lambda: pipeline(module, 2), NotImplementedError)]:
        with pytest.raises(error):
            wrong()
    if size == 2:  # numbers of micro-batches that differ
        with pytest.raises(RuntimeError, match="the stages do not agree|pipeline: "):
            ScheduleGPipe(stage, 2 if rank == 0 else 4, F.mse_loss).step(*([x] if rank == 0 else []), **({"target": y} if rank else {}))
    return seen


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_stage_that_fails_is_heard_by_all(ranks):
    assert SplitPoint.END.value == 2
    for rank, seen in enumerate(results(run_ranks(ranks, failures, start="fork", timeout=30))):
        for where, how, kind, told in seen:
            own = {"forward": "ValueError", "backward": "ZeroDivisionError"}[how]
            assert (kind == own) if rank == where else (kind == "StageFailed" and told), (rank, where, how, kind)
