"""FullyShardedDataParallel: strategies, states of nested wrappers, and functions inside that backward runs again."""

import contextlib
import functools

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed import checkpoint
from tapegrad.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from tapegrad.distributed.fsdp.wrap import ModuleWrapPolicy
from tapegrad.distributed.tensor import DTensor
from tapegrad.utils.checkpoint import checkpoint as again


class Block(nn.Module):
    """A part of which backward may compute the inside again, from a function or from a bound method."""

    def __init__(self, way: str = ""):
        super().__init__()
        self.up, self.down, self.norm, self.way = nn.Linear(6, 9), nn.Linear(9, 6), nn.BatchNorm1d(6), way

    def inside(self, x):
        return self.down(tg.tanh(self.up(x)))

    def forward(self, x):
        return x + (self.inside(x) if not self.way else again(self.inside, x, use_reentrant=self.way == "reentrant"))


def model(way: str = ""):
    tg.manual_seed(6)
    return nn.Sequential(nn.Linear(6, 6), Block(way), Block(way), nn.Linear(6, 6)).double()


def rows(step: int, rank: int = 0, n: int = 1):
    x = tg.randn(12, 6, generator=tg.Generator().manual_seed(step), dtype=tg.float64)
    return x[rank * 12 // n:(rank + 1) * 12 // n]


def steps(net, optimizer, rank: int = 0, n: int = 1, first: int = 0, count: int = 2, halves: bool = False) -> None:
    for step in range(first, first + count):
        optimizer.zero_grad()
        x = rows(step, rank, n)
        for i, part in enumerate(x.split(len(x) // 2) if halves else [x]):
            with net.no_sync() if halves and i == 0 else contextlib.nullcontext():
                ((net(part) - part).pow(2).mean() / (2 if halves else 1)).backward()
        optimizer.step()


def alone(count: int = 4) -> dict:
    net = model()
    steps(net, tg.optim.AdamW(net.parameters(), lr=0.02), count=count)
    return {k: v.numpy() for k, v in net.state_dict().items() if "norm" not in k}


def same(found: dict, expected: dict) -> None:
    assert expected.keys() <= found.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-11, atol=1e-13, err_msg=name)


wrapped = functools.partial(FullyShardedDataParallel, auto_wrap_policy=ModuleWrapPolicy({Block}))


def train(rank: int, n: int, strategy: str, way: str, halves: bool):
    net = wrapped(model(way), sharding_strategy=ShardingStrategy[strategy])
    if strategy == "NO_SHARD":  # each gradient is reduced once
        reduced = [p for m in net.fsdp_modules(net) for _, p in m.__dict__["_replicated"]._named]
        assert len(reduced) == len({id(p) for p in reduced}) == len(list(net.parameters()))
    steps(net, tg.optim.AdamW(net.parameters(), lr=0.02), rank, n, count=4, halves=halves)
    return {k: v.numpy() for k, v in net.state_dict().items()}


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
@pytest.mark.parametrize("way", ["", "reentrant", "other"])
def test_strategies_with_and_without_second_runs(strategy, way):
    for halves in (False, True) if not way else (False,):
        for found in results(run_ranks(2, train, strategy, way, halves, start="fork")):
            assert not any("_fsdp" in name for name in found)
            same(found, alone())


def low(rank: int, n: int, strategy: str):
    """Wrappers within a wrapper that leave parameters whole take the policy, too."""
    policy = MixedPrecision(param_dtype=tg.bfloat16, reduce_dtype=tg.float32, buffer_dtype=tg.bfloat16)
    net = wrapped(model().float(), sharding_strategy=ShardingStrategy[strategy], mixed_precision=policy)
    out = net(rows(0).float())
    out.float().sum().backward()
    return str(out.dtype), {str(p.grad.dtype) for p in net.parameters() if p.grad is not None}, {str(b.dtype) for b in net.buffers()}


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
@pytest.mark.parametrize("n", [1, 2])
def test_mixed_precision_of_wrappers(n, strategy):
    for found in results(run_ranks(n, low, strategy, start="fork")):
        assert found == ("tapegrad.bfloat16", {"tapegrad.float32"}, {"tapegrad.bfloat16", "tapegrad.int64"})


def go_on(rank: int, n: int, folder: str):
    """States of nested wrappers, whole and in pieces, through dictionaries and folders."""
    net = wrapped(model())
    optimizer = tg.optim.AdamW(net.parameters(), lr=0.02)
    steps(net, optimizer, rank, n)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
        state = net.state_dict()
    assert bool(state) is (rank == 0)
    optim_state = FullyShardedDataParallel.full_optim_state_dict(net, optimizer)
    assert bool(optim_state) is (rank == 0)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
        pieces = {"model": net.state_dict(), "optim": FullyShardedDataParallel.optim_state_dict(net, optimizer)}
        assert all(isinstance(v, DTensor) for k, v in pieces["model"].items() if k.endswith("weight"))
        checkpoint.save_state_dict(pieces, checkpoint.FileSystemWriter(folder), planner=checkpoint.DefaultSavePlanner())
    found = []
    for way in ("whole", "pieces", "scattered"):
        other = wrapped(model())
        with tg.no_grad():
            for p in other.parameters():
                p.zero_()
        later = tg.optim.AdamW(other.parameters(), lr=0.5)
        box = [state, optim_state]
        dist.broadcast_object_list(box)
        if way == "pieces":
            with FullyShardedDataParallel.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
                into = {"model": other.state_dict()}
                checkpoint.load_state_dict(into, checkpoint.FileSystemReader(folder), planner=checkpoint.DefaultLoadPlanner())
                other.load_state_dict(into["model"])
            extra = {"model": other.state_dict(), "more": tg.ones(3)}
            with pytest.raises(RuntimeError, match="lacks 1 of the state's entries: more"):
                checkpoint.load(extra, checkpoint_id=folder)
            checkpoint.load(extra, checkpoint_id=folder, planner=checkpoint.DefaultLoadPlanner(allow_partial_load=True))
            assert extra["more"].tolist() == [1, 1, 1]
            later.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(
                other, later, FullyShardedDataParallel.sharded_optim_state_dict(net, optimizer)))
        else:
            other.load_state_dict(box[0])
            if way == "whole":
                FullyShardedDataParallel.optim_state_dict_to_load(other, later, box[1], load_directly=True)
            else:
                later.load_state_dict(FullyShardedDataParallel.scatter_full_optim_state_dict(optim_state, other, optim=later))
        steps(other, later, rank, n, 2)
        found.append({k: v.numpy() for k, v in other.state_dict().items()})

    class Mine(checkpoint.DefaultSavePlanner):
        pass

    with pytest.raises(NotImplementedError, match="planners of one's own are not supported"):
        checkpoint.save({}, checkpoint_id=folder, planner=Mine())
    with FullyShardedDataParallel.summon_full_params(net):
        assert net.module[0].weight.shape == (6, 6) and not isinstance(net.module[0].weight, DTensor)
        with tg.no_grad():
            net.module[0].weight.fill_(2.0)
    assert net.state_dict()["0.weight"].eq(2).all()
    return found


def test_states_of_nested_wrappers(tmp_path):
    for found in results(run_ranks(2, go_on, str(tmp_path), start="fork")):
        for state in found:
            same(state, alone())


def inside_a_unit(rank: int, n: int, way: str):
    """Functions that are checkpointed inside a unit, and raise when they run again."""
    net = model(way)
    for block in net[1:3]:
        fully_shard(block)
    fully_shard(net, reshard_after_forward=True)
    optimizer = tg.optim.AdamW(net.parameters(), lr=0.02)
    steps(net, optimizer, rank, n)
    calls = []
    real = net[1].inside

    def failing(x):
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("mine")
        return real(x)

    net[1].inside = failing
    with pytest.raises(KeyError, match="mine"):
        net(rows(0, rank, n)).sum().backward()
    assert all(isinstance(p, DTensor) for p in net.parameters())
    net[1].inside = real
    steps(net, optimizer, rank, n, 2)
    return {k: v.full_tensor().numpy() if isinstance(v, DTensor) else v.numpy() for k, v in net.state_dict().items()}


@pytest.mark.parametrize("way", ["reentrant", "other"])
def test_functions_inside_a_unit_run_again(way):
    for found in results(run_ranks(2, inside_a_unit, way, start="fork")):
        same(found, alone())
