"""python -m tapegrad.distributed.run [options] script.py [its arguments]: a script as several ranks of one machine, with torchrun's options.

Every option may also be given as a variable of the environment, PET_NPROC_PER_NODE for --nproc-per-node.
"""

import argparse
import os
import sys
import uuid

from .elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from .elastic.multiprocessing.errors import ChildFailedError, record
from .launcher.api import LaunchConfig, elastic_launch

__all__ = ["config_from_args", "determine_local_world_size", "get_args_parser", "main", "parse_args", "parse_min_max_nnodes", "run"]

_NOTHING = "accepted for torchrun's sake"
_OPTIONS = (
    ("--nnodes", {"default": "1:1", "help": "number of machines: 1"}),
    ("--nproc-per-node", {"default": "1", "help": "ranks: a number, cpu (one per core), gpu (one per GPU), auto (GPUs, else cores)"}),
    ("--rdzv-backend", {"default": "static", "help": "static or c10d: for one machine the same"}),
    ("--rdzv-endpoint", {"default": "", "help": "host:port at which the store is served"}),
    ("--rdzv-id", {"default": "none", "help": "name of the job"}),
    ("--rdzv-conf", {"default": "", "help": _NOTHING}),
    ("--standalone", {"flag": True, "help": "serve the store at a free port of this machine, whatever else is said"}),
    ("--max-restarts", {"default": 0, "type": int, "help": "how often all ranks are started again when one fails"}),
    ("--monitor-interval", {"default": 0.1, "type": float, "help": "seconds between looks at the ranks"}),
    ("--start-method", {"default": "spawn", "choices": ["spawn", "fork", "forkserver"], "help": "how functions are started"}),
    ("--event-log-handler", {"default": "null", "help": _NOTHING}),
    ("--role", {"default": "default", "help": "name of the ranks in the prefix of their lines"}),
    ("-m --module", {"flag": True, "help": "the script is a module, as for python -m"}),
    ("--no-python", {"flag": True, "help": "the script is a program of its own"}),
    ("--run-path", {"flag": True, "help": "run the script with runpy in a process made by --start-method"}),
    ("--log-dir", {"default": None, "help": "folder of log files"}),
    ("-r --redirects", {"default": "0", "help": "streams that go to files: 1 output, 2 errors, 3 both, or 0:1,1:2 by local rank"}),
    ("-t --tee", {"default": "0", "help": "streams that go to files and to the console"}),
    ("--local-ranks-filter", {"default": "", "help": "local ranks that are shown on the console: 0,1"}),
    ("--node-rank", {"default": 0, "type": int, "help": "number of this machine: 0"}),
    ("--master-addr", {"default": "127.0.0.1", "help": "address at which the store is served"}),
    ("--master-port", {"default": None, "type": int, "help": "port of the store; a free one if it is not given"}),
    ("--local-addr", {"default": None, "help": _NOTHING}),
    ("--signals-to-handle", {"default": "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "help": "signals that are passed on to the ranks"}),
    ("--shutdown-timeout", {"default": None, "type": float, "help": "seconds between the signal and SIGKILL: 30"}),
    ("--virtual-local-rank", {"flag": True, "help": "each rank sees its own GPU as the first one"}),
)


def get_args_parser() -> argparse.ArgumentParser:
    """torchrun's options."""
    parser = argparse.ArgumentParser(prog="python -m tapegrad.distributed.run", description="Runs a script as several ranks of one machine.")
    for names, options in _OPTIONS:
        options, names = dict(options), names.split()
        long = names[-1]
        dest = long[2:].replace("-", "_")
        given = os.environ.get(f"PET_{dest.upper()}")
        if options.pop("flag", False):
            options.update(action="store_true", default=(given or "0") not in ("0", "", "False", "false"))
        elif given is not None:
            options["default"] = given  # argparse converts texts
        if "-" in long[2:]:
            names.append("--" + dest)
        parser.add_argument(*names, dest=dest, **options)
    parser.add_argument("training_script", help="the script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(args):
    """The options of a command line."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """ "1" or "1:1"."""
    parts = nnodes.split(":")
    if len(parts) > 2 or not all(part.isdigit() for part in parts):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """How many ranks: a number, cpu, gpu or auto."""
    try:
        n = int(nproc_per_node)
    except ValueError:
        from .. import cuda, get_num_threads

        if nproc_per_node == "gpu" and not cuda.is_available():
            raise ValueError("Cuda is not available.") from None
        if nproc_per_node == "gpu" or (nproc_per_node == "auto" and cuda.is_available()):
            return cuda.device_count()
        if nproc_per_node in ("cpu", "auto"):
            return get_num_threads() if "OMP_NUM_THREADS" not in os.environ else len(os.sched_getaffinity(0))
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}") from None
    if n < 1:
        raise ValueError(f"nproc_per_node must be at least 1: got {n}")
    return n


def _endpoint(args) -> tuple[str, str]:
    """Where the store is served, and the job's name."""
    if args.standalone:
        return "127.0.0.1:0", str(uuid.uuid4())
    run_id = args.rdzv_id if args.rdzv_id != "none" else str(uuid.uuid4())
    if args.rdzv_endpoint:
        host, colon, port = args.rdzv_endpoint.rpartition(":")
        return (args.rdzv_endpoint if colon and port.isdigit() else f"{args.rdzv_endpoint}:0"), run_id
    return f"{args.master_addr}:{args.master_port or 0}", run_id


def config_from_args(args) -> tuple:
    """(LaunchConfig, command or function, its arguments)."""
    low, high = parse_min_max_nnodes(args.nnodes)
    if low != 1 or args.node_rank != 0:
        raise ValueError(f"tapegrad's launcher starts the ranks of one machine: got --nnodes={args.nnodes} --node-rank={args.node_rank}\n"
                         "for several machines use torchrun, srun or mpirun, whose variables are understood")
    shown = None
    if args.local_ranks_filter:
        try:
            shown = {int(rank) for rank in args.local_ranks_filter.split(",")}
        except ValueError:
            raise ValueError("--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2") from None
    endpoint, run_id = _endpoint(args)
    config = LaunchConfig(
        min_nodes=low, max_nodes=high, nproc_per_node=determine_local_world_size(args.nproc_per_node), run_id=run_id, role=args.role,
        rdzv_endpoint=endpoint, rdzv_backend=args.rdzv_backend, max_restarts=args.max_restarts, monitor_interval=args.monitor_interval,
        start_method=args.start_method, log_line_prefix_template=os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        logs_specs=DefaultLogsSpecs(args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), shown),
        signals_to_handle=args.signals_to_handle, virtual_local_rank=args.virtual_local_rank, shutdown_timeout=args.shutdown_timeout)
    rest = list(args.training_script_args)
    if not getattr(args, "use_env", True):
        rest = ["--local-rank=${local_rank}", *rest]  # the launcher puts each rank's number there
    if args.run_path:
        return config, _run_script_path, [args.training_script, *rest]
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no_python' flag and the '--module' flag at the same time.")
        return config, args.training_script, rest
    return config, os.environ.get("PYTHON_EXEC", sys.executable), ["-u", *(["-m"] if args.module else []), args.training_script, *rest]


def _run_script_path(script: str, *args) -> None:
    import runpy

    sys.argv = [script, *args]
    runpy.run_path(script, run_name="__main__")


def run(args) -> None:
    """Runs the ranks to their end."""
    config, command, rest = config_from_args(args)
    elastic_launch(config=config, entrypoint=command)(*rest)


@record
def main(args=None) -> None:
    """The command line. Exits with 1 where ranks have failed, and says which."""
    try:
        run(parse_args(args))
    except (ValueError, RuntimeError, OSError) as e:
        sys.exit(f"tapegrad.distributed.run: {e}")


def _command_line(main) -> None:
    try:
        main()
    except (ChildFailedError, SignalException) as e:
        sys.exit(str(e))


if __name__ == "__main__":
    _command_line(main)
