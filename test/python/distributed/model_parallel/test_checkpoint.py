"""Checkpoints of several ranks: loaded by other numbers of ranks and other cuts, and complete or not there."""

import os

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed import checkpoint
from tapegrad.distributed.fsdp import fully_shard


def make(sharded: bool):
    tg.manual_seed(3)
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2)).double()
    if sharded:
        fully_shard(net)
    return net, tg.optim.Adam(net.parameters(), lr=0.1)


def step(net, optimizer, i: int) -> None:
    x = tg.randn(6, 4, generator=tg.Generator().manual_seed(i), dtype=tg.float64)
    optimizer.zero_grad()
    net(x).pow(2).mean().backward()
    optimizer.step()


def states(net, optimizer, full: bool = False):
    options = checkpoint.StateDictOptions(full_state_dict=full)
    model, optim = checkpoint.get_state_dict(net, optimizer, options=options)
    return {"model": model, "optim": optim}


def plain(value):
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


def train(rank: int, n: int, folder: str, sharded: bool, later: bool):
    """Two steps, a save, two more steps: what the parameters and states are then. Every rank sees the same rows."""
    net, optimizer = make(sharded)
    for i in range(2):
        step(net, optimizer, i)
    state = {**states(net, optimizer), "step": 2, "note": ["a", {"b": 1.5}]}
    if later:
        future = checkpoint.async_save(state, checkpoint_id=folder)
    else:
        checkpoint.save(state, checkpoint_id=folder)
    for i in range(2, 4):
        step(net, optimizer, i)
    if later:
        future.result()
    return plain(states(net, optimizer, full=True))


def go_on(rank: int, n: int, folder: str, sharded: bool):
    """The same from the checkpoint."""
    net, optimizer = make(sharded)
    state = {**states(net, optimizer), "step": 0, "note": [None, {"b": 0}]}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["step"] == 2 and state["note"] == ["a", {"b": 1.5}]
    checkpoint.set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    for i in range(2, 4):
        step(net, optimizer, i)
    return plain(states(net, optimizer, full=True))


def close(a, b, path: str = "") -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for k in a:
            close(a[k], b[k], f"{path}.{k}")
    elif isinstance(a, float) or (isinstance(a, list) and not any(isinstance(x, (str, dict)) for x in a)):
        np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=path)
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            close(x, y, f"{path}[{i}]")
    else:
        assert a == b, path


@pytest.mark.parametrize(("save", "load"), [((2, True), (3, True)), ((3, True), (1, False)), ((1, False), (2, True))],
                         ids=["2 to 3 ranks", "3 ranks to one process", "one process to 2 ranks"])
def test_a_checkpoint_is_loaded_by_another_number_of_ranks(tmp_path, save, load):
    folder = str(tmp_path / "run")
    saved = results(run_ranks(save[0], train, folder, save[1], save[0] == 2, start="fork")) if save[1] else [train(0, 1, folder, False, False)]
    loaded = results(run_ranks(load[0], go_on, folder, load[1], start="fork")) if load[1] else [go_on(0, 1, folder, False)]
    for state in [*saved[1:], *loaded]:
        close(state, saved[0])
    assert sorted(os.listdir(folder))[0] == ".manifest.tape" and len(os.listdir(folder)) == save[0] + 1


def test_an_incomplete_or_damaged_checkpoint_is_refused(tmp_path):
    state = {"w": tg.arange(6.0), "k": 1}
    with pytest.raises(checkpoint.CheckpointException, match="no complete checkpoint"):
        checkpoint.load({"w": tg.zeros(6)}, checkpoint_id=tmp_path / "none")
    folder = tmp_path / "one"
    checkpoint.save(state, checkpoint_id=folder)
    first = set(os.listdir(folder))
    checkpoint.save({"w": tg.arange(6.0) * 2, "k": 2}, checkpoint_id=folder)
    assert len(set(os.listdir(folder)) & first) == 1, "files of the former save are gone, the manifest was replaced"
    again = {"w": tg.zeros(6), "k": 0}
    checkpoint.load(again, checkpoint_id=folder)
    assert again["w"].tolist() == [0, 2, 4, 6, 8, 10] and again["k"] == 2
    with pytest.raises(ValueError, match=r"'w' has shape \[6\]"):
        checkpoint.load({"w": tg.zeros(7)}, checkpoint_id=folder)
    with pytest.raises(RuntimeError, match="lacks 1 of the state's entries: v"):
        checkpoint.load({"w": tg.zeros(6), "v": tg.zeros(1)}, checkpoint_id=folder)
    (data,) = folder.glob("rank-*")
    bytes_ = bytearray(data.read_bytes())
    bytes_[-3] ^= 1
    data.write_bytes(bytes_)
    with pytest.raises(RuntimeError, match="w"):
        checkpoint.load({"w": tg.zeros(6), "k": 0}, checkpoint_id=folder)
    data.unlink()
    with pytest.raises((RuntimeError, OSError)):
        checkpoint.load({"w": tg.zeros(6), "k": 0}, checkpoint_id=folder)


def fail_to_write(rank: int, n: int, folder: str):
    if rank == 1:
        folder = os.path.join(folder, "a file", "below")
    try:
        checkpoint.save({"w": tg.ones(3)}, checkpoint_id=folder)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def test_all_ranks_learn_that_one_cannot_write(tmp_path):
    (tmp_path / "a file").write_text("")
    first, second = results(run_ranks(2, fail_to_write, str(tmp_path), start="fork"))
    assert "rank 1 could not write its file" in first and "NotADirectoryError" in second
    assert not (tmp_path / ".manifest.tape").exists()


def save_copies(rank: int, n: int, folder: str):
    mesh = dist.init_device_mesh("cpu", (2, 2))
    saved = fully_shard(tg.nn.Linear(6, 8), mesh=mesh)
    with tg.no_grad():
        saved.weight.fill_(3.0 + mesh.get_local_rank(1))  # copies are equal
    checkpoint.save({"net": saved.state_dict()}, checkpoint_id=folder)
    loaded = fully_shard(tg.nn.Linear(6, 8), mesh=mesh)
    state = {"net": loaded.state_dict()}
    checkpoint.load(state, checkpoint_id=folder)
    loaded.load_state_dict(state["net"])
    return loaded.weight.full_tensor()[:, 0].tolist()


def test_copies_of_a_cut_model_are_saved_once(tmp_path):
    for weights in results(run_ranks(4, save_copies, str(tmp_path), start="fork")):
        assert weights == [3.0] * 4 + [4.0] * 4
