"""Workers that are not heard of, and whose key is wrong: who is stopped holds nobody up for long, and goes on when it comes back."""

import gc
import os
import signal
import socket
import threading
import time
import weakref
from datetime import timedelta

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.parameter_server.jobs import adagrad, equal, loss_of, model, served
from distributed.ranks import results, run_ranks
from tapegrad.distributed.parameter_server import ParameterClient, ParameterServer

PATIENCE = 0.5


def stopped_in_the_middle(rank, size, path, steps):
    """Rank 0 serves, rank 1 is stopped after two pushes until the others have made `steps`, and goes on for three more."""
    store = dist.FileStore(path, size)
    if rank == 0:
        server = ParameterServer(store, adagrad, workers=size - 1, staleness=2, patience=PATIENCE, timeout=20)
        server.serve()
        return server.version, server.dropped
    net, taken, longest = model(), [], 0.0
    with ParameterClient(store, rank - 1, net, timeout=30) as client:
        for step in range(5 if rank == 1 else steps):
            since = time.monotonic()
            client.pull()
            longest = max(longest, time.monotonic() - since)
            net.zero_grad()
            loss_of(net, step).backward()
            if rank == 1 and step == 2:
                store.set("stopped", "1")
                os.kill(os.getpid(), signal.SIGSTOP)
            taken += client.push()
        store.set(f"over{rank}", "1")
        if rank > 1:
            store.wait(["over1"])
    return taken, longest


def continue_when_others_are_done(path):
    def meanwhile(ranks):
        store = dist.FileStore(path, 5)
        store.wait(["over2", "over3"], timedelta(seconds=30))
        ranks[1].send_signal(signal.SIGCONT)

    return meanwhile


@pytest.mark.long
def test_a_worker_that_is_stopped_is_soon_not_waited_for(tmp_path):
    path = str(tmp_path / "store")
    (version, dropped), stopped, *others = results(run_ranks(4, stopped_in_the_middle, path, 20, world=False, timeout=60,
                                                             meanwhile=continue_when_others_are_done(path)))
    assert stopped[0] == [True, True, False, True, True]  # its values were older than the bound allows
    assert version == 44 and dropped == 1
    for taken, longest in others:
        assert taken == [True] * 20 and longest < 5 * PATIENCE, longest


def test_a_worker_that_computes_for_long_is_waited_for():
    with served(workers=2, staleness=0, patience=PATIENCE) as (store, _):
        slow, fast = ParameterClient(store, 0, model()), ParameterClient(store, 1, net := model())
        for client in (slow, fast):
            client.pull()
        grads = {k: tg.zeros_like(p) for k, p in net.named_parameters()}
        fast.push(grads)
        waiting = threading.Thread(target=fast.pull)
        waiting.start()
        waiting.join(3 * PATIENCE)
        assert waiting.is_alive()
        assert slow.push(grads) == [True]
        waiting.join(5)
        assert not waiting.is_alive()
        slow.close()
        fast.close()


def test_who_comes_back_in_time_goes_on_where_it_was():
    with served(workers=2, staleness=3, patience=PATIENCE) as (store, (server,)):
        quiet, other = ParameterClient(store, 0, net := model()), ParameterClient(store, 1, model())
        grads = {k: tg.zeros_like(p) for k, p in net.named_parameters()}
        quiet.pull()
        quiet._leaves.set()  # says nothing any more
        time.sleep(2 * PATIENCE)
        for _ in range(4):
            other.pull()
            other.push(grads)
        assert quiet.push(grads) == [True] and server._alive == {0: 1, 1: 4}  # nobody is further ahead than the bound
        time.sleep(2 * PATIENCE)
        for _ in range(2):
            other.pull()
            other.push(grads)
        assert quiet.push(grads) == [False] and server._alive == {0: 6, 1: 6}
        quiet.pull()
        assert quiet.push(grads) == [True] and server._alive == {0: 7, 1: 6}
        assert server.dropped == 1 and server.version == 8
        quiet.close()
        other.close()


