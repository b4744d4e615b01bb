"""Periodic checkpoints of several ranks: the last ones are kept, a job that went on from the newest good one ends with the same bits."""

import io
import os
import re
import subprocess
import sys
import textwrap
import time
import warnings

import pytest
import tapegrad as tg
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed import checkpoint
from tapegrad.distributed.fsdp import fully_shard
from tapegrad.distributed.health import Health
from tapegrad.utils.data import DataLoader, TensorDataset


def make(folder: str, kind: str, **options):
    tg.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 2)).double()
    if kind == "sharded":
        fully_shard(net)
    elif kind == "replicated":
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = tg.optim.Adam(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(tg.arange(48.0, dtype=tg.float64).reshape(12, 4) / 48), batch_size=3, shuffle=True)
    return net, optimizer, loader, checkpoint.Checkpoints(folder, model=net, optimizers=optimizer, every_steps=2, loader=loader, **options)


def train(rank: int, n: int, folder: str, kind: str, until: int):
    """Epochs of 4 steps, until so many are done: the loss of each step, the parameters, the warnings."""
    net, optimizer, loader, run = make(folder, kind)
    losses = {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        values = run.resume() or {}
    if run.steps == 0:
        tg.manual_seed(rank)
    epoch = values.get("epoch", 0)
    while run.steps < until:
        for (x,) in loader:
            loss = net(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[run.steps] = loss.item()
            run.step(epoch=epoch)
            if run.steps == until:
                break
        epoch += 1
    whole = checkpoint.get_model_state_dict(net, options=checkpoint.StateDictOptions(full_state_dict=True))
    return losses, {k: v.tolist() for k, v in whole.items()}, [str(w.message) for w in said if "checkpoint" in str(w.message)], values


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sharded", "replicated"])
def test_a_job_goes_on_with_the_same_bits(tmp_path, kind):
    undisturbed = results(run_ranks(2, train, str(tmp_path / "a"), kind, 9))
    results(run_ranks(2, train, str(tmp_path / "b"), kind, 5))
    run_folder = tmp_path / "b"
    assert sorted(os.listdir(run_folder)) == ["step-000000002", "step-000000004"]
    # Of the newest a byte is damaged, of one that came after it there is no manifest: what was before them is taken.
    (run_folder / "step-000000006").mkdir()
    (run_folder / "step-000000006" / "own-0000.tape").write_bytes(b"x")
    (piece,) = (run_folder / "step-000000004").glob("rank-0001.*")
    damaged = bytearray(piece.read_bytes())
    damaged[-3] ^= 1
    piece.write_bytes(damaged)
    again = results(run_ranks(2, train, str(run_folder), kind, 9))
    for rank in range(2):
        losses, parameters, said, values = again[rank]
        assert sorted(losses) == list(range(2, 9)) and values == {"epoch": 0}
        assert all(undisturbed[rank][0][i] == loss for i, loss in losses.items()) and parameters == undisturbed[rank][1]
        assert [s.split(" cannot be read")[0][-14:] for s in said] == (["step-000000006", "step-000000004"] if rank == 0 else [])
    assert sorted(os.listdir(run_folder)) == ["step-000000004", "step-000000006", "step-000000008"]
    fewer = train(0, 1, str(run_folder), "plain", 8)  # another number of ranks: the model, and nothing of each rank's own
    assert fewer[0] == {} and fewer[3] == {} and "another number of ranks" in fewer[2][0]


def test_of_one_process(tmp_path):
    assert make(str(tmp_path / "n"), "plain")[3].resume() is None
    losses, parameters, _, _ = train(0, 1, str(tmp_path / "a"), "plain", 9)
    train(0, 1, str(tmp_path / "b"), "plain", 5)
    assert train(0, 1, str(tmp_path / "b"), "plain", 9)[:2] == ({i: losses[i] for i in range(4, 9)}, parameters)
    (tmp_path / "c" / "step-000000002").mkdir(parents=True)  # a job that was killed while it first saved begins anew
    (tmp_path / "c" / "step-000000002" / "own-0000.tape").write_bytes(b"x")
    assert train(0, 1, str(tmp_path / "c"), "plain", 9)[:2] == (losses, parameters)
    for folder in (tmp_path / "b").iterdir():
        (folder / ".manifest.tape").write_bytes(b"no")
    with pytest.raises(RuntimeError, match="none of the 3 checkpoints"):
        train(0, 1, str(tmp_path / "b"), "plain", 9)


def test_mistakes(tmp_path):
    for options, said in (({"keep": 0}, "keep must be at least 1: got 0"), ({"every_steps": 0}, "every_steps must be at least 1"),
                          ({"every_seconds": float("nan")}, "every_seconds must not be negative")):
        with pytest.raises(ValueError, match=said):
            checkpoint.Checkpoints(tmp_path, model=nn.Linear(1, 1), **options)
    with pytest.raises(TypeError, match="'epoch' has no state: got int"):
        checkpoint.Checkpoints(tmp_path, model=nn.Linear(1, 1), epoch=1)
    with pytest.raises(ValueError, match="these names belong to parts: loader"):
        make(str(tmp_path), "plain")[3].save(loader=1)


def test_a_job_whose_rank_is_killed_is_started_again_and_goes_on(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))!r})
        import tapegrad.distributed as dist
        from distributed.model_parallel import test_periodic_checkpoints as job
        dist.init_process_group()
        folder, victim = sys.argv[1], int(sys.argv[2])
        step = job.checkpoint.Checkpoints.step
        def step_and_die(self, **values):
            step(self, **values)
            if self.steps == 5 and dist.get_rank() == victim and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), 9)
        job.checkpoint.Checkpoints.step = step_and_die
        found = job.train(dist.get_rank(), 2, folder, "sharded", 9)
        os.write(1, (repr((dist.get_rank(), found[0][8], found[1])) + "\\n").encode())
        dist.destroy_process_group()
    """))
    lines = {}
    for victim in (-1, 1):
        done = subprocess.run([sys.executable, "-m", "tapegrad.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", str(script),
                               str(tmp_path / f"run{victim}"), str(victim)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
        assert done.returncode == 0, done.stderr
        lines[victim] = sorted(done.stdout.splitlines())
    assert lines[1] == lines[-1] and len(lines[1]) == 2


def healthy(rank: int, n: int, folder: str):
    net, _, _, run = make(folder, "replicated")
    said = io.StringIO()
    health = Health(0.2, ddp=net, checkpoints=run, stream=said)
    for i in range(40):
        if rank == 1:
            time.sleep(0.02)  # the other one waits
        net(tg.ones(2, 4, dtype=tg.float64)).sum().backward()
        run.step()
        health.step(loss=tg.tensor(0.5) * i)
    return said.getvalue().splitlines()


@pytest.mark.long
def test_how_it_goes_is_told_by_each_rank(tmp_path):
    for rank, lines in enumerate(results(run_ranks(2, healthy, str(tmp_path)))):
        assert 1 <= len(lines) <= 12
        waits = [float(re.fullmatch(rf"\[rank {rank}\] step \d+, [\d.]+ steps/s, loss [\d.]+, waited (\d+)%, \d+ MB, saved at step \d*[02468], \d s ago",
                                    line)[1]) for line in lines]
        assert (max(waits) > 25) == (rank == 0), lines
    said = io.StringIO()
    assert re.fullmatch(r"\[rank 0\] step 0, 0 steps/s, \d+ MB", Health(stream=said).write()) and said.getvalue().endswith(" MB\n")
    for bad in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="every_seconds must be positive"):
            Health(bad)


def test_saves_that_fail_do_not_push_out_good_ones(tmp_path, monkeypatch):
    from tapegrad.distributed.checkpoint import _sharded

    run = checkpoint.Checkpoints(tmp_path, model=nn.Linear(2, 2), every_steps=1, keep=2)
    write = _sharded.write
    for step in range(1, 7):
        with monkeypatch.context() as m:
            if 3 <= step <= 5:
                def fail(state, path, group):
                    write(state, path, group)  # killed before the manifest
                    os.unlink(os.path.join(path, _sharded.MANIFEST))
                    raise OSError(28, "No space left on device")

                m.setattr(_sharded, "write", fail)
            if 3 <= step <= 5:
                with pytest.raises(OSError, match="No space left"):
                    run.step()
            else:
                run.step()
    good = [p.name[-1] for p in sorted(tmp_path.iterdir()) if (p / ".manifest.tape").exists()]
    assert good == ["2", "6"]


def save_without_an_end(rank: int, n: int, folder: str):
    """Rank 0 writes the manifest of step 4; the other one hears of its death then. What both resume from afterwards."""
    from tapegrad.distributed.checkpoint import _sharded

    *_, run = make(folder, "sharded")
    run.steps = 2
    run.save()
    run.steps = 4
    write = _sharded.write

    def interrupted(*args):
        write(*args)
        if rank == 1:
            raise tg.distributed.DistBackendError("rank 0 has died")

    _sharded.write = interrupted
    try:
        run.save()
    except tg.distributed.DistBackendError:
        pass
    finally:
        _sharded.write = write
    tg.distributed.barrier()
    *_, again = make(folder, "sharded")
    again.resume()
    first = again.steps
    if rank == 1:  # as if the disk had lost it
        os.unlink(again._own_file(os.path.join(folder, "step-000000004"), 1))
    tg.distributed.barrier()
    *_, again = make(folder, "sharded")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        again.resume()
    return first, again.steps, [str(w.message) for w in said]


def test_a_rank_that_dies_behind_the_manifest_leaves_a_checkpoint_for_all(tmp_path):
    (first, then, said), (other, others, nothing) = results(run_ranks(2, save_without_an_end, str(tmp_path)))
    assert first == other == 4
    assert then == others == 2 and not nothing
    assert len(said) == 1 and "step-000000004 cannot be read, and the one before it is taken: checkpoint: rank 1 could not read its state" in said[0]
