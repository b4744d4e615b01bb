"""What ranks see when one is killed or interrupted inside DistributedDataParallel's backward, and tensors of a device in collectives."""

import os
import signal
import time

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks


class Marked(tg.autograd.Function):
    """Says that backward has come here; rank 1 stays."""

    @staticmethod
    def forward(ctx, x, rank, folder):
        ctx.rank, ctx.folder = rank, folder
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        with open(f"{ctx.folder}/{ctx.rank}", "w"):
            pass
        if ctx.rank == 1:
            time.sleep(4)
        return grad, None, None


def train(rank, n, folder):
    model = tg.nn.parallel.DistributedDataParallel(tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.Linear(4, 4)))
    out = Marked.apply(model(tg.ones(2, 4)), rank, folder)
    try:
        out.sum().backward()
    except (dist.DistError, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}", time.time()
    return "nothing", time.time()


def in_backward(folder, act):
    """Runs act(ranks) when both ranks are in backward; the ranks' outcomes and when it was."""
    acted = []

    def meanwhile(ranks):
        deadline = time.monotonic() + 30
        while len(os.listdir(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        acted.append(time.time())
        act(ranks)

    return run_ranks(2, train, str(folder), start="fork", timeout=40, meanwhile=meanwhile), acted[0]


@pytest.mark.long
def test_ctrl_c_while_backward_waits_for_a_slow_rank(tmp_path):
    outcomes, acted = in_backward(tmp_path, lambda ranks: ranks[0].send_signal(signal.SIGINT))
    said, when = outcomes[0].result
    assert said.startswith("KeyboardInterrupt") and when - acted < 2, said


def test_a_rank_killed_in_backward(tmp_path):
    outcomes, acted = in_backward(tmp_path, lambda ranks: ranks[1].send_signal(signal.SIGKILL))
    said, when = outcomes[0].result
    assert said.startswith("DistBackendError") and "rank 1 has died" in said and when - acted < 2, said


def call_with_device_tensors(rank, n):
    def give(*values):
        return tg.tensor([float(v) for v in values], device="cuda")

    got = {}
    other = 1 - rank
    dist.all_reduce(x := give(rank, 2))
    got["all_reduce"] = x
    dist.broadcast(x := give(rank), 1)
    got["broadcast"] = x
    dist.reduce(x := give(rank + 1), 0)
    got["reduce"] = x if rank == 0 else give(3)
    dist.all_gather(parts := [give(9), give(9)], give(rank))
    got["all_gather"] = tg.cat(parts)
    dist.all_gather_into_tensor(x := give(9, 9), give(rank))
    got["all_gather_into_tensor"] = x
    dist.gather(give(rank), parts if rank == 0 else None, 0)
    got["gather"] = tg.cat(parts)
    dist.scatter(x := give(9), [give(5), give(6)] if rank == 0 else None, 0)
    got["scatter"] = x - rank
    dist.reduce_scatter(x := give(9), [give(1), give(1)])
    got["reduce_scatter"] = x
    dist.reduce_scatter_tensor(x := give(9), give(4, 4))
    got["reduce_scatter_tensor"] = x
    dist.all_to_all(parts := [give(9), give(9)], [give(rank), give(rank)])
    got["all_to_all"] = tg.cat(parts)
    dist.all_to_all_single(x := give(9, 9), give(rank, rank))
    got["all_to_all_single"] = x
    dist.send(give(rank), other)
    dist.recv(x := give(9), other)
    got["send"] = x + rank
    dist.barrier()
    assert all(t.is_cuda for t in got.values())
    return {name: t.tolist() for name, t in got.items()}


def test_tensors_of_a_device_in_every_collective():
    expected = {"all_reduce": [1, 4], "broadcast": [1], "reduce": [3], "all_gather": [0, 1], "all_gather_into_tensor": [0, 1], "gather": [0, 1],
                "scatter": [5], "reduce_scatter": [2], "reduce_scatter_tensor": [8], "all_to_all": [0, 1], "all_to_all_single": [0, 1], "send": [1]}
    environment = {"TAPEGRAD_CUDA_SIMULATE": "1", "TAPEGRAD_CUDA_SIMULATE_MEMORY": "64"}
    assert results(run_ranks(2, call_with_device_tensors, timeout=60, environment=environment)) == [expected] * 2
