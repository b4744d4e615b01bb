"""The norm of all gradients, and clipping by it, in every way of sharing a model, beside one process."""

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed.tensor import DTensor

F = nn.functional
ORDERS = [2.0, 1.0, 3.0, float("inf")]


def model():
    tg.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 6)).double()


def batch():
    g = tg.Generator().manual_seed(1)
    return tg.randn(8, 6, generator=g, dtype=tg.float64), tg.randn(8, 6, generator=g, dtype=tg.float64)


def clipped(net, backward, clip, step=None) -> tuple:
    """For each order the norm, then parameters after a step with gradients clipped by it. clip(max_norm, order) clips."""
    norms = []
    for order in ORDERS:
        for p in net.parameters():
            p.grad = None
        backward()
        norms.append(float(clip(0.1, order)))
        if step is not None:
            step()
            continue
        with tg.no_grad():
            for p in net.parameters():
                p.sub_(p.grad)
    return norms, {name: (p.full_tensor() if isinstance(p, DTensor) else p).detach().numpy() for name, p in net.named_parameters()}


def alone():
    net = model()
    x, y = batch()
    return clipped(net, lambda: F.mse_loss(net(x), y).backward(), lambda limit, order: nn.utils.clip_grad_norm_(net.parameters(), limit, order))


def shared(rank: int, n: int, kind: str):
    import tapegrad.distributed.tensor.parallel as tp
    from tapegrad.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from tapegrad.distributed.fsdp.wrap import ModuleWrapPolicy

    net, step = model(), None
    x, y = (t[rank * 8 // n:(rank + 1) * 8 // n] for t in batch())
    called = net
    if kind in ("ddp", "zero"):
        called = nn.parallel.DistributedDataParallel(net)
        if kind == "zero":
            step = dist.optim.ZeroRedundancyOptimizer(net.parameters(), tg.optim.SGD, lr=1.0).step
    elif kind == "fully_shard":
        fully_shard(net[2])
        fully_shard(net)
    elif kind == "wrapper":
        called = FullyShardedDataParallel(net, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    else:
        x, y = batch()
        tp.parallelize_module(net, dist.init_device_mesh("cpu", (n,)), {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()})

    def clip(limit: float, order: float):
        if kind == "wrapper":
            return called.clip_grad_norm_(limit, order)
        return nn.utils.clip_grad_norm_(net.parameters(), limit, order)

    norms, parameters = clipped(net, lambda: F.mse_loss(called(x), y).backward(), clip, step)
    return norms, {name.replace("_fsdp_wrapped_module.", ""): value for name, value in parameters.items()}


def check(norms, parameters) -> None:
    expected, whole = alone()
    np.testing.assert_allclose(norms, expected, rtol=1e-9)
    for name, value in parameters.items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-10, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("kind", ["ddp", "zero", "fully_shard", "wrapper", "tensor parallel"])
@pytest.mark.parametrize("n", [2, 3])
def test_norms_are_those_of_one_process(n, kind):
    if n == 3 and kind in ("ddp", "zero", "fully_shard", "wrapper"):
        pytest.skip("eight rows are not three equal parts")
    found = results(run_ranks(n, shared, kind, start="fork"))
    for norms, parameters in found:
        assert len(parameters) == 6
        check(norms, parameters)


def pipelined(rank: int, n: int):
    """A stage has its own parameters only: norms of the stages are put together by hand."""
    from tapegrad.distributed.pipelining import PipelineStage, Schedule1F1B

    net = model()
    part = net[:2] if rank == 0 else net[2:]
    schedule = Schedule1F1B(PipelineStage(part, rank, n, "cpu"), 4, F.mse_loss)
    x, y = batch()

    def clip(limit: float, order: float):
        grads = [p.grad for p in part.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(grads, order)
        if order == float("inf"):
            dist.all_reduce(norm, dist.ReduceOp.MAX)
        else:
            norm **= order
            dist.all_reduce(norm)
            norm **= 1.0 / order
        nn.utils.clip_grads_with_norm_(part.parameters(), limit, norm)
        return norm

    norms, parameters = clipped(part, lambda: schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank else {})), clip)
    return norms, parameters


def test_norms_of_the_stages_of_a_pipeline_are_put_together():
    for norms, parameters in results(run_ranks(2, pipelined, start="fork")):
        assert parameters
        check(norms, parameters)


def none_here(rank: int, n: int):
    """A rank of which all pieces are empty takes part."""
    net = dist.fsdp.fully_shard(nn.Linear(4, 1, bias=False).double())
    net(tg.ones(2, 4, dtype=tg.float64)).sum().backward()
    return [float(nn.utils.clip_grad_norm_(net.parameters(), 100.0, order)) for order in ORDERS], net.weight.to_local().numel()


def test_ranks_with_empty_pieces_know_the_norm():
    assert [r for r in results(run_ranks(3, none_here, start="fork"))] == [(pytest.approx([4.0, 8.0, 2 * 4 ** (1 / 3), 2.0]), size) for size in (4, 0, 0)]
