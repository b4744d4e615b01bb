"""Shards go on from one common step, whatever happened to some of their files; tables may have an optimizer of their own."""

import functools
import os
import threading
import warnings

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.parameter_server.jobs import adagrad, alone, equal, loss_of, model, raised, served
from tapegrad import nn, optim
from tapegrad.distributed.parameter_server import ParameterClient, ParameterServer
from tapegrad.distributed.parameter_server._files import ShardFiles
from threads import run_all


def train(folder, until: int, shards: int = 2, **options) -> dict:
    """One worker, until the servers have made so many steps."""
    with served(shards, workers=1, first=1, folder=folder, **{"save_every": 1, **options}) as (store, servers), \
            ParameterClient(store, 0, net := model()) as client:
        versions = client.pull()
        assert len(set(versions)) == 1, versions
        while (step := client.pull()[0]) < until:
            net.zero_grad()
            loss_of(net, step).backward()
            assert client.push() == [True] * shards
        assert [s.version for s in servers] == [until] * shards
        return net.state_dict()


def steps_in(folder, shard: int) -> list[int]:
    return ShardFiles(folder, shard, 2, 3, None).steps()


def test_the_newest_step_that_all_shards_have(tmp_path):
    train(tmp_path, 6, keep=2)
    assert steps_in(tmp_path, 0)[-2:] == steps_in(tmp_path, 1)[-2:] == [5, 6]
    os.unlink(tmp_path / "shard-0001.step-000000006.tape")  # it was killed before it saved that one
    equal(train(tmp_path, 9, keep=2), alone(9))
    path = tmp_path / "shard-0000.step-000000009.tape"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="step 9 cannot be read, and the one before it is taken: shard 0"):
        equal(train(tmp_path, 12, keep=5), alone(12))


def test_files_of_what_is_done_again_are_removed(tmp_path):
    train(tmp_path, 4, save_every=2)
    other = ShardFiles(tmp_path, 1, 2, 3, None)
    other.save(6, {})  # only this shard had come so far
    train(tmp_path, 5, save_every=100)
    assert steps_in(tmp_path, 0) == steps_in(tmp_path, 1) == [2, 4, 5]


def resume_all(*found) -> list:
    """What resume() gives or raises in each shard's thread; found: folder and number of shards."""
    store, said = dist.HashStore(), [None] * len(found)

    def one(k):
        try:
            said[k] = ShardFiles(found[k], k, len(found), 3, store).resume()
        except RuntimeError as error:
            said[k] = str(error)

    run_all([functools.partial(one, k) for k in range(len(found))])
    return said


