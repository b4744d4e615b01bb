"""A group of ranks and its collectives on lists of tensors, by PyTorch's names and with its options.

The engine (_C._Group) carries and reduces tensors, those of a GPU by NCCL or through copies on the host, checks what the ranks ask for and raises on
all of them; it is made for more than one rank only. Alone, a call copies its inputs into its outputs. Any thread; the order of calls
must be the same on all ranks.
"""

from __future__ import annotations

from ... import _C, no_grad
from ..._C import Tensor
from ._available import is_nccl_available
from ._ending import receive_at_the_end, tell_of_the_end
from ._types import Backend, BackendConfig, RedOpType, ReduceOp, _Factor, _Options
from ._work import EngineWork, Work, WorkOfMany, _milliseconds

__all__ = ["ProcessGroup"]

# Of distributed/group/group.h.
BARRIER, BROADCAST, ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECV = range(11)
_NAMES = ("barrier", "broadcast", "all_reduce", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "send", "recv")
_REDUCTIONS = {RedOpType.SUM: 0, RedOpType.AVG: 0, RedOpType.PREMUL_SUM: 0, RedOpType.PRODUCT: 1, RedOpType.MIN: 2, RedOpType.MAX: 3,
               RedOpType.BAND: 4, RedOpType.BOR: 5, RedOpType.BXOR: 6}
_DEFAULT = _Options()


def _reduction(op) -> tuple:
    """The engine's number, whether it is a mean, and the factor."""
    if type(op) is RedOpType:
        if op is RedOpType.PREMUL_SUM:
            raise ValueError("ReduceOp.PREMUL_SUM needs a factor: distributed._make_nccl_premul_sum(factor)")
        return _REDUCTIONS[op], op is RedOpType.AVG, None
    if isinstance(op, _Factor):
        return 0, False, op.factor
    raise TypeError(f"expected a ReduceOp: got {type(op).__name__}")


def _as_options(opts):
    """Options from what PyTorch's shorter forms pass: a reduction, a rank or nothing."""
    if isinstance(opts, _Options):
        return opts
    result = _Options()
    if isinstance(opts, ReduceOp):
        result.reduceOp = opts
    elif isinstance(opts, int):
        result.rootRank = opts
    elif opts is not None:
        raise TypeError(f"expected options: got {type(opts).__name__}")
    return result


def _list(tensors) -> list:
    return [tensors] if isinstance(tensors, Tensor) else tensors


