"""What launchers say in the environment: rank, size, where rank 0 is, and which processes share a machine.

Read in this order, the first that says all of rank and size counts: torchrun and all that set its variables (Ray Train, Lightning,
Accelerate, Kubeflow, the launcher of tapegrad), Open MPI, MPICH and Intel MPI, a step of Slurm.
"""

import dataclasses
import os
import re

__all__ = ["Launch", "find_launch", "whole_number"]


@dataclasses.dataclass
class Launch:
    """One process of a job. None: the launcher does not say."""

    launcher: str
    rank: int
    world_size: int
    local_rank: int | None = None  # among the processes of this machine
    local_size: int | None = None
    address: str | None = None  # of rank 0
    port: int | None = None
    job: str = ""  # begins the keys of the job in a store: another run, or another attempt, has other ones


def whole_number(environment, name: str) -> int | None:
    """The number of a variable; None where it is not set or empty, ValueError where it is something else."""
    text = environment.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment: {name} must be a whole number: got {text!r}") from None


def find_launch(environment=None) -> Launch | None:
    """What the launcher of this process says, or None where there is none."""
    environment = os.environ if environment is None else environment
    for read in (_torch, _open_mpi, _hydra, _slurm):
        launch = read(environment)
        if launch is not None:
            address = environment.get("MASTER_ADDR")
            if address:
                launch.address = address
            launch.port = whole_number(environment, "MASTER_PORT") or launch.port
            return launch
    return None


def _torch(environment) -> Launch | None:
    rank, size = whole_number(environment, "RANK"), whole_number(environment, "WORLD_SIZE")
    if rank is None or size is None:
        return None
    local_rank, local_size = whole_number(environment, "LOCAL_RANK"), whole_number(environment, "LOCAL_WORLD_SIZE")
    if local_rank is None and environment.get("KUBERNETES_SERVICE_HOST"):
        local_rank, local_size = 0, 1  # Kubeflow counts pods
    run = environment.get("TORCHELASTIC_RUN_ID")
    job = "" if run is None else f"{run}/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return Launch("torchrun", rank, size, local_rank, local_size, job=job)


def _on_one_machine(launch: Launch, job: str | None) -> Launch:
    if launch.local_size == launch.world_size and job:
        launch.address, launch.port = "127.0.0.1", _port_of(job)
    return launch


def _open_mpi(environment) -> Launch | None:
    rank, size = whole_number(environment, "OMPI_COMM_WORLD_RANK"), whole_number(environment, "OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None:
        return None
    launch = Launch("Open MPI", rank, size, whole_number(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
                    whole_number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"))
    return _on_one_machine(launch, environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid"))


def _hydra(environment) -> Launch | None:
    rank, size = whole_number(environment, "PMI_RANK"), whole_number(environment, "PMI_SIZE")
    if rank is None or size is None:
        return None
    launch = Launch("MPICH", rank, size, whole_number(environment, "MPI_LOCALRANKID"), whole_number(environment, "MPI_LOCALNRANKS"))
    return _on_one_machine(launch, _ancestor(("hydra_pmi_proxy", "mpiexec.hydra", "mpiexec", "mpirun")))


def _slurm(environment) -> Launch | None:
    # In a script of sbatch the variables of a job are there, too, but only a step of srun has a process for each rank.
    rank, step = whole_number(environment, "SLURM_PROCID"), environment.get("SLURM_STEP_ID", "")
    size = whole_number(environment, "SLURM_STEP_NUM_TASKS")
    if rank is None or size is None or not step.isdigit():
        return None
    launch = Launch("Slurm", rank, size, whole_number(environment, "SLURM_LOCALID"))
    tasks, node = _tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", "")), whole_number(environment, "SLURM_NODEID")
    if node is not None and node < len(tasks):
        launch.local_size = tasks[node]
    launch.job = f"slurm/{environment.get('SLURM_JOB_ID', '')}.{step}/{environment.get('SLURM_RESTART_COUNT', '0')}"
    launch.port = _port_of(launch.job)
    launch.address = "127.0.0.1" if len(tasks) == 1 else first_host(environment.get("SLURM_STEP_NODELIST", ""))
    return launch


def _tasks_per_node(text: str) -> list[int]:
    """ "2(x3),1" means 2, 2, 2, 1."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(n) for n, times in found for _ in range(min(int(times or 1), 1 << 20))]


def first_host(nodes: str) -> str | None:
    """The first machine of Slurm's list: "node[03-05,07],gpu1" begins with node03."""
    match = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups()) or None


def _port_of(job: str) -> int:
    """A port that all processes of a job choose, below those that systems give to clients."""
    import zlib

    return 20000 + zlib.crc32(job.encode()) % 12000


def _ancestor(names) -> str | None:
    """The process above this one that has one of the names, told apart from others that had its number."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            return None
        fields = rest.split()
        if name in names:
            return f"{name}/{pid}/{fields[19]}"
        pid = int(fields[1])
    return None
