"""Small types of collectives: backends, reductions, options, constants of groups, buckets of gradients."""

from __future__ import annotations

import enum
from collections import namedtuple
from datetime import timedelta

from ... import _C
from ..._warn import warn

__all__ = ["AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "Backend", "BackendConfig", "BarrierOptions",
           "BroadcastOptions", "DebugLevel", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "GatherOptions", "GradBucket",
           "GroupMember", "GroupName", "ReduceOp", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions", "get_debug_level", "group"]

GroupName = str


# What C++ raises.
DistError, DistBackendError, DistNetworkError, DistStoreError = (_C._DistError, _C._DistBackendError, _C._DistNetworkError,
                                                                   _C._DistStoreError)


class RedOpType(enum.Enum):
    """The kinds of reductions."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)

    def __hash__(self) -> int:
        return self.value

    def __eq__(self, other) -> bool:
        return self is (other.op if isinstance(other, _Factor) else other)

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


class _ReduceOps(type):
    def __instancecheck__(cls, value) -> bool:
        return cls is ReduceOp and type(value) is RedOpType or type.__instancecheck__(cls, value)


class ReduceOp(metaclass=_ReduceOps):
    """How tensors of several processes become one: ReduceOp.SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR."""

    RedOpType = RedOpType

    def __new__(cls, op):
        return op if type(op) is RedOpType else RedOpType(op)


for _member in RedOpType:
    setattr(ReduceOp, _member.name, _member)


class _Factor(ReduceOp):
    """The sum of tensors that are multiplied by a factor first."""

    op = RedOpType.PREMUL_SUM

    def __new__(cls, factor):
        return object.__new__(cls)

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other) -> bool:
        return other is self.op or isinstance(other, _Factor) and other.factor == self.factor

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return f"ReduceOp.PREMUL_SUM({self.factor})"


def _make_nccl_premul_sum(factor) -> ReduceOp:
    """The sum of the ranks' tensors, each multiplied by its own rank's `factor` (a number or a tensor of one) first."""
    return _Factor(float(factor))


class Backend(str):
    """The name of what carries collectives, in lower case."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"
    SHARED = "shared"  # ours: the memory that processes of one machine share
    _BackendPlugin = namedtuple("_BackendPlugin", ["creator_fn", "extended_api"])
    _plugins: dict[str, _BackendPlugin] = {}
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE, SHARED]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}
    backend_capability = {GLOO: ["cpu", "cuda"], SHARED: ["cpu", "cuda"], NCCL: ["cuda"], XCCL: ["xpu"], UCC: ["cpu", "cuda"],
                          MPI: ["cpu", "cuda"], FAKE: ["cpu", "cuda"]}

    def __new__(cls, name: str):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: got {type(name).__name__}")
        for part in name.split(","):  # "gloo", "cpu:gloo,cuda:nccl"
            if part.rpartition(":")[2].strip().lower() not in cls.backend_list:
                raise ValueError(f"Backend: unknown backend: got {name!r}\nknown are {', '.join(cls.backend_list)}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func, extended_api: bool = False, devices=None) -> None:
        """Adds a backend written in Python: func(store, rank, size, timeout) gives a ProcessGroup, an object of a class derived from
        ours. With extended_api it is called with (options, pg_options); options has store, group_rank, group_size, timeout, group_id."""
        short = name.lower()
        setattr(cls, name.upper(), short)
        if short not in cls.backend_list:
            cls.backend_list.append(short)
        if devices is None:
            warn(f"Device capability of {name} unspecified, assuming `cpu` and `cuda`. "
                 "Please specify it via the `devices` argument of `register_backend`.")
            devices = ["cpu", "cuda"]
        cls.backend_capability[short] = [devices] if isinstance(devices, str) else list(devices)
        for device in cls.backend_capability[short]:
            cls.default_device_backend_map.setdefault(device, short)
        cls._plugins[name.upper()] = cls._BackendPlugin(func, extended_api)


class BackendConfig:
    """Which backend the tensors of each device go through."""

    def __init__(self, backend: str):
        backend = str(backend).lower()
        self.device_backend_map: dict[str, Backend] = {}
        if ":" not in backend:
            devices = ["cpu", "cuda"] if backend == Backend.UNDEFINED else Backend.backend_capability[backend]
            self.device_backend_map = dict.fromkeys(devices, Backend(Backend.GLOO if backend == Backend.UNDEFINED else backend))
            return
        for pair in backend.split(","):
            device, colon, name = pair.partition(":")
            if not colon or ":" in name:
                raise ValueError(f"Invalid device:backend pairing: {pair}. The custom backend string argument is invalid: {backend}.\n"
                                 'The format is "<device_type1>:<backend1>,<device_type2>:<backend2>...", as in "cpu:gloo,cuda:nccl"')
            if device in self.device_backend_map:
                raise ValueError(f"Duplicate device type {device} in backend string: {backend}.")
            self.device_backend_map[device] = Backend(name)

    def get_device_backend_map(self) -> dict:
        """device type -> backend."""
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


class _Options:
    """What a call of a ProcessGroup's method takes besides tensors."""

    reduceOp = RedOpType.SUM
    rootRank = rootTensor = 0
    asyncOp = True
    timeout = timedelta(milliseconds=-1)  # the group's
    device = None
    device_ids: list = []


def _options(name: str) -> type:
    return type(name, (_Options,), {"__doc__": _Options.__doc__, "__module__": __name__})


AllgatherOptions, AllreduceOptions, AllreduceCoalescedOptions, AllToAllOptions, BarrierOptions, BroadcastOptions = map(_options, (
    "AllgatherOptions", "AllreduceOptions", "AllreduceCoalescedOptions", "AllToAllOptions", "BarrierOptions", "BroadcastOptions"))
GatherOptions, ReduceOptions, ReduceScatterOptions, ScatterOptions = map(_options, (
    "GatherOptions", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions"))


class DebugLevel(enum.IntEnum):
    """$TORCH_DISTRIBUTED_DEBUG. Every collective compares what the ranks ask for at every level."""

    OFF, INFO, DETAIL = range(3)


def get_debug_level() -> DebugLevel:
    """The level that the environment asks for."""
    import os

    try:
        return DebugLevel[(os.environ.get("TORCH_DISTRIBUTED_DEBUG") or "OFF").upper()]
    except KeyError:
        raise ValueError("The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.") from None


class _WorldOfAll(type):
    @property
    def WORLD(cls):
        from ._world import _world

        return _world.default_pg

    @WORLD.setter
    def WORLD(cls, pg):
        from ._world import _world

        _world.default_pg = pg


class group(metaclass=_WorldOfAll):
    """group.WORLD: the group of all processes, None before init_process_group."""


class GroupMember(metaclass=_WorldOfAll):
    """GroupMember.WORLD: all processes; NON_GROUP_MEMBER: what new_group gives to those outside."""

    NON_GROUP_MEMBER = -100


class GradBucket:
    """Gradients that are passed on together, as a hook of DistributedDataParallel sees them."""

    def __init__(self, index, buffer, gradients, parameters, is_last):
        self._index, self._buffer, self._gradients, self._parameters, self._is_last = index, buffer, gradients, parameters, is_last

    def index(self) -> int:
        """The bucket's number."""
        return self._index

    def buffer(self):
        """All gradients in one vector."""
        return self._buffer

    def gradients(self) -> list:
        """The gradients, views of the buffer."""
        return self._gradients

    def parameters(self) -> list:
        """Whose gradients these are."""
        return self._parameters

    def is_last(self) -> bool:
        """Whether this is the last bucket of a backward pass."""
        return self._is_last

    def set_buffer(self, buffer) -> None:
        """Replaces the vector."""
        self._buffer = buffer