class ProcessGroup:
    """Ranks that work together. Made by init_process_group and new_group; classes of backends derive from it.

    Methods take lists of tensors and options (AllreduceOptions and so on) and give a Work; functions of the same names in
    tapegrad.distributed check arguments first and are what programs call.
    """

    bound_device_id = None
    group_name = group_desc = ""

    def __init__(self, *args):
        """ProcessGroup(rank, size) or ProcessGroup(store, rank, size)."""
        *_, self._rank, self._size = args
        self._engine = self._backend = None
        self._store = args[0] if len(args) == 3 else None

    @classmethod
    def _start(cls, store, rank: int, size: int, backend: Backend, name: str, desc: str, engine: str, timeout, patience: int, ranks,
               parent: ProcessGroup | None) -> ProcessGroup:
        """The group, with an engine where it has several ranks: then all of them wait for each other here.

        `ranks`: theirs in the world; `parent`: the group of the whole job, whose failures are this one's, too.
        """
        self = cls(store, rank, size)
        self._backend, self.group_name, self.group_desc = backend, name, desc
        if size > 1:
            whole = parent._engine if parent is not None else None
            nccl = Backend.NCCL in BackendConfig(backend).device_backend_map.values() and is_nccl_available()
            self._engine = _C._Group(store._native(), rank, size, engine, desc or name, _milliseconds(timeout), patience, whole, list(ranks), nccl)
            if parent is None:
                tell_of_the_end(self._engine)
            receive_at_the_end(self._engine)
        return self

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks."""
        return self._size

    def name(self) -> str:
        """The backend's name."""
        return str(self._backend)

    _get_backend_name = name

    @property
    def engine(self) -> str:
        """What carries the tensors: "shared", "gloo", "threads", or "" for one rank."""
        return self._engine.engine if self._engine is not None else ""

    @property
    def _device_types(self) -> list:
        from ... import device

        return [device("cpu")]

    def _get_backend(self, device) -> ProcessGroup:
        return self

    def get_group_store(self):
        """The group's keys and values."""
        return self._store

    def __repr__(self) -> str:
        return f"<tapegrad.distributed.ProcessGroup {self.group_name!r}: rank {self.rank()} of {self.size()}, {self.engine or self._backend}>"

    # All calls come here.
    def _run(self, kind: int, inputs: list, outputs: list, opts=_DEFAULT, root: int = 0, reduction: tuple = (0, False, None), tag: int = 0,
             varying: bool = False) -> Work:
        if self._engine is None:
            if self._size > 1:
                raise ValueError(f"{_NAMES[kind]}: the group {self.group_name!r} has been destroyed")
            return self._alone(kind, inputs, outputs, reduction[2])
        wait = not opts.asyncOp
        limit = -1 if opts.timeout is _Options.timeout else _milliseconds(opts.timeout)
        return EngineWork(self._engine.run(kind, inputs, outputs, root, *reduction, tag, varying, limit, wait), outputs)

    def _alone(self, kind, inputs, outputs, factor) -> Work:
        if kind in (SEND, RECV):
            word = "destination" if kind == SEND else "source"
            raise ValueError(f"Invalid {word} rank: {word} rank should not be the same as the rank of the current process.\n"
                             f"{_NAMES[kind]}: there is one process only")
        with no_grad():
            if factor is not None:
                inputs = [t * factor for t in inputs or outputs]
            if len(inputs) not in (0, len(outputs)):
                raise ValueError(f"{_NAMES[kind]}: expected as many outputs as inputs: got {len(outputs)} and {len(inputs)}")
            for target, source in zip(outputs, inputs):
                if target.numel() != source.numel() or target.dtype != source.dtype:
                    raise ValueError(f"{_NAMES[kind]}: output and input must agree: got {list(target.shape)} of {target.dtype} and "
                                     f"{list(source.shape)} of {source.dtype}")
                target.copy_(source.reshape(target.shape))
        return Work(outputs)

    # Collectives.
    def broadcast(self, tensors, opts=None, root: int | None = None) -> Work:
        """The root's tensor for all, in place."""
        opts = _as_options(opts if root is None else root)
        return self._run(BROADCAST, [], _list(tensors), opts, opts.rootRank)

    def allreduce(self, tensors, opts=None, op=None) -> Work:
        """The reduction over all ranks, in place. Several tensors go in one call."""
        opts = _as_options(opts if op is None else op)
        return self._run(ALL_REDUCE, [], _list(tensors), opts, 0, _reduction(opts.reduceOp))

    allreduce_coalesced = allreduce

    def reduce(self, tensors, opts=None, root: int | None = None, op=None) -> Work:
        """The reduction for the root, in place; others keep theirs."""
        opts = _as_options(opts)
        return self._run(REDUCE, [], _list(tensors), opts, opts.rootRank if root is None else root, _reduction(op or opts.reduceOp))

    def allgather(self, output_lists, inputs, opts=None) -> Work:
        """Rank r's tensor into entry r of the list. Entries may have different sizes, the same on all ranks."""
        if isinstance(inputs, Tensor):
            output_lists, inputs = [output_lists], [inputs]
        (outputs,), (mine,) = output_lists, inputs
        if self._rank < len(outputs) and outputs[self._rank].numel() != mine.numel():
            here = outputs[self._rank]
            raise ValueError(f"all_gather: output and input must agree: entry {self._rank} of the outputs has shape {list(here.shape)}, "
                             f"this rank's tensor {list(mine.shape)}")
        varying = any([t.numel() != mine.numel() for t in outputs])
        return self._run(ALL_GATHER, [mine], outputs, _as_options(opts), varying=varying)

    def all_gather_single(self, output: Tensor, input: Tensor, opts=None) -> Work:
        """The ranks' tensors one after the other in one tensor."""
        return self._run(ALL_GATHER, [input], [output], _as_options(opts))

    _allgather_base = all_gather_single

    def _each(self, method, outputs, inputs, opts) -> Work:
        opts = _as_options(opts)
        if len(outputs) != len(inputs):
            raise ValueError(f"coalesced calls need as many outputs as inputs: got {len(outputs)} and {len(inputs)}")
        return WorkOfMany([method(output, input, opts) for output, input in zip(outputs, inputs, strict=True)], outputs)

    def allgather_coalesced(self, output_lists, inputs, opts=None) -> Work:
        """Rank r's i-th tensor into entry i of list r."""
        if len(output_lists) != self._size:
            raise ValueError(f"all_gather_coalesced: expected a list of outputs for each of {self._size} ranks: got {len(output_lists)}")
        per_input = [[of_rank[i] for of_rank in output_lists] for i in range(len(inputs))]
        work = self._each(lambda output, input, o: self.allgather([output], [input], o), per_input, inputs, opts)
        work._result = output_lists
        return work

    def all_gather_single_coalesced(self, outputs, inputs, opts=None) -> Work:
        """all_gather_single of several pairs."""
        return self._each(self.all_gather_single, outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, output_lists, inputs, opts=None) -> Work:
        """Rank r's tensor into entry r of the root's list."""
        opts = _as_options(opts)
        return self._run(GATHER, _list(inputs), output_lists[0] if output_lists else [], opts, opts.rootRank)

    def scatter(self, outputs, input_lists, opts=None) -> Work:
        """Entry r of the root's list into rank r's tensor."""
        opts = _as_options(opts)
        return self._run(SCATTER, input_lists[0] if input_lists else [], _list(outputs), opts, opts.rootRank)

    def reduce_scatter(self, outputs, input_lists, opts=None) -> Work:
        """The reduction of all ranks' r-th tensors for rank r."""
        opts = _as_options(opts)
        if isinstance(outputs, Tensor):
            outputs, input_lists = [outputs], [input_lists]
        return self._run(REDUCE_SCATTER, input_lists[0], outputs, opts, 0, _reduction(opts.reduceOp))

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts=None) -> Work:
        """The r-th part of the reduction of one tensor for rank r."""
        opts = _as_options(opts)
        return self._run(REDUCE_SCATTER, [input], [output], opts, 0, _reduction(opts.reduceOp))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None) -> Work:
        """reduce_scatter_single of several pairs."""
        return self._each(self.reduce_scatter_single, outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _parts(self, tensor: Tensor, sizes, name: str) -> list:
        """Views of the tensor's rows, one per rank."""
        n = self._size
        if tensor.dim() == 0:
            raise ValueError(f"all_to_all_single: {name} has no dimension to split")
        if not sizes:
            if tensor.size(0) % n:
                raise ValueError(f"all_to_all_single: Tensor's dim 0 does not divide equally across group size: {name} has {tensor.size(0)} "
                                 f"rows for {n} ranks")
            sizes = [tensor.size(0) // n] * n
        if len(sizes) != n:
            raise ValueError(f"all_to_all_single: Number of tensor splits not equal to group size: {name} has {len(sizes)} for {n} ranks")
        if sum(sizes) != tensor.size(0) or min(sizes) < 0:
            raise ValueError(f"all_to_all_single: Split sizes doesn't match total dim 0 size: {name} has {tensor.size(0)} rows for "
                             f"{list(sizes)}")
        return list(tensor.detach().split(list(sizes)))

    def all_to_all_single(self, output: Tensor, input: Tensor, output_split_sizes=(), input_split_sizes=(), opts=None) -> Work:
        """Rows of one tensor to each rank, rows of one tensor from each."""
        outputs, inputs = self._parts(output, output_split_sizes, "output"), self._parts(input, input_split_sizes, "input")
        work = self._run(ALL_TO_ALL, inputs, outputs, _as_options(opts))
        work._result = [output]
        return work

    alltoall_base = all_to_all_single

    def alltoall(self, outputs, inputs, opts=None) -> Work:
        """Entry r of the inputs to rank r, entry r of the outputs from it."""
        return self._run(ALL_TO_ALL, inputs, outputs, _as_options(opts))

    def barrier(self, opts=None) -> Work:
        """Waits for all ranks."""
        return self._run(BARRIER, [], [], _as_options(opts))

    def monitored_barrier(self, timeout=None, wait_all_ranks: bool = False) -> None:
        """A barrier that ends after `timeout` with DistBackendError naming the ranks that did not come."""
        opts = _Options()
        opts.asyncOp = False
        if timeout is not None:
            opts.timeout = timeout
        self.barrier(opts)

    def send(self, tensors, dst: int, tag: int = 0) -> Work:
        """One tensor to a rank, asynchronously."""
        return self._run(SEND, _list(tensors), [], root=dst, tag=tag)

    def recv(self, tensors, src: int, tag: int = 0) -> Work:
        """One tensor from a rank, asynchronously."""
        return self._run(RECV, [], _list(tensors), root=src, tag=tag)

    def recv_anysource(self, tensors, tag: int = 0) -> Work:
        """One tensor from whichever rank sends first, asynchronously."""
        return self._run(RECV, [], _list(tensors), root=-1, tag=tag)

    # The end.
    def abort(self, why: str = "the group was aborted") -> None:
        """Ends the group: calls that wait in it, on all ranks, raise DistBackendError."""
        if self._engine is not None:
            self._engine.abort(why)

    def shutdown(self) -> None:
        """Waits for calls that are under way and leaves; other ranks may go on among themselves."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

