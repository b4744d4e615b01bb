"""Parameter servers: what they compute is what one process computes, and what happens to one worker happens to no other."""

import functools
import os
import signal
import socket
import threading
import time
import warnings

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.parameter_server.jobs import adagrad, alone, equal, loss_of, model, raised, served
from distributed.ranks import results, run_ranks
from tapegrad import nn, optim
from tapegrad.distributed.parameter_server import ParameterClient, ParameterServer
from tapegrad.distributed.parameter_server._messages import decode, encode
from threads import run_all


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("options", [{"staleness": 0}, {"first": 1}, {}], ids=["staleness 0", "synchronous", "asynchronous"])
def test_one_worker_gives_the_bits_of_one_process(shards, options):
    with served(shards, workers=1, **options) as (store, _), ParameterClient(store, 0, net := model()) as client:
        for step in range(5):
            client.pull()
            net.zero_grad()
            loss_of(net, step).backward()
            assert client.push() == [True] * shards
        client.pull()
        equal(net.state_dict(), alone(5))


def work(store, worker, workers, steps, outcome, delay=0.0, **options):
    net = model()
    with ParameterClient(store, worker, net, **options) as client:
        step = 0
        while step < steps:
            step = client.pull()[0]
            if step >= steps:
                break
            net.zero_grad()
            loss_of(net, step, worker, workers).backward()
            time.sleep(delay)
            client.push()
        client.pull()
    outcome[worker] = {k: v.detach().clone() for k, v in net.state_dict().items()}


def run_workers(store, workers, steps, delays=(), **options):
    outcome: dict = {}
    run_all([functools.partial(work, store, w, workers, steps, outcome, delays[w] if delays else 0.0, **options) for w in range(workers)], 30)
    return outcome


def held_up(client, seconds: float) -> threading.Thread:
    """A thread in client.pull(), which does not come back within the seconds."""
    thread = threading.Thread(target=client.pull)
    thread.start()
    thread.join(seconds)
    assert thread.is_alive()
    return thread


def test_workers_that_go_together_give_the_mean_of_their_gradients():
    bits = []
    for _ in range(2):
        with served(2, workers=3, first=3) as (store, servers):
            outcome = run_workers(store, 3, 4)
            assert all(s.dropped == 0 and s.version == 4 and s.recorded == [0, 1, 2] for s in servers)
        for other in (1, 2):
            equal(outcome[other], outcome[0])
        bits.append(outcome[0])
    equal(bits[0], bits[1])
    equal(bits[0], alone(4, 3), 1e-12)


def test_a_slow_worker_is_not_waited_for():
    since = time.monotonic()
    with served(workers=3, first=2) as (store, (server,)):
        run_workers(store, 3, 6, (0.0, 0.0, 0.5))
        assert server.version >= 6 and server.dropped >= 1
        assert time.monotonic() - since < 3  # six steps with the slow one take that long


def test_late_gradients_change_nothing():
    with served(workers=2, first=1) as (store, (server,)):
        nets = [model(), model()]
        clients = [ParameterClient(store, w, nets[w]) for w in range(2)]
        for net, client in zip(nets, clients, strict=True):
            client.pull()
            loss_of(net, 0).backward()
        assert clients[0].push() == [True]
        before = server.state_dict()["parameters"]
        assert clients[1].push() == [False] and server.dropped == 1
        equal(server.state_dict()["parameters"], before)
        assert clients[1].pull() == [1]
        for client in clients:
            client.close()


def test_nobody_is_further_ahead_than_the_bound():
    with served(workers=2, staleness=2) as (store, _):
        net = model()
        fast, slow = ParameterClient(store, 0, net), ParameterClient(store, 1, model())
        grads = {k: tg.zeros_like(p) for k, p in net.named_parameters()}
        for _ in range(3):
            fast.pull()
            fast.push(grads)
        waiting = held_up(fast, 0.3)  # three pushes ahead
        slow.pull()
        slow.push(grads)
        waiting.join(5)
        assert not waiting.is_alive()
        fast.push(grads)
        waiting = held_up(fast, 0.2)
        slow.close()  # who has left holds nobody up
        waiting.join(5)
        assert not waiting.is_alive()
        fast.close()


def test_sixteen_bits_and_rows_that_are_asked_for():
    with served(2, workers=1) as (store, servers), ParameterClient(store, 0, net := model(), dtype=tg.bfloat16) as client:
        client.pull()
        assert bool((net[2].weight == net[2].weight.bfloat16().double()).all())
        loss_of(net, 0).backward()
        client.push()
        before = net[0].weight.detach().clone()
        client.pull(rows={"0.weight": tg.tensor([[3, 4], [4, 4]])})
        changed = (net[0].weight != before).any(1).nonzero().flatten().tolist()
        assert set(changed) <= {3, 4} and changed
        exact = alone(1)["2.weight"]
        assert float((servers[0].parameters | servers[1].parameters)["2.weight"].sub(exact).abs().max()) < 0.25  # Adagrad's first step: signs


