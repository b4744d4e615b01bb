"""notebook_launcher, samplers of ranks, and the example that trains on several processes."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tapegrad.utils.data.distributed import DistributedSampler

ROOT = Path(__file__).resolve().parents[4]

NOTEBOOK = """
import threading
import tapegrad as tg, tapegrad.distributed as dist
(tg.rand(2000, 2000) @ tg.rand(2000, 2000)).sum()
threading.Thread(target=threading.Event().wait, daemon=True).start()
scale = 10

class Net(tg.nn.Linear):
    pass

def train(start, fails):
    dist.init_process_group("gloo")
    if fails and dist.get_rank() == 1:
        raise KeyError("rank 1 fails")
    total = tg.tensor([float(start + scale * dist.get_rank())])
    dist.all_reduce(total)
    assert isinstance(tg.nn.parallel.DistributedDataParallel(Net(1, 1)).module, Net)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}\\n", end="", flush=True)

dist.notebook_launcher(train, (5, False), %d)
try:
    dist.notebook_launcher(train, (5, True), 2, use_port=0)
except tg.multiprocessing.ProcessRaisedException as error:
    print(error.error_index, "KeyError: 'rank 1 fails'" in str(error))
import os
assert "RANK" not in os.environ and not dist.is_initialized()
"""


@pytest.mark.parametrize("count", [1, 3])
def test_ranks_from_a_cell(count):
    done = subprocess.run([sys.executable, "-c", NOTEBOOK % count], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.split("\n"))
    total = float(5 * count + 10 * sum(range(count)))
    assert lines[-count:] == [f"rank {r} of {count}: {total}" for r in range(count)]
    assert "1 True" in lines


def test_refusals():
    from tapegrad.distributed import notebook_launcher

    with pytest.raises(ValueError, match="expected at least one process: got num_processes=0"):
        notebook_launcher(print, (), 0)
    with pytest.raises(ValueError, match="Unknown mixed_precision mode: fp4"):
        notebook_launcher(print, (), 1, mixed_precision="fp4")
    with pytest.raises(ValueError, match="node_rank must be less than the number of nodes"):
        notebook_launcher(print, (), 1, node_rank=1)


def test_samplers_give_pytorchs_indices():
    theirs = pytest.importorskip("torch.utils.data.distributed").DistributedSampler
    for n, replicas, drop in itertools.product((0, 1, 2, 5, 7, 12), (1, 2, 3, 5), (False, True)):
        data = range(n)
        shuffled = []
        for rank in range(replicas):
            ours = DistributedSampler(data, replicas, rank, shuffle=False, drop_last=drop)
            peer = theirs(data, replicas, rank, shuffle=False, drop_last=drop)
            assert len(ours) == len(peer), (n, replicas, drop)
            try:
                expected = list(peer)
            except ZeroDivisionError:  # PyTorch's cannot repeat an empty set
                expected = []
            assert list(ours) == expected, (n, replicas, drop)
            mixed = DistributedSampler(data, replicas, rank, seed=3, drop_last=drop)
            mixed.set_epoch(2)
            shuffled += list(mixed)
        assert set(shuffled) <= set(data) and (drop or set(shuffled) == set(data))
        assert len(shuffled) == replicas * len(ours)


def run_example(name, *arguments, launcher=()):
    done = subprocess.run([sys.executable, *launcher, str(ROOT / "examples" / name), "--quiet", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def example(arguments, folder, launcher=()):
    return run_example("ddp.py", "--epochs", 2, "--images", 1200, "--checkpoint", folder / "run.tape", "--picture", folder / "curve.png", *arguments,
                       launcher=launcher)


@pytest.mark.long
def test_a_model_that_is_cut_trains_alone_and_on_two_and_goes_on(tmp_path):
    launchers = [(), ("-m", "tapegrad.distributed.run", "--nproc-per-node", "2")]
    small = ("--steps", 12, "--layers", 2, "--width", 32, "--length", 32, "--lr", 0.01)

    def run(launcher, folder, *arguments):
        told = run_example("fsdp_gpt.py", *small, "--checkpoint", tmp_path / folder, *arguments, launcher=launcher)
        loss = re.search(r"held-out loss: ([0-9.]+)", told)
        return loss and loss[1]

    alone, two = (run(launcher, f"{i}") for i, launcher in enumerate(launchers))
    assert float(alone) < 3.6 and abs(float(alone) - float(two)) < 1e-3  # of 4.17 nats untrained
    assert run(launchers[1], "stopped", "--stop-after", 5) is None
    assert run(launchers[1], "stopped", "--resume") == two
    assert run(launchers[1], "fewer", "--stop-after", 5) is None
    assert abs(float(run((), "fewer", "--resume")) - float(two)) < 1e-3


@pytest.mark.long
def test_the_example_trains_alone_and_on_two_and_goes_on(tmp_path):
    import tapegrad as tg

    accuracies, weights = [], []
    launchers = [(), ("-m", "tapegrad.distributed.run", "--nproc-per-node", "2")]
    for i, launcher in enumerate(launchers):
        folder = tmp_path / str(i)
        folder.mkdir()
        told = example(["--stop-after", "1"], folder, launcher)
        assert "stopped after epoch 1" in told and told.count("processes") == 1
        told = example(["--resume"], folder, launcher)
        accuracies.append(float(re.search(r"held-out accuracy: ([0-9.]+)", told)[1]))
        weights.append(tg.load(folder / "run.tape")["parts"]["model"]["state"]["state"]["0.weight"])
        assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert min(accuracies) > 0.6
    tg.testing.assert_close(*weights, rtol=1e-2, atol=1e-2)
