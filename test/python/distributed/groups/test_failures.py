"""What ranks see when they do not agree, when one raises, dies, hangs, leaves or is interrupted: all raise soon, and say who and where."""

import os
import re
import signal
import threading
import time
import warnings
from datetime import timedelta

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks, run_ranks_with_torch


def text_of(f):
    """Class and message of what a call raises."""
    try:
        f()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def ask_for_different_things(rank, n, what):
    one, two = tg.ones(3), tg.ones(3)
    call = {
        "shapes": lambda: dist.all_reduce(tg.ones(3 + rank)),
        "large shapes": lambda: dist.all_reduce(tg.ones(300_000 + rank)),
        "dtypes": lambda: dist.all_reduce(tg.ones(3, dtype=tg.float32 if rank else tg.float64)),
        "operators": lambda: dist.all_reduce(one, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM),
        "means": lambda: dist.all_reduce(one, dist.ReduceOp.AVG if rank else dist.ReduceOp.SUM),
        "order": lambda: dist.all_reduce(one) if rank else dist.broadcast(one, 0),
        "roots": lambda: dist.broadcast(one, rank),
        "barrier": lambda: dist.barrier() if rank else dist.all_reduce(one),
        "gathered shapes": lambda: dist.all_gather([tg.ones(2 + rank) for _ in range(n)], tg.ones(2 + rank)),
        "scattered shapes": lambda: dist.scatter(tg.ones(2 + rank), [tg.ones(2) for _ in range(n)] if rank == 0 else None),
        "split sizes": lambda: dist.all_to_all_single(tg.ones(n), tg.ones(n + rank), [1] * n, [1 + rank] + [1] * (n - 1)),
        "gathered lists": lambda: dist.all_gather([tg.ones(r + 1 + (rank == 2 and r == 1)) for r in range(n)], tg.ones(rank + 1)),
        "two calls": lambda: (dist.all_reduce(two, async_op=True), dist.all_reduce(tg.ones(1 + rank), async_op=True).wait()),
    }[what]
    began = time.monotonic()
    said = text_of(call)
    return said, time.monotonic() - began, one.tolist(), text_of(lambda: dist.all_reduce(two))


@pytest.mark.parametrize("what, both", [
    ("shapes", "3.*4|4.*3"), ("large shapes", "300000.*300001|300001.*300000"), ("dtypes", "float64.*float32|float32.*float64"),
    ("operators", "(?i)max.*sum|sum.*max"), ("means", "(?i)mean|avg|average"), ("order", "broadcast.*all_reduce|all_reduce.*broadcast"),
    ("roots", "0.*1|1.*0"), ("barrier", "barrier.*all_reduce|all_reduce.*barrier"), ("gathered shapes", "2.*3|3.*2"),
    ("scattered shapes", "scatter"), ("split sizes", "rank 1 has 2 elements for rank 0, which takes 1"),
    ("gathered lists", "rank 0 and rank 2 have outputs of other sizes"), ("two calls", "1.*2|2.*1")])
def test_calls_that_do_not_match_raise_on_all_ranks(what, both):
    for said, seconds, untouched, after in results(run_ranks(3, ask_for_different_things, what, start="fork", timeout=30)):
        kind, _, text = said.partition(": ")
        assert kind in ("DistBackendError", "RuntimeError", "ValueError", "TypeError"), said
        assert re.search(both, text, re.DOTALL), said
        assert "test_failures.py:" in text, said  # where the other called from
        assert untouched == [1, 1, 1] and seconds < 2
        assert after == "nothing"  # the group goes on


def raise_in_one(rank, n):
    if rank == 1:
        raise ValueError("a mistake of rank 1")
    began = time.monotonic()
    said = text_of(lambda: [dist.all_reduce(tg.ones(3)) for _ in range(1000)])
    return said, time.monotonic() - began


def test_an_exception_reaches_all_ranks():
    outcomes = run_ranks(3, raise_in_one, start="fork", timeout=30)
    assert outcomes[1].error == "ValueError: a mistake of rank 1"
    for rank in (0, 2):
        said, seconds = outcomes[rank].result
        assert said.startswith("DistBackendError: ") and "rank 1" in said and seconds < 2, said


PROGRAM = """
import sys, tapegrad as tg, tapegrad.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
if rank == 1:
    raise ValueError("a mistake of rank 1")
dist.barrier()
"""


def test_an_uncaught_exception_is_shown_with_its_rank_and_told_to_others(tmp_path):
    import subprocess
    import sys

    ranks = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(r), str(tmp_path / "store")], stderr=subprocess.PIPE, text=True)
             for r in range(2)]
    texts = [r.communicate(timeout=60)[1] for r in ranks]
    assert [r.returncode for r in ranks] == [1, 1]
    assert "[rank1]: ValueError: a mistake of rank 1" in texts[1] and "[rank1]: Traceback (most recent call last):" in texts[1]
    assert "[rank0]: " in texts[0] and "DistBackendError" in texts[0] and "a mistake of rank 1" in texts[0], texts[0]


