"""Wrappers that compute activations again: the same gradients, in one process, sharded, tensor-parallel and in a pipeline."""

import copy
import functools
import itertools

import pytest
import tapegrad as tg
import tapegrad.distributed.tensor.parallel as tp
import tapegrad.nn.functional as F
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed import init_device_mesh
from tapegrad.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from tapegrad.distributed.fsdp import fully_shard
from tapegrad.distributed.pipelining import PipelineStage, Schedule1F1B


class Counted(nn.Module):
    """Counts its forward passes."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.runs = nn.Linear(4, 8), nn.Linear(8, 4), 0

    def forward(self, x, scale=1.0):
        self.runs += 1
        return x + self.down(self.up(x).tanh()) * scale


WRAPPERS = {"reentrant": (functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT), 2), "other": (checkpoint_wrapper, 2),
            "offload": (offload_wrapper, 1)}


@pytest.mark.parametrize("name", WRAPPERS)
def test_gradients_and_names_are_the_model_s(name):
    wrapper, runs = WRAPPERS[name]
    tg.manual_seed(0)
    model = nn.Sequential(Counted(), nn.Tanh(), Counted())
    wrapped = copy.deepcopy(model)
    apply_activation_checkpointing(wrapped, wrapper, check_fn=lambda m: isinstance(m, Counted))
    assert [type(m).__name__ for m in wrapped] == [wrapped[0].__class__.__name__, "Tanh", wrapped[0].__class__.__name__]
    assert wrapped[0].runs == 0 and [n for n, _ in wrapped[0].named_parameters()] == [n for n, _ in model[0].named_parameters()]
    x = tg.randn(3, 4, requires_grad=True)
    for m in (model, wrapped):
        (m(x) ** 2).sum().backward()
    assert all(a.grad.equal(b.grad) for a, b in zip(model.parameters(), wrapped.parameters(), strict=True)) and wrapped[0].runs == runs
    assert wrapped[0](x, scale=2.0).equal(model[0](x, scale=2.0))
    assert list(wrapped.state_dict()) == list(model.state_dict())
    wrapped.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
    assert wrapped[2].up.weight.equal(model[2].up.weight + 1)


def with_other_ways(rank, size):
    tg.manual_seed(0)
    model = nn.Sequential(Counted(), Counted()).double()
    x = tg.randn(4, 4, dtype=tg.float64)
    alone = copy.deepcopy(model)
    F.mse_loss(alone(x), x).backward()
    expected = [p.grad for p in alone.parameters()]

    step = [slice(-(-g.shape[0] // size) * rank, -(-g.shape[0] // size) * (rank + 1)) for g in expected]
    for wrapper, each in itertools.product((checkpoint_wrapper, functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)), (True, False)):
        sharded = copy.deepcopy(model)
        apply_activation_checkpointing(sharded, wrapper, check_fn=lambda m: isinstance(m, Counted))
        for m in sharded if each else ():
            fully_shard(m)
        fully_shard(sharded, reshard_after_forward=True)
        for _ in range(2):
            sharded.zero_grad()
            F.mse_loss(sharded(x.clone().requires_grad_()), x).backward()
        assert all(tg.allclose(p.grad.to_local(), g[at]) for p, g, at in zip(sharded.parameters(), expected, step, strict=True)) and sharded[0].runs == 4

    shared = copy.deepcopy(model)
    for m in shared:
        tp.parallelize_module(m, init_device_mesh("cpu", (size,)), {"up": tp.ColwiseParallel(), "down": tp.RowwiseParallel()})
    apply_activation_checkpointing(shared, check_fn=lambda m: isinstance(m, Counted))
    F.mse_loss(shared(x), x).backward()
    assert all(tg.allclose(p.grad.full_tensor(), g) for p, g in zip(shared.parameters(), expected, strict=True)) and shared[0].runs == 2

    if size == 2:
        grid = init_device_mesh("cpu", (2, 1), mesh_dim_names=("p", "s"))
        for part in (checkpoint_wrapper(copy.deepcopy(model[rank])), fully_shard(copy.deepcopy(model[rank]), mesh=grid["s"])):
            stage = PipelineStage(part, rank, size, "cpu")
            Schedule1F1B(stage, 4, F.mse_loss).step(*([x] if rank == 0 else []), **({"target": x} if rank else {}))
            assert all(tg.allclose(getattr(p.grad, "full_tensor", lambda p=p: p.grad)(), q.grad) for p, q in zip(part.parameters(), alone[rank].parameters(), strict=True))
        assert isinstance(checkpoint_wrapper(model), CheckpointWrapper)
    return True


def test_beside_other_ways_of_sharing_a_model():
    assert all(results(run_ranks(2, with_other_ways, start="fork")))
