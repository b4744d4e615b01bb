"""Sends and receives: small sends do not wait, nothing that was sent is lost at an end, refusals are heard, the order of receives."""

import os
import time

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks

ENGINES = pytest.mark.parametrize("environment", [{}, {"TAPEGRAD_SHARED_MEMORY": "0"}], ids=["shared", "gloo"])


def both_send_first(rank, n):
    got = []
    for count in (1, 60_000):
        dist.send(tg.full((count,), float(rank)), 1 - rank)
        work = dist.isend(given := tg.full((count,), rank + 10.0), 1 - rank)
        work.wait()
        given.zero_()  # the program's own again
        for _ in range(2):
            dist.recv(into := tg.zeros(count), 1 - rank)
            got.append((into.min().item(), into.max().item()))
    return got


@ENGINES
def test_two_ranks_that_both_send_first(environment):
    outcomes = run_ranks(2, both_send_first, start="fork", timeout=30, limit=8, environment=environment)
    assert results(outcomes) == [[(float(r),) * 2, (r + 10.0,) * 2] * 2 for r in (1, 0)]


def send_and_leave(rank, n, how):
    if rank == 0:
        dist.send(tg.arange(5), 1)
        dist.send(tg.arange(5000), 1)
        if how == "destroy":
            dist.destroy_process_group()
        else:
            from tapegrad.distributed.distributed_c10d import _ending

            _ending._at_exit()  # all that the end of a program does here: these ranks are copies of another process
            os._exit(0)
        return None
    time.sleep(1.5)
    small, large = tg.zeros(5, dtype=tg.int64), tg.zeros(5000, dtype=tg.int64)
    dist.recv(small, 0)
    dist.recv(large, 0)
    return small.tolist(), large.sum().item()


@ENGINES
@pytest.mark.parametrize("how", ["destroy", "exit"])
def test_what_was_sent_is_received_after_its_sender_s_end(how, environment):
    outcomes = run_ranks(2, send_and_leave, how, start="fork", timeout=30, environment=environment)
    assert outcomes[1].result == ([0, 1, 2, 3, 4], 5000 * 4999 // 2), outcomes[1]


def send_what_is_refused(rank, n):
    try:
        if rank == 0:
            dist.send(tg.ones(3), 1)
            time.sleep(0.2)
            dist.send(tg.ones(100_000), 1)
        else:
            dist.recv(tg.ones(3, dtype=tg.float64), 0)
    except RuntimeError as error:
        return str(error)
    return "nothing"


@ENGINES
def test_a_refused_message_is_heard_of_by_the_sender_s_next_call(environment):
    outcomes = run_ranks(2, send_what_is_refused, start="fork", timeout=30, limit=10, environment=environment)
    sender, receiver = results(outcomes)
    for said in (sender, receiver):
        assert "rank 0 sends 3 elements of float32" in said and "the tensor here has 3 of float64" in said, said


def send_what_nobody_takes(rank, n):
    dist.send(tg.ones(3), 1 - rank)
    began = time.monotonic()
    dist.destroy_process_group()
    return time.monotonic() - began


@ENGINES
def test_messages_that_nobody_takes_do_not_keep_the_ranks(environment):
    outcomes = run_ranks(2, send_what_nobody_takes, start="fork", timeout=60, environment=environment)
    assert max(results(outcomes)) < 20
    assert any("were sent and not received" in o.output for o in outcomes), outcomes


def receive_from_any_beside_others(rank, n):
    size = 3000  # the data follow the first part of the message
    if rank == 0:
        one, two, three = (tg.zeros(size) for _ in range(3))
        works = [dist.irecv(one, 1), dist.irecv(two), dist.irecv(three, 1)]
        other = tg.zeros(size)
        dist.recv(other, 1, tag=5)  # beside those
        dist.barrier()
        for work in works:
            work.wait()
        return [t.unique().tolist() for t in (one, two, three, other)]
    if rank == 1:
        dist.send(tg.full((size,), 5.0), 0, tag=5)
        dist.barrier()
        for i in range(3):
            dist.send(tg.full((size,), float(i)), 0)
    else:
        dist.barrier()
    return None


@ENGINES
def test_a_receive_from_any_rank_is_one_from_every_rank_in_the_order(environment):
    for _ in range(5):
        outcomes = run_ranks(3, receive_from_any_beside_others, start="fork", timeout=30, environment=environment)
        assert results(outcomes)[0] == [[0.0], [1.0], [2.0], [5.0]]


def reduce_unsigned(rank, n, dtype):
    values = tg.tensor([3, 5 + rank, 250]).to(getattr(tg, dtype))
    got = {}
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"):
        try:
            dist.all_reduce(x := values.clone(), getattr(dist.ReduceOp, op))
            got[op] = x.to(tg.int64).tolist()
        except ValueError as error:
            got[op] = str(error)
    return got


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_are_reduced(dtype):
    bits = {"BAND": [3, 4, 250], "BOR": [3, 7, 250], "BXOR": [0, 3, 0], "MIN": [3, 5, 250], "MAX": [3, 6, 250]}
    mean = f"all_reduce: a mean is made of numbers that kernels compute with: got {dtype}"
    for got in results(run_ranks(2, reduce_unsigned, dtype, start="fork", timeout=30)):
        assert got == {"SUM": [6, 11, 500], "PRODUCT": [9, 30, 62500], **bits, "AVG": mean}
