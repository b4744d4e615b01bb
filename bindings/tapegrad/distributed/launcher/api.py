"""The launcher as functions: `elastic_launch(LaunchConfig(...), function or command)(*args)`, for the ranks of one machine."""

import dataclasses
import os
import uuid

from ..elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclasses.dataclass
class LaunchConfig:
    """How ranks are started. PyTorch's fields; those of several machines must say one."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "c10d"
    rdzv_configs: dict = dataclasses.field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict = dataclasses.field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: object = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list | None = None
    duplicate_stderr_filters: list | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: float | None = None

    def __post_init__(self):
        if self.min_nodes != 1 or self.max_nodes < 1:
            raise ValueError(f"LaunchConfig: tapegrad's launcher starts the ranks of one machine: got min_nodes={self.min_nodes} and "
                             f"max_nodes={self.max_nodes}\nfor several machines use torchrun, srun or mpirun, whose variables are understood")
        for name, least in (("nproc_per_node", 1), ("max_restarts", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"LaunchConfig: {name} must be at least {least}: got {getattr(self, name)}")
        if self.start_method not in ("spawn", "fork", "forkserver"):
            raise ValueError(f"LaunchConfig: start_method must be spawn, fork or forkserver: got {self.start_method!r}")
        if self.shutdown_timeout is None:
            given = os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30")
            try:
                self.shutdown_timeout = float(given)
            except ValueError:
                raise ValueError(f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expected a number of seconds: got {given!r}") from None
        if self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")
        self.logs_specs = self.logs_specs or DefaultLogsSpecs()
        self.run_id = str(self.run_id or uuid.uuid4())


def launch_agent(config: LaunchConfig, entrypoint, args: list) -> dict:
    """Runs the ranks to their end; what each function gave, by rank. ChildFailedError names the rank that failed first."""
    if entrypoint is None or not (callable(entrypoint) or isinstance(entrypoint, str)):
        raise TypeError(f"elastic_launch: the entry point must be a function or a command: got {type(entrypoint).__name__}")
    for name in ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters"):  # a program may take them back until here
        if getattr(config, name):
            raise ValueError(f"LaunchConfig: tapegrad's launcher has no {name}: got {getattr(config, name)!r}")
    from ._agent import run_agent

    return run_agent(config, entrypoint, tuple(args))


class elastic_launch:
    """elastic_launch(config, entrypoint)(*args): see launch_agent."""

    def __init__(self, config: LaunchConfig, entrypoint):
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args):
        return launch_agent(self._config, self._entrypoint, list(args))