def test_without_patience_everyone_counts():
    with served(workers=2, staleness=0, patience=None, timeout=1.0) as (store, _):
        quiet, other = ParameterClient(store, 0, net := model()), ParameterClient(store, 1, model())
        assert quiet._beating is None
        other.push({k: tg.zeros_like(p) for k, p in net.named_parameters()})
        with pytest.raises(RuntimeError, match="the slowest worker did not come to 1 pushes within 1 s"):
            other.pull()
        quiet.close()
        other.close()
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="patience must be a number of seconds above 0, or None"):
            ParameterServer(dist.HashStore(), adagrad, workers=1, patience=wrong)


def test_a_client_that_nobody_holds_ends_its_thread():
    with served(workers=1, staleness=0, patience=PATIENCE) as (store, (server,)):
        client = ParameterClient(store, 0, model())
        there, beating = weakref.ref(client), client._beating
        assert beating.is_alive()
        del client
        gc.collect()
        assert there() is None
        beating.join(5)
        assert not beating.is_alive()


# --- a call that is interrupted ---

def test_an_answer_that_nobody_read_is_not_taken_for_a_later_one():
    with served(2, workers=2, staleness=0, patience=None) as (store, _):
        client, other = ParameterClient(store, 0, net := model()), ParameterClient(store, 1, model())
        hear = client._hear

        def interrupted(shard):
            raise KeyboardInterrupt

        client._hear = interrupted
        with pytest.raises(KeyboardInterrupt):
            client.pull()
        client._hear = hear
        with pytest.raises(dist.DistBackendError, match="shard 0 has gone"):
            client.push({})
        client.close()
        deadline = time.monotonic() + 10
        while True:  # the servers notice it within a moment, and the same worker may come anew
            try:
                again = ParameterClient(store, 0, net)
                break
            except dist.DistBackendError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        other.push({})
        again.pull()
        again.close()
        other.close()


# --- the job's token ---

def test_the_token_guards_the_connections(monkeypatch):
    monkeypatch.setenv("TAPEGRAD_JOB_TOKEN", "right")
    with served(workers=1, first=1) as (store, (server,)):
        for wrong in ("wrong", ""):
            monkeypatch.setenv("TAPEGRAD_JOB_TOKEN", wrong)
            with pytest.raises(dist.DistBackendError, match="shard 0 and this worker do not know the same secret: is it another job, or is "
                                                            "TAPEGRAD_JOB_TOKEN another one here?"):
                ParameterClient(store, 0, model(), timeout=5)
        monkeypatch.setenv("TAPEGRAD_JOB_TOKEN", "right")
        with ParameterClient(store, 0, net := model()) as client:
            client.pull()
            loss_of(net, 0).backward()
            assert client.push() == [True] and server.version == 1
    monkeypatch.delenv("TAPEGRAD_JOB_TOKEN")
    with served(workers=1, first=1) as (store, _):
        monkeypatch.setenv("TAPEGRAD_JOB_TOKEN", "right")  # the server has none
        with pytest.raises(dist.DistBackendError, match="do not know the same secret"):
            ParameterClient(store, 0, model(), timeout=5)
        monkeypatch.delenv("TAPEGRAD_JOB_TOKEN")
        with ParameterClient(store, 0, net) as client:
            client.pull()


def test_connections_are_watched():
    """Machines that are cut off are noticed: the cut itself is in test_cut_link.py."""
    with served(workers=1, first=1) as (store, _), ParameterClient(store, 0, model()) as client, \
            socket.socket(fileno=os.dup(client._connections[0].fileno())) as s:
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000


def test_bits_do_not_depend_on_patience():
    bits = []
    for patience in (None, 0.05):
        with served(2, workers=1, staleness=0, patience=patience) as (store, _), ParameterClient(store, 0, net := model()) as client:
            for step in range(4):
                client.pull()
                net.zero_grad()
                loss_of(net, step).backward()
                time.sleep(0.1)
                client.push()
            client.pull()
            bits.append(net.state_dict())
    equal(*bits)
