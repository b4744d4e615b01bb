"""Remote procedure calls, and references to values on other workers, by PyTorch's names (`distributed.autograd` carries gradients).

Workers are processes that run the same program. Functions and classes travel by name, values as plain data and tensors; nothing is unpickled
unless `distributed.allow_pickle` says so. A worker runs whatever function another one names: only processes that trust each other, and know
the secret in the job's store, are connected. What is sent is not encrypted.
"""

from . import api, constants, functions, options  # noqa: F401
from ._agent import WorkerInfo
from .api import (
    RRef,
    _all_gather,
    _barrier,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _wait_all,
    _wait_all_workers,
    get_worker_info,
    init_rpc,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from .options import BackendType, RpcBackendOptions, TensorPipeRpcBackendOptions

PyRRef = RRef

__all__ = ["BackendType", "RRef", "RpcBackendOptions", "TensorPipeRpcBackendOptions", "WorkerInfo", "functions", "get_worker_info", "init_rpc",
           "is_available", "remote", "rpc_async", "rpc_sync", "shutdown"]


def is_available() -> bool:
    """Whether there are remote calls: always."""
    return True


def get_rpc_timeout() -> float:
    """Seconds that a call of this worker may take where it does not say."""
    return _get_current_rpc_agent().timeout


def _set_rpc_timeout(seconds: float) -> None:
    _get_current_rpc_agent().timeout = seconds
