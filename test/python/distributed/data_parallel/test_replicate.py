"""replicate: a module that stays what it is takes DistributedDataParallel's steps."""

import copy

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed._composable import fully_shard, replicate
from tapegrad.nn.parallel import DistributedDataParallel


def net():
    tg.manual_seed(dist.get_rank())  # rank 0's values are everybody's
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def steps(rank, size):
    ours, calls = replicate(net()), []
    wrapped = DistributedDataParallel(net())
    x = tg.randn(5, 3, generator=tg.Generator().manual_seed(rank))
    ours.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(2):
        for module in (ours, wrapped):
            module(x).pow(2).sum().backward()
    assert calls == [1, 1] and isinstance(ours, nn.Sequential) and type(ours).__name__ == "DDPSequential"
    assert sorted(ours.state_dict()) == sorted(net().state_dict())
    pairs = list(zip(ours.parameters(), wrapped.module.parameters(), strict=True))
    assert all(a.equal(b) and a.grad.equal(b.grad) for a, b in pairs)
    ours.zero_grad()
    ours.set_requires_gradient_sync(False)
    ours(x).pow(2).sum().backward()
    alone = [p.grad.clone() for p in ours.parameters()]
    ours.set_requires_gradient_sync(True)
    hooked = replicate(net(), ignored_modules=[], device_id=tg.device("cpu"))
    hooked.register_comm_hook(None, lambda state, bucket: dist.get_world_size() and _zero(bucket))
    hooked(x).sum().backward()
    assert all(not p.grad.any() for p in hooked.parameters())
    part = net()
    replicate(part, ignored_modules=[part[0]])(x).pow(2).sum().backward()
    for f, error, text in ((lambda: copy.deepcopy(ours), AssertionError, "does not support deepcopy"), (lambda: replicate(ours), RuntimeError, "already"),
                           (lambda: replicate(fully_shard(net())), RuntimeError, "already managed by `fully_shard`"),
                           (lambda: replicate(net(), device_id="cpu"), RuntimeError, "Expected device_id")):
        with pytest.raises(error, match=text):
            f()
    return [g.tolist() for g in alone], part[0].weight.grad.tolist(), part[2].weight.grad.tolist()


def _zero(bucket):
    future = tg.futures.Future()
    future.set_result(bucket.buffer() * 0)
    return future


def test_steps_of_distributed_data_parallel(tmp_path):
    (alone0, ignored0, reduced0), (alone1, ignored1, reduced1) = results(run_ranks(2, steps, timeout=60))
    assert alone0 != alone1 and ignored0 != ignored1 and reduced0 == reduced1
