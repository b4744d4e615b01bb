"""Groups, backends, reductions and works: the small classes of collectives."""

from __future__ import annotations

import enum

from ..futures import Future

__all__ = ["Backend", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "GradBucket", "GroupMember", "P2POp", "ProcessGroup",
           "ReduceOp", "Work", "group"]


class DistError(RuntimeError):
    """An error of collectives."""


class DistBackendError(DistError):
    """An error of what carries collectives."""


class DistNetworkError(DistError):
    """An error of the network."""


class DistStoreError(DistError):
    """An error of a store."""


class ReduceOp(enum.Enum):
    """How tensors of several processes become one. Of one process they are its own, whatever the operation."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)


ReduceOp.RedOpType = ReduceOp


class Backend(str):
    """The name of what carries collectives, in lower case."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}
    backend_capability = {GLOO: ["cpu", "cuda"], NCCL: ["cuda"], XCCL: ["xpu"], UCC: ["cpu", "cuda"], MPI: ["cpu", "cuda"]}

    def __new__(cls, name: str):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: got {type(name).__name__}")
        known = {b.upper() for b in cls.backend_list}
        for part in name.split(","):  # "gloo", "cpu:gloo,cuda:nccl"
            if part.rpartition(":")[2].upper() not in known:
                raise ValueError(f"Backend: unknown backend: got {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func, extended_api=False, devices=None) -> None:
        """Refused: nothing is carried between processes."""
        raise NotImplementedError("Backend.register_backend: tapegrad carries no collectives between processes")


class ProcessGroup:
    """Processes that work together: here this one."""

    def __init__(self, backend: Backend, name: str):
        self._backend, self.group_name, self.group_desc = backend, name, name

    def rank(self) -> int:
        """0."""
        return 0

    def size(self) -> int:
        """1."""
        return 1

    def name(self) -> str:
        """The backend's name."""
        return str(self._backend)

    def __repr__(self) -> str:
        return f"<tapegrad.distributed.ProcessGroup of one process, {self._backend}>"


class _NonMember:
    """The group of those who are not in it."""


class _World(type):
    @property
    def WORLD(cls):
        from . import distributed_c10d

        return distributed_c10d._world

    @WORLD.setter
    def WORLD(cls, group):
        from . import distributed_c10d

        distributed_c10d._world = group


class group(metaclass=_World):
    """group.WORLD: the group of all processes, None before init_process_group."""


class GroupMember(metaclass=_World):
    """GroupMember.WORLD: all processes; NON_GROUP_MEMBER: what new_group gives to those outside."""

    NON_GROUP_MEMBER = -100


class Work:
    """A collective that was started with async_op=True. Among one process it is done."""

    def __init__(self, result=None):
        self._result = result

    def wait(self, timeout=None) -> bool:
        """True: it is done."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self):
        """None."""
        return None

    def result(self):
        """The tensors."""
        return self._result

    def synchronize(self) -> None:
        """Returns at once."""

    def get_future(self) -> Future:
        """A future of the tensors."""
        future = Future()
        future.set_result(self._result)
        return future


class P2POp:
    """A send or a receive for batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


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