def test_folders_of_their_own_and_none_in_common(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    files = [ShardFiles(f, k, 2, 3, None) for k, f in enumerate(folders)]
    assert resume_all(*folders) == [None, None]
    files[0].save(10, {"of": 10})
    assert resume_all(*folders) == [None, None] and files[0].steps() == []  # killed while it first saved: begins anew
    for step in (10, 20):
        files[0].save(step, {"of": step})
    for said in resume_all(*folders):
        assert said == ("parameter server: there is no step that all shards have saved: shard 0 has 10, 20; shard 1 has none\n"
                        "remove the files to begin anew")
    assert files[0].steps() == [10, 20]
    files[1].save(10, {"of": 10})
    files[1].save(30, {"of": 30})
    assert resume_all(*folders) == [{"of": 10}] * 2
    assert files[0].steps() == files[1].steps() == [10]
    for f in files:
        (path,) = (tmp_path / "ab"[f.shard]).iterdir()
        path.write_bytes(path.read_bytes()[:-3])
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert all("no step that all shards have saved" in said for said in resume_all(*folders))


def test_the_newest_common_step_stays_when_one_shard_cannot_save(tmp_path):
    store = dist.HashStore()
    files = [ShardFiles(tmp_path, k, 2, 1, store) for k in range(2)]
    for step in range(1, 6):
        for f in files:
            if step == 1 or f.shard == 0:  # the other one's disk is full
                f.save(step, {})
            f.tidy()
    assert files[0].steps() == [1, 2, 3, 4, 5] and files[1].steps() == [1]
    files[1].save(5, {})
    for f in (*files[::-1], *files):
        f._untidy = True
        f.tidy()
    assert files[0].steps() == files[1].steps() == [5]


def test_another_number_of_shards_is_refused(tmp_path):
    train(tmp_path, 2)
    server = ParameterServer(dist.HashStore(), adagrad, workers=1, folder=tmp_path)
    server.close()  # serves nobody
    with pytest.raises(ValueError, match="the state of a shard of 2 does not fit one of 1"):
        server.serve()


class Halfway(optim.SGD):
    """The third step fails when half of it is done."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps == 3:
            with tg.no_grad():
                self.param_groups[0]["params"][0].fill_(99)
            raise ArithmeticError("halfway")
        return super().step(closure)


def test_a_step_that_failed_is_not_saved(tmp_path):
    store = dist.HashStore()
    server = ParameterServer(store, lambda ps: Halfway(ps, lr=0.1), workers=1, folder=tmp_path, save_every=2)
    serving = threading.Thread(target=server.serve)
    serving.start()
    with ParameterClient(store, 0, net := model()) as client:
        client.pull()
        loss_of(net, 0).backward()
        assert [raised(client.push) for _ in range(3)][:2] == ["", ""]
    serving.join(10)
    ((path),) = tmp_path.iterdir()
    assert path.name == "shard-0000.step-000000002.tape"
    saved = tg.load(path)
    assert saved["version"] == 2 and all(bool((p != 99).all()) for p in saved["parameters"].values())


# --- tables ---

def two_optimizers(net, steps: int) -> dict:
    """One process: SGD with momentum for the rest, Adagrad for the table."""
    table, rest = [net[0].weight], [p for n, p in net.named_parameters() if n != "0.weight"]
    optimizers = [optim.SGD(rest, lr=0.05, momentum=0.9), optim.Adagrad(table, lr=0.3)]
    for step in range(steps):
        net.zero_grad()
        loss_of(net, step).backward()
        for optimizer in optimizers:
            optimizer.step()
    return net.state_dict()


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_tables_have_an_optimizer_of_their_own(shards, tmp_path):
    def part(folder, until):
        store = dist.HashStore()
        made = []

        def note(name, make):
            return lambda ps: made.append((name, [list(p.shape) for p in ps])) or make(ps)

        servers = [ParameterServer(store, note("rest", lambda ps: optim.SGD(ps, lr=0.05, momentum=0.9)), workers=1, staleness=0, shard=k, shards=shards,
                                   table_optimizer=note("tables", lambda ps: optim.Adagrad(ps, lr=0.3)), folder=folder, save_every=2) for k in range(shards)]
        threads = [threading.Thread(target=s.serve) for s in servers]
        for t in threads:
            t.start()
        with ParameterClient(store, 0, net := model()) as client:
            while (step := client.pull()[0]) < until:
                net.zero_grad()
                loss_of(net, step).backward()
                client.push()
        for t in threads:
            t.join(10)
        assert all(len(shapes) == 1 and shapes[0][1] == 4 for name, shapes in made if name == "tables")
        assert sum(name == "tables" for name, _ in made) == shards
        return net.state_dict()

    part(tmp_path, 3)
    equal(part(tmp_path, 5), two_optimizers(model(), 5))


def test_a_shard_that_has_nothing_but_rows_or_nothing_at_all():
    tg.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 2))
    with served(7, workers=1) as (store, servers), ParameterClient(store, 0, net) as client:
        assert any(not s.parameters for s in servers)
        client.pull()
        net(tg.ones(1, 3)).sum().backward()
        assert client.push() == [True] * 7
        assert [s.version for s in servers] == [1] * 7


def test_what_is_a_table_is_one_for_all():
    with served(workers=2) as (store, _), ParameterClient(store, 0, model()), \
            pytest.raises(RuntimeError, match="'0.weight' is no table here, and is one"):
        ParameterClient(store, 1, model(), tables=[])


def test_unused_rows_keep_their_state():
    """Row-wise: a row without a gradient is not touched, also where the other rows' states move."""
    with served(2, workers=1) as (store, servers), ParameterClient(store, 0, net := model()) as client:
        client.pull()
        before = net[0].weight.detach().clone()
        net(tg.tensor([[3, 4]])).sum().backward()
        client.push()
        client.pull()
        changed = (net[0].weight != before).any(1).nonzero().flatten().tolist()
        assert changed == [3, 4]
        for server in servers:
            (state,) = [s for s in server.state_dict()["optimizer"]["state"].values() if s["sum"].shape[1:] == (4,) and s["sum"].dim() == 2][:1]
            assert (state["sum"] != 0).any(1).nonzero().flatten().tolist() in ([1], [2])  # rows 3 and 4 are the second of one and the third of the other