def wait_for_ever(rank, n, folder):
    dist.barrier()
    with open(f"{folder}/{rank}", "w"):
        pass
    if rank == 1:
        time.sleep(4)
    try:
        dist.all_reduce(tg.ones(3))
    except (dist.DistError, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}", time.time()


def _once_all_wait(folder, n, act):
    def meanwhile(ranks):
        while len(os.listdir(folder)) < n and not all(r.poll() for r in ranks):
            time.sleep(0.01)
        time.sleep(0.3)
        meanwhile.at = time.time()
        act(ranks)

    return meanwhile


def test_a_killed_rank_is_named_within_two_seconds(tmp_path):
    kill = _once_all_wait(tmp_path, 3, lambda ranks: ranks[1].send_signal(signal.SIGKILL))
    outcomes = run_ranks(3, wait_for_ever, str(tmp_path), start="fork", timeout=30, meanwhile=kill)
    assert outcomes[1].code == -9
    for rank in (0, 2):
        said, at = outcomes[rank].result
        assert said.startswith("DistBackendError: ") and "rank 1" in said, said
        assert at - kill.at < 2, said


def test_ctrl_c_ends_a_collective(tmp_path):
    interrupt = _once_all_wait(tmp_path, 3, lambda ranks: ranks[0].send_signal(signal.SIGINT))
    outcomes = run_ranks(3, wait_for_ever, str(tmp_path), timeout=30, meanwhile=interrupt)
    said, at = outcomes[0].result
    assert said.startswith("KeyboardInterrupt") and at - interrupt.at < 0.5, (said, at - interrupt.at)
    said, at = outcomes[2].result
    assert said.startswith("DistBackendError: ") and "rank 0" in said and at - interrupt.at < 2, said


def come_late(rank, n):
    if rank == 2:
        time.sleep(2)
        return "late"
    began = time.monotonic()
    said = text_of(lambda: dist.monitored_barrier(timeout=timedelta(seconds=1)))
    return said, time.monotonic() - began


def test_a_barrier_with_a_limit_names_who_is_missing():
    outcomes = run_ranks(3, come_late, start="fork", timeout=30)
    for said, seconds in (o.result for o in outcomes[:2]):
        assert said.startswith("DistBackendError: ") and re.search("rank 2|ranks? .*2", said) and 0.9 < seconds < 3, said


def time_out(rank, n):
    if rank == 1:
        time.sleep(4)
        return ""
    work = dist.all_reduce(tg.ones(3), async_op=True)
    first = text_of(lambda: work.wait(timedelta(milliseconds=50)))
    return first, work.is_completed(), text_of(work.wait), work.is_success(), type(work.exception()).__name__, text_of(work.get_future().wait)


@pytest.mark.long
def test_asynchronous_calls_end_with_the_group_s_limit():
    first, done, second, success, kind, third = run_ranks(2, time_out, start="fork", timeout=30, limit=2)[0].result
    assert first == "DistBackendError: Work.wait: Operation timed out! It is not done after 50 ms" and not done
    assert second.startswith("DistBackendError: ") and "rank 1" in second and second == third
    assert not success and kind == "DistBackendError"


def use_after_the_end(rank, n):
    group = dist.new_group([0, 1])
    world = dist.group.WORLD
    dist.destroy_process_group(group)
    said = [text_of(lambda: dist.all_reduce(tg.ones(1), group=group)), text_of(lambda: dist.destroy_process_group(group))]
    t = tg.ones(1)
    dist.all_reduce(t)
    dist.destroy_process_group()
    said += [text_of(lambda: dist.all_reduce(t)), text_of(lambda: dist.all_reduce(t, group=world)), text_of(dist.destroy_process_group)]
    return said, t.item(), dist.is_initialized()


def test_groups_that_have_ended():
    for said, total, there in results(run_ranks(2, use_after_the_end, start="fork")):
        assert total == 2 and not there
        assert [s.partition(":")[0] for s in said] == ["ValueError"] * 5, said
        assert "has been destroyed" in said[0] and said[1] == "ValueError: Invalid process group specified"
        assert said[2].startswith("ValueError: Default process group has not been initialized")


def begin_again(rank, n, folder):
    totals = []
    for i in range(3):
        if i:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=(rank + i) % n, world_size=n)
        t = tg.ones(1) * dist.get_rank()
        dist.all_reduce(t)
        totals.append((dist.get_rank(), t.item()))
        if i < 2:
            dist.barrier()
            dist.destroy_process_group()
    return totals


