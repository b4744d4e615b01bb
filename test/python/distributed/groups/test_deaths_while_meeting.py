"""A rank that dies while the group is being made ends the others' waiting long before their limit, whatever the store and the engine."""

import contextlib
import os
import signal
import socket
import threading
import time
from datetime import timedelta

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks

LIMIT = 40  # of the group: nobody waits so long


def _store(kind, place, rank, n):
    if kind == "file":
        return dist.FileStore(place, n)
    return dist.TCPStore("127.0.0.1", int(place), n, rank == 0, timedelta(seconds=LIMIT), wait_for_workers=False)


def meet(rank, n, kind, place, dies_at, late, folder):
    """Rank 1 dies once a key is there; rank 2 comes later. Where the machine is so busy that the ranks have met by then, they work until it dies."""
    store = _store(kind, place, rank, n)
    if rank == 1:
        other = _store(kind, place, rank, n)

        def die():
            other.wait([f"world1/0/meeting/{key}" for key in ("machine/1", dies_at)], timedelta(seconds=LIMIT))
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=die, daemon=True).start()
    if rank == 2:
        time.sleep(late)
    began = time.monotonic()
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=timedelta(seconds=LIMIT))
        while time.monotonic() - began < LIMIT:
            dist.all_reduce(tg.ones(3))
    except dist.DistError as error:
        said = f"{type(error).__name__}: {error}", time.monotonic() - began
        open(f"{folder}/heard{rank}", "w").close()
        while rank == 0 and not os.path.exists(f"{folder}/heard2") and time.monotonic() - began < LIMIT:
            time.sleep(0.01)  # it has the store, which rank 2 asks
        return said
    return "nothing", 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("engine, dies_at, late, soon", [
    ("auto", "machine/2", 0, 4), pytest.param("gloo", "gloo/0/here/0", 0, 16, marks=pytest.mark.long), pytest.param("auto", "machine/1", 5, 4, marks=pytest.mark.long),
    pytest.param("gloo", "machine/1", 5, 4, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_a_rank_that_dies_while_ranks_meet(kind, engine, dies_at, late, soon, tmp_path):
    place = str(free_port()) if kind == "tcp" else str(tmp_path / "store")
    outcomes = run_ranks(3, meet, kind, place, dies_at, late, str(tmp_path), timeout=60, world=False,
                         environment={"TAPEGRAD_DISTRIBUTED_ENGINE": engine})
    assert outcomes[1].code == -signal.SIGKILL
    for rank in (0, 2):
        said, seconds = outcomes[rank].result
        assert said.startswith("DistBackendError: ") and ("rank 1" in said or "rank 0 failed" in said or "rank 2 failed" in said), said
        # Without a server that sees connections end, a death is seen by those who know the process: when all have come.
        assert seconds < (soon if kind == "tcp" or late == 0 else late + soon), (rank, seconds, said)


def leave_with_a_message(rank, n, waits_in):
    """Rank 0 ends the group with a message that rank 1 does not take, because it waits for something else."""
    if rank == 0:
        dist.send(tg.ones(4), 1, tag=5)
        dist.destroy_process_group()
        return "left"
    began = time.monotonic()
    try:
        if waits_in == "all_reduce":
            dist.all_reduce(tg.ones(1000))
        else:
            dist.recv(tg.ones(4), 0 if waits_in == "recv" else None, tag=6)
    except dist.DistError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "nothing", 0


@pytest.mark.parametrize("environment", [pytest.param({}, id="shared"),
                                         pytest.param({"TAPEGRAD_SHARED_MEMORY": "0"}, id="gloo", marks=pytest.mark.long)])
@pytest.mark.parametrize("waits_in", ["all_reduce", pytest.param("recv", marks=pytest.mark.long), pytest.param("recv from any", marks=pytest.mark.long)])
def test_a_rank_that_ends_with_an_untaken_message_holds_nobody_to_the_limit(environment, waits_in):
    outcomes = run_ranks(2, leave_with_a_message, waits_in, environment=environment, timeout=60, limit=LIMIT)
    left, (said, seconds) = results(outcomes)
    assert left == "left" and seconds < 15, (said, seconds)
    if not environment and waits_in != "all_reduce":  # rank 1 has put the message aside for a later receive
        assert "rank 0 has left the group" in said
    else:
        assert "rank 0 has ended the group" in said
        assert "messages to rank 1 were sent and not received" in outcomes[0].output


def wait_for_a_stopped_rank(rank, n, port, folder):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=n, timeout=timedelta(seconds=3))
    dist.barrier()
    open(f"{folder}/{rank}", "w").close()
    if rank == 0:
        time.sleep(30)
    began = time.monotonic()
    try:
        dist.recv(tg.ones(1_000_000), 0)
    except dist.DistError as error:
        said = str(error)
    with contextlib.suppress(dist.DistError):
        dist.destroy_process_group()
    return said, time.monotonic() - began


@pytest.mark.parametrize("environment", [pytest.param({}, id="shared"),
                                         pytest.param({"TAPEGRAD_SHARED_MEMORY": "0"}, id="gloo", marks=pytest.mark.long)])
def test_a_stopped_rank_that_serves_the_store_holds_others_little_beyond_the_limit(environment, tmp_path):
    def stop(ranks):
        while len(os.listdir(tmp_path)) < 2 and not any(r.poll() for r in ranks):
            time.sleep(0.01)
        ranks[0].send_signal(signal.SIGSTOP)
        while not ranks[1].poll() and time.monotonic() - began < 40:
            time.sleep(0.01)
        ranks[0].send_signal(signal.SIGKILL)

    began = time.monotonic()
    outcomes = run_ranks(2, wait_for_a_stopped_rank, free_port(), str(tmp_path), world=False, meanwhile=stop, environment=environment)
    said, seconds = outcomes[1].result
    assert "timed out after 3" in said and "rank 0" in said and seconds < 3 + 2.5, (said, seconds)
