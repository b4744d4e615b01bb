"""Two ranks in network namespaces of their own, as on two machines: a link that is cut; and a disk that is full."""

import contextlib
import os
import shutil
import subprocess
import sys
import time

import pytest
import tapegrad as tg
from distributed.machines import needs_namespaces, run, two_machines
from distributed.ranks import results, run_ranks

RANK = """
import os, sys, time, datetime
import tapegrad as tg, tapegrad.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="tcp://10.213.48.1:29555", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=4))
t = tg.ones(1 << 18)
for _ in range(3):
    dist.all_reduce(t)
print("ready", flush=True)
since = time.monotonic()
try:
    while True:
        t.fill_(1)
        since = time.monotonic()
        dist.all_reduce(t)
except dist.DistBackendError as e:
    print(f"{time.monotonic() - since:.1f}", str(e).replace(chr(10), " | "), flush=True)
os._exit(3)  # the store's server is beyond the cut
"""


@pytest.mark.long
@needs_namespaces
@pytest.mark.skipif(not tg.distributed.is_gloo_available(), reason="gloo is not installed")
def test_a_link_that_is_cut(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1",
                   "GLOO_SOCKET_IFNAME": "tgtest", "TAPEGRAD_DISTRIBUTED_ENGINE": "gloo"}
    with two_machines("tgtest", "10.213.48") as spaces:
        ranks = [subprocess.Popen(["ip", "netns", "exec", spaces[r], sys.executable, str(tmp_path / "rank.py"), str(r)], env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(2)]
        try:
            for p in ranks:
                first = p.stdout.readline()
                assert first == "ready\n", first + p.stderr.read()
            time.sleep(0.3)
            run("ip", "-n", spaces[1], "link", "set", "tgtest", "down")
            cut = time.monotonic()
            for r, p in enumerate(ranks):
                said, errors = p.communicate(timeout=30)
                assert p.returncode == 3, errors
                seconds, _, text = said.partition(" ")
                assert float(seconds) < 9 and "all_reduce" in text and f"rank {1 - r}" in text, said
            assert time.monotonic() - cut < 15
        finally:
            for p in ranks:
                p.kill()
                p.wait()


@contextlib.contextmanager
def small_disk(folder, size: str):
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def _why_no_disk() -> str:
    if os.geteuid() or not shutil.which("mount"):
        return "a small disk needs root"
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "disks cannot be mounted here"


def save_twice(rank, size, folder):
    """What a second save says that does not fit, and what the folder holds after it."""
    from tapegrad.distributed import checkpoint

    small, large = {"t": tg.full((1000,), 7.0), "step": 1}, {"t": tg.ones(4 << 20), "step": 2}
    checkpoint.save(small, checkpoint_id=f"{folder}/c")
    try:
        checkpoint.save(large, checkpoint_id=f"{folder}/c")
        said = "saved"
    except Exception as e:
        said = f"{type(e).__name__}: {e}"
    tg.distributed.barrier()
    back = {"t": tg.zeros(1000), "step": 0}
    checkpoint.load(back, checkpoint_id=f"{folder}/c")
    run_of = checkpoint.Checkpoints(f"{folder}/runs", model=tg.nn.Linear(2000, 2000), every_steps=1)
    try:
        run_of.step()
        periodic = "saved"
    except Exception as e:
        periodic = type(e).__name__
    tg.distributed.barrier()
    return said, bool((back["t"] == 7).all()) and back["step"] == 1, periodic


@pytest.mark.skipif(bool(_why_no_disk()), reason=_why_no_disk())
def test_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", "6m"):
        for said, intact, periodic in results(run_ranks(2, save_twice, str(tmp_path / "disk"), start="fork", timeout=60)):
            assert "No space left" in said, said
            assert intact and periodic in ("OSError", "FileError"), periodic
        left = sorted(p.name for p in (tmp_path / "disk" / "c").iterdir())
        assert len(left) == 3 and left[0] == ".manifest.tape", left  # the first save's
        left = [str(p) for p in (tmp_path / "disk" / "runs").rglob("*") if p.is_file()]
        assert not left, left
        with open(tmp_path / "disk" / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"x" * 4096):
                pass
        with pytest.raises(tg.distributed.DistStoreError, match="No space left"):
            tg.distributed.FileStore(str(tmp_path / "disk" / "store"), 1)
        os.truncate(tmp_path / "disk" / "filler", 4_000_000)
        store = tg.distributed.FileStore(str(tmp_path / "disk" / "store"), 1)
        store.set("small", "value")
        with pytest.raises(tg.distributed.DistStoreError, match="No space left"):
            store.set("key", "v" * 5_000_000)
        assert store.get("small") == b"value"
