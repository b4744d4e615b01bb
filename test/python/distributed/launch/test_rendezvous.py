"""What launchers say, how processes find each other by it, and torchrun's own store."""

import datetime
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import tapegrad.distributed as dist
from tapegrad.distributed.distributed_c10d._launchers import find_launch, first_host
from tapegrad.distributed.distributed_c10d._rendezvous import find_world

torch = pytest.importorskip("torch")
LIMIT = datetime.timedelta(seconds=20)
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
         "TAPEGRAD_AGENT_STORE", "TAPEGRAD_JOB_TOKEN", "SLURM_JOB_ID", "PET_NNODES")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


TORCH = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
         "TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_RESTART_COUNT": "2"}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "n1"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "5", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "1",
         "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_STEP_NODELIST": "node[03-04],gpu1", "SLURM_NTASKS": "9"}


@pytest.mark.parametrize(("environment", "launcher", "numbers", "address", "job"), [
    (TORCH, "torchrun", (3, 8, 1, 2), "a", "run/2"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, "torchrun", (0, 2, None, None), None, ""),
    ({"RANK": "1", "WORLD_SIZE": "2", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "torchrun", (1, 2, 0, 1), None, ""),
    (MPI, "Open MPI", (1, 4, 1, 4), "127.0.0.1", ""),
    ({**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "Open MPI", (1, 4, 1, 2), None, ""),
    ({**MPI, "MASTER_ADDR": "b", "MASTER_PORT": "1"}, "Open MPI", (1, 4, 1, 4), "b", ""),
    (HYDRA, "MPICH", (1, 2, 0, 1), None, ""),
    (SLURM, "Slurm", (3, 5, 1, 2), "node03", "slurm/77.0/0"),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "5", "SLURM_NODEID": "0"}, "Slurm", (3, 5, 1, 5), "127.0.0.1", "slurm/77.0/0"),
    ({**SLURM, **MPI}, "Open MPI", (1, 4, 1, 4), "127.0.0.1", ""),
    ({**SLURM, **MPI, **TORCH}, "torchrun", (3, 8, 1, 2), "a", "run/2"),
    ({**SLURM, "RANK": "3"}, "Slurm", (3, 5, 1, 2), "node03", "slurm/77.0/0"),  # not all of torchrun's
])
def test_launchers(environment, launcher, numbers, address, job):
    launch = find_launch(environment)
    assert (launch.launcher, launch.address, launch.job) == (launcher, address, job)
    assert (launch.rank, launch.world_size, launch.local_rank, launch.local_size) == numbers
    if launcher in ("Slurm", "Open MPI") and launch.address == "127.0.0.1":
        assert 20000 <= launch.port < 32000
        assert find_launch({**environment, "SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "0"}).port == launch.port


@pytest.mark.parametrize("environment", [
    {}, {"RANK": "0"}, {"RANK": "", "WORLD_SIZE": "2"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"},  # a script of sbatch
    {**SLURM, "SLURM_STEP_ID": "batch"},
])
def test_no_launcher(environment):
    assert find_launch(environment) is None


def test_the_local_rank_of_every_launcher(monkeypatch):
    with pytest.raises(RuntimeError, match="LOCAL_RANK is not in the environment"):
        dist.get_node_local_rank()
    assert dist.get_node_local_rank(4) == 4
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert dist.get_node_local_rank(4) == 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert dist.get_node_local_rank() == 0


def test_lists_of_machines():
    for text, first in [("a", "a"), ("a,b", "a"), ("node[03-05,07],b", "node03"), ("n[1,5]", "n1"), ("rack1-n[10-12]-x,b", "rack1-n10-x"), ("", None)]:
        assert first_host(text) == first


def test_missing_variables_in_torch_s_words(monkeypatch):
    for environment, words in [
        ({}, "environment variable RANK expected, but not set"), ({"RANK": "0"}, "environment variable WORLD_SIZE expected, but not set"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "environment variable MASTER_ADDR expected, but not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "environment variable MASTER_PORT expected, but not set"),
    ]:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            for library, errors in ((dist.init_process_group, ValueError), (torch.distributed.init_process_group, ValueError)):
                with pytest.raises(errors, match=f"^Error initializing torch.distributed using env:// rendezvous: {words}"):
                    library("gloo", init_method="env://")
    monkeypatch.setenv("RANK", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="^environment: RANK must be a whole number: got 'one'"):
        find_world("env://")
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    for name, value in HYDRA.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="MASTER_ADDR expected, but not set\nMPICH does not tell its processes where rank 0 is"):
        find_world("env://")


def test_urls_that_say_too_little(tmp_path):
    for url, words in [
        ("tcp://127.0.0.1:1?rank=0", "tcp:// rendezvous: world size parameter missing"), ("tcp://127.0.0.1:1?world_size=2", "tcp:// rendezvous: rank parameter missing"),
        ("tcp://127.0.0.1?rank=0&world_size=2", "tcp:// rendezvous: port number missing"), ("file://?rank=0&world_size=2", "file:// rendezvous: path missing"),
        ("file:///x?rank=0", "file:// rendezvous: world size parameter missing"), ("tcp://127.0.0.1:1?rank=x&world_size=2", "rank must be a whole number: got 'x'"),
    ]:
        with pytest.raises(ValueError, match=words):
            find_world(url)
    with pytest.raises(RuntimeError, match="^No rendezvous handler for gopher://"):
        find_world("gopher://x")
    with pytest.raises(AssertionError, match="node-specific arguments"):
        find_world("tcp://127.0.0.1:1?rank=0&world_size=2", 1, 2)
    with pytest.raises(RuntimeError, match="must be a string"):
        next(dist.rendezvous(3))


def meet(makers) -> list:
    """Each on a thread; the stores they got see each other's keys."""
    got = [None] * len(makers)

    def run(i):
        got[i] = makers[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(makers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for i, (store, rank, size) in enumerate(got):
        assert (rank, size) == (i, len(makers))
        store.set(str(i), str(i))
    return [sorted(store.multi_get([str(i) for i in range(len(makers))])) for store, _, _ in got]


def test_processes_meet_by_every_url(tmp_path, monkeypatch):
    port = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False).port
    for url in (f"tcp://127.0.0.1:{port}", f"file://{tmp_path}/keys"):
        values = meet([lambda r=r: find_world(url, r, 3, timeout=LIMIT) for r in range(3)])  # noqa: B023
        assert values == [[b"0", b"1", b"2"]] * 3
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(port))
    assert meet([lambda r=r: next(dist.rendezvous("env://", r, 2, timeout=LIMIT)) for r in range(2)]) == [[b"0", b"1"]] * 2


def test_a_way_of_one_s_own():
    def handler(url, timeout=None):
        assert url.endswith("rank=0&world_size=1")
        yield dist.HashStore(), 0, 1

    scheme = f"mine{os.getpid()}"
    dist.register_rendezvous_handler(scheme, handler)
    assert find_world(f"{scheme}://x", 0, 1)[1:] == (0, 1)
    for name in (scheme, "tcp"):
        with pytest.raises(RuntimeError, match="already registered"):
            dist.register_rendezvous_handler(name, handler)


@pytest.mark.parametrize("options", [["--standalone"], pytest.param(["--master-port", "0"], marks=pytest.mark.long),
                                     pytest.param(["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"], marks=pytest.mark.long)])
def test_a_script_under_torch_s_own_torchrun(options, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import os, sys
        from tapegrad.distributed.distributed_c10d._rendezvous import find_world
        assert "torch" not in sys.modules
        store, rank, size = find_world("env://")
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        assert store.add("came", 1) <= size, "keys of another attempt"
        store.set(f"key{rank}", attempt)
        values = store.multi_get([f"key{r}" for r in range(size)])
        store.barrier("end", size)
        if attempt == "0" and rank == 1:
            sys.exit(3)
        with open(f"{sys.argv[1]}/{rank}.{attempt}", "w") as file:
            file.write(f"{rank} of {size}: {values}")
        store.barrier("written", size)
    """))
    if options == ["--master-port", "0"]:
        options = ["--master-port", str(dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False).port)]
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", *options, "--nproc-per-node", "2", "--max-restarts", "1", str(script), str(tmp_path)],
                          capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert (tmp_path / f"{rank}.1").read_text() == f"{rank} of 2: [b'1', b'1']"


def test_ranks_that_never_come_are_named():
    for size, said in ((2, "1 of 2 ranks did not come within 0.2 s: rank 1"), (4, "3 of 4 ranks did not come within 0.2 s: ranks 1, 2, 3")):
        with pytest.raises(dist.DistStoreError, match=f"^process group: {said}$"):
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=size, timeout=datetime.timedelta(seconds=0.2))
        assert not dist.is_initialized()
