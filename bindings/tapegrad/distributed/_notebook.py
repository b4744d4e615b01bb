"""notebook_launcher: ranks started from a cell of a notebook.

Each rank is a fresh process, so that it does not matter whether the notebook has used threads or a GPU; what the notebook has defined
travels by value (multiprocessing/_by_value.py). The ranks find each other through MASTER_ADDR and MASTER_PORT, as under torchrun, and end
when the cell is interrupted.
"""

import os
import socket
import time

__all__ = ["notebook_launcher"]

_LATER = 3.0  # seconds


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return server.getsockname()[1]


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def _count() -> int:
    from .. import cuda

    return cuda.device_count() if cuda.is_available() else 1


def _rank(index: int, function, args, environment: dict, first: int) -> None:
    os.environ.update(environment, RANK=str(first + index), LOCAL_RANK=str(index))
    if "OMP_NUM_THREADS" not in os.environ and int(environment["LOCAL_WORLD_SIZE"]) > 1:
        from .. import get_num_threads, set_num_threads

        set_num_threads(max(1, get_num_threads() // int(environment["LOCAL_WORLD_SIZE"])))
    from . import distributed_c10d
    from .distributed_c10d._types import DistBackendError, group

    try:
        function(*args)
    except BaseException as error:
        if distributed_c10d.is_initialized():
            group.WORLD.abort(f"rank {os.environ['RANK']} raised {type(error).__name__}: {error}")
        if isinstance(error, DistBackendError):
            time.sleep(_LATER)  # the rank that failed first is to be the one that is told of; then this one is ended
        raise
    finally:
        if distributed_c10d.is_initialized():
            distributed_c10d.destroy_process_group()


def notebook_launcher(function, args: tuple = (), num_processes: int | None = None, mixed_precision: str = "no", use_port="29500",
                      master_addr: str = "127.0.0.1", node_rank: int = 0, num_nodes: int = 1) -> None:
    """Calls function(*args) in num_processes processes, ranks of one world, and returns when all have ended.

    num_processes: None is one per GPU, and 1 without. The function calls init_process_group() itself; RANK, LOCAL_RANK, WORLD_SIZE,
    LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. With one process it is called here. use_port: another one is taken where it is in
    use on this machine, unless there are several machines (num_nodes). The first rank that fails ends the others, and its exception is raised
    (multiprocessing.ProcessRaisedException). mixed_precision, "no", "fp16" or "bf16", is passed on as ACCELERATE_MIXED_PRECISION.
    """
    from ..multiprocessing.spawn import start_processes
    from . import distributed_c10d

    if mixed_precision not in ("no", "fp16", "bf16", "fp8"):
        raise ValueError(f"Unknown mixed_precision mode: {mixed_precision}. Choose between no, fp16, bf16 and fp8.")
    count = _count() if num_processes is None else num_processes
    if count < 1:
        raise ValueError(f"notebook_launcher: expected at least one process: got num_processes={num_processes}")
    if node_rank >= num_nodes or node_rank < 0:
        raise ValueError(f"The node_rank must be less than the number of nodes: got {node_rank} of {num_nodes}")
    if distributed_c10d.is_initialized():
        raise ValueError("notebook_launcher: this process is in a process group itself: call distributed.destroy_process_group() first")
    port = int(use_port)
    if num_nodes == 1 and (port == 0 or not _is_free(master_addr, port)):
        port = _free_port(master_addr)
    environment = {"MASTER_ADDR": master_addr, "MASTER_PORT": str(port), "WORLD_SIZE": str(count * num_nodes), "LOCAL_WORLD_SIZE": str(count),
                   "GROUP_RANK": str(node_rank), "ACCELERATE_MIXED_PRECISION": mixed_precision}
    first = node_rank * count
    if count == 1 and num_nodes == 1:
        before = dict(os.environ)
        try:
            _rank(0, function, args, environment, 0)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return
    start_processes(_rank, (function, args, environment, first), nprocs=count, start_method="spawn")