def test_a_shard_goes_on_from_its_file(tmp_path):
    def train(steps, folder):
        with served(2, workers=1, first=1, folder=folder, save_every=2) as (store, servers), ParameterClient(store, 0, net := model()) as client:
            for _ in range(steps):
                step = client.pull()[0]
                net.zero_grad()
                loss_of(net, step).backward()
                client.push()
            client.pull()
            return net.state_dict()

    train(3, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [f"shard-000{k}.step-00000000{step}.tape" for k in range(2) for step in (2, 3)]
    equal(train(2, tmp_path), alone(5))


# --- who does not belong, and what is wrong ---

def test_strangers_and_damaged_bytes_harm_nobody():
    with served(workers=1, first=1) as (store, (server,)):
        host, port = store.get("parameter_server/0").decode().split()[:2]
        silent = socket.create_connection((host, int(port)))  # says nothing and stays
        for data in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 64, b"\x00\x00\x00\x14" + b"x" * 20):
            with socket.create_connection((host, int(port))) as s:
                s.sendall(data)
        wrong = dist.HashStore()
        for key in ("parameter_server/0",):
            wrong.set(key, store.get(key))
        wrong.set("parameter_server/secret", "0" * 64)
        with pytest.raises(dist.DistBackendError, match="shard 0 and this worker do not know the same secret"):
            ParameterClient(wrong, 0, model(), timeout=5)
        with ParameterClient(store, 0, net := model()) as client:
            with pytest.raises(dist.DistBackendError, match="shard 0 has gone"):  # nobody may say that it is a worker that is there
                ParameterClient(store, 0, model(), timeout=5)
            client.pull()
            loss_of(net, 0).backward()
            client.push()
        assert server.version == 1
        silent.close()
    good = encode({"op": "push"}, [tg.arange(3.0)])
    assert decode(good)[1][0].tolist() == [0, 1, 2]
    for cut in range(len(good)):
        with pytest.raises(ValueError):
            decode(good[:cut])
    for bad in (good + b"x", good.replace(b"float32", b"float33"), good.replace(b"[3]", b"[4]"), good.replace(b"[3]", b"{} ")):
        with pytest.raises((ValueError, TypeError)):
            decode(bad)


def test_what_does_not_fit_is_refused_and_the_worker_goes_on():
    with served(workers=2) as (store, (server,)), ParameterClient(store, 0, net := model()) as client:
        client.pull()
        with pytest.raises(RuntimeError, match=r"the gradient of '2.weight' has shape \[1\]: expected \[6, 8\]"):
            client.push({"2.weight": tg.zeros(1)})
        other = nn.Sequential(nn.Embedding(11, 4, sparse=True), nn.Flatten(), nn.Linear(8, 7)).double()
        with pytest.raises(RuntimeError, match="'2.weight' has shape"):
            ParameterClient(store, 1, other)
        with pytest.raises(ValueError, match="no parameters nonsense"):
            ParameterClient(store, 1, net, tables=["nonsense"])
        loss_of(net, 0).backward()
        assert client.push() == [True] and server.version == 1
    for wrong in ({"workers": 0}, {"workers": 2, "first": 3}, {"workers": 2, "first": 1, "staleness": 0}, {"workers": 1, "shard": 1}):
        with pytest.raises(ValueError, match="ParameterServer"):
            ParameterServer(dist.HashStore(), adagrad, **wrong)


# --- faults: ranks are processes, the last ones work ---

def rank_of_job(rank, size, store_path, first, steps, fault):
    store = dist.FileStore(store_path, size)
    if rank == 0:
        server = ParameterServer(store, adagrad, workers=size - 1, first=first, timeout=20)
        if fault == "server":
            store.set("server", str(os.getpid()))
        server.serve()
        return server.version, server.dropped
    net, since = model(), 0.0
    try:
        with ParameterClient(store, rank - 1, net, timeout=20) as client:
            while (step := client.pull()[0]) < steps:
                if rank == 1 and step >= 3 and fault:
                    if fault == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    if fault == "stop":
                        store.set("stopped", "1")
                        os.kill(os.getpid(), signal.SIGSTOP)
                        fault = ""
                    if fault == "server":
                        since = time.monotonic()
                        os.kill(int(store.get("server")), signal.SIGKILL)
                net.zero_grad()
                loss_of(net, step, rank - 1, size - 1).backward()
                client.push()
    except dist.DistBackendError as error:
        return f"{str(error)[:40]} {'soon' if not since or time.monotonic() - since < 2 else 'late'}"
    if rank == size - 1:
        store.set("over", "1")
    return "done"