def test_worlds_one_after_the_other(tmp_path):
    assert results(run_ranks(2, begin_again, str(tmp_path))) == [[(0, 1), (1, 1), (0, 1)], [(1, 1), (0, 1), (1, 1)]]


def use_two_threads(rank, n):
    groups = [dist.new_group(range(n)) for _ in range(2)]
    totals = [[], []]

    def work(i):
        for k in range(50):
            t = tg.ones(10 + 100_000 * (k % 2)) * (rank + k)
            dist.all_reduce(t, group=groups[i])
            totals[i].append(t[0].item())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return totals


def test_two_threads_with_a_group_each():
    expected = [sum(r + k for r in range(3)) for k in range(50)]
    assert results(run_ranks(3, use_two_threads, start="fork")) == [[expected, expected]] * 3


def mistake(library, d, rank, n):
    """The classes of errors that one rank can see for itself; nobody waits."""
    ones = library.ones
    world = d.group.WORLD
    calls = [
        lambda: d.all_reduce([ones(1)]), lambda: d.all_reduce(3), lambda: d.all_gather(ones(1), ones(1)), lambda: d.all_gather([1, 2], ones(1)),
        lambda: d.all_gather([ones(1), ones(1, dtype=library.int32)], ones(1)),
        lambda: d.broadcast(ones(1)), lambda: d.broadcast(ones(1), 0, group_src=0), lambda: d.broadcast("x", 0),
        lambda: d.reduce(ones(1), 0, group_dst=1), lambda: d.gather(ones(1), [ones(1)] * n if rank else None, 0),
        lambda: d.scatter(ones(1), [ones(1)] * n if rank else None, 0), lambda: d.gather(ones(1), 3 if rank == 0 else [ones(1)], 0),
        lambda: d.reduce_scatter(ones(1), ones(2)), lambda: d.all_to_all(ones(2), [ones(1)] * n), lambda: d.all_to_all_single(ones(2), "x"),
        lambda: d.send(ones(1), rank), lambda: d.recv(ones(1), rank), lambda: d.send("x", 1 - rank), lambda: d.send(ones(1)),
        lambda: d.batch_isend_irecv([3]), lambda: d.P2POp(d.all_reduce, ones(1), 0), lambda: d.P2POp(d.isend, 3, 0),
        lambda: d.P2POp(d.isend, ones(1)), lambda: d.all_reduce(ones(1, dtype=library.complex64), d.ReduceOp.MAX),
        lambda: d.all_reduce_coalesced([ones(1), 3]), lambda: d.all_reduce_coalesced([ones(1), ones(1, dtype=library.int32)]),
        lambda: d.init_process_group("gloo"), lambda: d.get_global_rank(world, 5), lambda: d.scatter_object_list([], [1] * n),
        lambda: d.scatter_object_list([None], None, src=rank), lambda: d.monitored_barrier(timeout="x"),
        lambda: d.broadcast_object_list([1], 0, group_src=0), lambda: d.new_group([0], timeout=1), lambda: d.destroy_process_group("x"),
    ]
    seen = []
    for call in calls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
            seen.append("nothing")
        except Exception as error:
            seen.append(next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"))
    return seen


# Of the calls above: a receive from itself, which gloo notices late; a rank that the world does not have.
STRICTER = [(16, "ValueError", "RuntimeError"), (27, "ValueError", "nothing")]


def mistakes_of_both(rank, n):
    torch = pytest.importorskip("torch")
    ours = mistake(tg, dist, rank, n)
    torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["TORCH_STORE"], rank=rank, world_size=n)
    torch.distributed.barrier()  # nobody may leave while the other one still connects
    theirs = mistake(torch, torch.distributed, rank, n)
    torch.distributed.destroy_process_group()
    return ours, theirs


def test_mistakes_are_torch_s(tmp_path):
    pytest.importorskip("torch")
    for ours, theirs in results(run_ranks_with_torch(2, mistakes_of_both, environment={"TORCH_STORE": str(tmp_path / "torch")})):
        differences = [(i, a, b) for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
        assert differences == STRICTER, differences


def go_on_alone(rank, n):
    group = dist.new_group([0, 1])
    if rank == 1:
        os._exit(3)
    said = text_of(lambda: dist.all_reduce(tg.ones(3), group=group))
    began = time.monotonic()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    t = tg.ones(3)
    dist.all_reduce(t)
    return said, t.tolist(), time.monotonic() - began


def test_a_world_that_has_failed_can_be_left():
    said, total, seconds = results(run_ranks(2, go_on_alone, start="fork", timeout=30)[:1])[0]
    assert said.startswith("DistBackendError: ") and "rank 1" in said and total == [1, 1, 1] and seconds < 2, said
