"""Options of init_rpc."""

import enum

from ... import device as _device
from .constants import DEFAULT_INIT_METHOD, DEFAULT_NUM_WORKER_THREADS, DEFAULT_RPC_TIMEOUT_SEC

__all__ = ["BackendType", "RpcBackendOptions", "TensorPipeRpcBackendOptions"]


class BackendType(enum.Enum):
    """PyTorch's back ends: the one that there is takes the name of TensorPipe."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


class RpcBackendOptions:
    """Seconds that calls may take (0: no limit) and where workers find each other (as init_process_group's)."""

    def __init__(self, rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC, init_method: str = DEFAULT_INIT_METHOD) -> None:
        if not rpc_timeout >= 0:
            raise ValueError(f"RPC Timeout must be non-negative: got {rpc_timeout}")
        self.rpc_timeout, self.init_method = rpc_timeout, init_method


def _place(value) -> _device:
    return value if isinstance(value, _device) else _device(f"cuda:{value}") if isinstance(value, int) else _device(value)


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """RpcBackendOptions, and how many functions of callers may run at once, and for other workers, to which devices there tensors of devices
    here go. `devices` is not used."""

    def __init__(self, *, num_worker_threads: int = DEFAULT_NUM_WORKER_THREADS, rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
                 init_method: str = DEFAULT_INIT_METHOD, device_maps: dict | None = None, devices: list | None = None,
                 _transports: list | None = None, _channels: list | None = None) -> None:
        super().__init__(rpc_timeout, init_method)
        if num_worker_threads < 1:
            raise ValueError(f"num_worker_threads must be positive: got {num_worker_threads}")
        self.num_worker_threads = num_worker_threads
        self.device_maps: dict = {}
        for to, places in (device_maps or {}).items():
            self.set_device_map(to, places)
        self.set_devices(devices or [])

    def set_device_map(self, to: str, device_map: dict) -> None:
        """Adds where tensors go that are sent to a worker; ValueError where two devices would go to one, or one to two."""
        known = dict(self.device_maps.get(to, {}))
        for here, there in device_map.items():
            here, there = _place(here), _place(there)
            if known.get(here, there) != there:
                raise ValueError(f"`set_device_map` only supports 1-to-1 mapping, trying to map {here} to {there} and {known[here]}")
            known[here] = there
        if len(set(known.values())) != len(known):
            raise ValueError(f"`set_device_map` only supports 1-to-1 mapping: got {known}")
        self.device_maps[to] = known

    def set_devices(self, devices: list) -> None:
        """Kept, and not used."""
        self.devices = [_place(d) for d in devices]
