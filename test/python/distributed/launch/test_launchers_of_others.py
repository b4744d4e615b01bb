"""torchrun, srun, mpirun (Open MPI and MPICH) and Ray start the same script, unmodified, where they are installed."""

import importlib.util
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from distributed.launch import slurm
from distributed.launch.test_launcher import ENVIRONMENT

SCRIPT = """
import os
import tapegrad as tg, tapegrad.distributed as dist
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
model = tg.nn.parallel.DistributedDataParallel(tg.nn.Linear(3, 1))
model(tg.full((2, 3), rank + 1.0)).sum().backward()
os.write(1, f"rank {rank} of {size}, here {dist.get_node_local_rank()}: {model.module.weight.grad.tolist()}\\n".encode())
dist.destroy_process_group()
"""
EXPECTED = [f"rank {rank} of 2, here {rank}: [[3.0, 3.0, 3.0]]" for rank in range(2)]
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def same_script(tmp_path, *command, **variables) -> None:
    """Runs the script under the launcher; each rank says its line once and has the mean of both gradients."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([*command, sys.executable, str(script)] if command[-1] != "--" else [*command[:-1], str(script)], capture_output=True,
                          text=True, timeout=90, cwd=tmp_path, env={**ENVIRONMENT, **ROOT, "OMP_NUM_THREADS": "1", **variables})
    assert done.returncode == 0 and sorted(re.findall("rank .*", done.stdout)) == EXPECTED, done.stdout + done.stderr


@pytest.mark.long
def test_torchrun(tmp_path):
    pytest.importorskip("torch.distributed.run")
    same_script(tmp_path, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--")


@pytest.mark.parametrize("command", [("mpirun.openmpi", "--oversubscribe"), ("mpirun.mpich",)], ids=["Open MPI", "MPICH"])
def test_mpirun(tmp_path, command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    same_script(tmp_path, *command, "-n", "2")


@pytest.mark.skipif(bool(slurm.why_not()), reason=slurm.why_not())
def test_srun(tmp_path):
    with slurm.cluster(tmp_path) as variables:
        same_script(tmp_path, "srun", "-n", "2", **variables)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray(tmp_path):
    script = tmp_path / "actors.py"
    script.write_text(textwrap.dedent("""
        import os, runpy, socket, sys
        import ray

        @ray.remote(num_cpus=1)
        class Rank:
            def free_port(self):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", 0))
                    return s.getsockname()[1]

            def run(self, rank, port):
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                os.dup2(os.open(f"{sys.argv[1]}{rank}", os.O_CREAT | os.O_WRONLY, 0o600), 1)
                runpy.run_path(SCRIPT)

        ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
        ranks = [Rank.remote() for _ in range(2)]
        port = ray.get(ranks[0].free_port.remote())
        ray.get([rank.run.remote(i, port) for i, rank in enumerate(ranks)])
    """).replace("SCRIPT", repr(str(tmp_path / "script.py"))).replace("{sys.argv[1]}", str(tmp_path / "out")))
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          env={**ENVIRONMENT, "RAY_USAGE_STATS_ENABLED": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(tmp_path / f"out{rank}").read_text().strip() for rank in range(2)] == EXPECTED