def continue_later(store_path):
    def meanwhile(ranks):
        deadline = time.monotonic() + 30
        store = dist.FileStore(store_path, 4)
        while not store.check(["over"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        ranks[1].send_signal(signal.SIGCONT)  # it goes on when the others are done, and ends in order

    return meanwhile


@pytest.mark.parametrize("fault", ["kill", pytest.param("stop", marks=pytest.mark.long)])
def test_a_worker_that_dies_or_stops_does_not_stop_the_job(fault, tmp_path):
    path = str(tmp_path / "store")
    outcomes = run_ranks(4, rank_of_job, path, 2, 12, fault, world=False, timeout=60, meanwhile=continue_later(path) if fault == "stop" else None)
    if fault == "kill":
        assert outcomes[1].code == -signal.SIGKILL
        outcomes = [o for o in outcomes if o.rank != 1]
    assert [r for r in results(outcomes) if r != "done"] == [results(outcomes)[0]] and results(outcomes)[0][0] >= 12


def test_a_server_that_is_killed_is_an_error_of_its_workers(tmp_path):
    outcomes = run_ranks(3, rank_of_job, str(tmp_path / "store"), 2, 1000, "server", world=False, timeout=60)
    assert outcomes[0].code == -signal.SIGKILL
    assert all(
        r.startswith("parameter server: shard 0 has gone") and r.endswith("soon") for r in results(outcomes[1:]))


def test_too_few_workers_are_left():
    with served(workers=2, first=2) as (store, _):
        nets = [model(), model()]
        clients = [ParameterClient(store, w, nets[w]) for w in range(2)]
        for client in clients:
            client.pull()
        loss_of(nets[0], 0).backward()
        clients[0].push()
        clients[1].close()
        with pytest.raises(RuntimeError, match="1 workers are left, and a step takes 2"):
            clients[0].pull()
        clients[0].close()


class Failing(optim.SGD):
    def step(self, closure=None):
        raise ArithmeticError("not today")


@pytest.mark.parametrize("options", [{"first": 2}, {"staleness": 0}], ids=["synchronous", "asynchronous"])
def test_an_optimizer_that_fails_is_told_to_all(options):
    store = dist.HashStore()
    server = ParameterServer(store, lambda ps: Failing(ps, lr=0.1), workers=2, timeout=20, **options)
    serving = threading.Thread(target=server.serve)
    serving.start()
    said = []
    clients = [ParameterClient(store, w, model()) for w in range(2)]
    grads = {"2.weight": tg.ones(6, 8, dtype=tg.float64)}
    for client in clients:
        client.pull()
    for act in (lambda: clients[0].push(grads), clients[0].pull, lambda: clients[1].push(grads), clients[1].pull):
        if options == {"first": 2} and len(said) == 1:
            waiting = threading.Thread(target=lambda: said.append(raised(clients[0].pull)))
            waiting.start()
            said.append("waits")
        else:
            said.append(raised(act))
    if options == {"first": 2}:
        waiting.join(10)
    assert all("the optimizer failed: ArithmeticError: not today" in s or "ArithmeticError: not today" in s for s in said if s not in ("", "waits")), said
    assert sum("not today" in s for s in said) >= 3, said
    for client in clients:
        client.close()
    serving.join(10)
    assert not serving.is_alive()


def test_a_disk_that_is_full_in_the_middle(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with served(workers=1, first=1, folder=tmp_path, save_every=1) as (store, (server,)):
        with ParameterClient(store, 0, net := model()) as client, monkeypatch.context() as m, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m.setattr("tapegrad.serialization.save", full)
            for _ in range(2):
                client.pull()
                net.zero_grad()
                loss_of(net, 0).backward()
                assert client.push() == [True]
        assert server.version == 2
    assert [p.name for p in tmp_path.iterdir()] == ["shard-0000.step-000000002.tape"]  # the last save fitted


def test_who_waits_too_long_is_told_and_goes_on():
    with served(workers=2, staleness=0, timeout=0.5) as (store, _):
        fast, slow = ParameterClient(store, 0, net := model()), ParameterClient(store, 1, model())
        fast.push({k: tg.zeros_like(p) for k, p in net.named_parameters()})
        with pytest.raises(RuntimeError, match=r"the slowest worker did not come to 1 pushes within 0.5 s"):
            fast.pull()
        slow.close()
        fast.pull()
        fast.close()
