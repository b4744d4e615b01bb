"""Which parameters share a bucket, what a gradient is worth, and what becomes of a full bucket: the part of
DistributedDataParallel that runs in the midst of a backward.

`GradientSync` owns the native buckets (distributed/reducer.h); its methods begin, ready and end run on the thread of the backward. All
ranks give their buckets to the group in the same order, whatever the order in which their gradients come.
"""

import time
import weakref

from ... import _C, float64, int64, is_grad_enabled, no_grad, tensor, zeros
from ..._warn import warn

__all__ = ["GradientSync", "assign"]

_FIRST_BYTES = 1 << 20


def assign(order, parameters, sparse, caps) -> list:
    """Lists of indices of parameters, each at least as long as its cap: the caps' entries in turn, then the last one for all. One dtype and
    device per bucket; sparse parameters are alone. The bucket that will be full first comes first, when gradients come in this order."""
    buckets, under_way = [], {}
    for index in order:
        p = parameters[index]
        if sparse[index]:
            buckets.append([index])
            continue
        kind = (p.dtype, p.device)
        bucket, size, done = under_way.get(kind, ([], 0, 0))
        bucket.append(index)
        size += p.numel() * p.element_size()
        if size >= caps[min(done, len(caps) - 1)]:
            buckets.append(bucket)
            bucket, size, done = [], 0, done + 1
        under_way[kind] = (bucket, size, done)
    buckets += [bucket for bucket, _, _ in under_way.values() if bucket]
    place = {index: i for i, index in enumerate(order)}
    return sorted(buckets, key=lambda bucket: place[bucket[-1]])


def _weakly(method):
    """The bound method, which does not keep its object."""
    reference = weakref.WeakMethod(method)

    def call(*args):
        bound = reference()
        if bound is not None:
            bound(*args)

    return call


class _InAnotherDtype:
    """A reduction of a bucket's copy."""

    def __init__(self, work, sent, buffer):
        self._work, self._sent, self._buffer = work, sent, buffer

    def wait(self):
        """Until the bucket has the result."""
        self._work.wait()
        self._buffer.copy_(self._sent)


class GradientSync:
    """The gradients of some parameters, made equal on all ranks of a group while they are computed."""

    def __init__(self, group, named, sparse, caps, average, warn_unused: bool):
        self.group, self.names, self.parameters = group, [n for n, _ in named], [p for _, p in named]
        self.sparse, self.caps, self.average, self.warn_unused = sparse, caps, average, warn_unused
        self.hook = None  # (state, callable)
        self.dtype = None  # of the sums over the ranks; None: the gradients' own
        self.divisor = None  # how many ranks still have input, when not all (join)
        self.samples = 0  # of this rank's forward passes since the last synchronisation
        self.begun, self.steps, self.waited, self.rebuilt = 0, 0, 0.0, False
        self._works: list = []
        self._count = None
        self.native = _C._Reducer(self.parameters, _weakly(self.begin), _weakly(self.ready), _weakly(self.end))
        self._set_buckets(range(len(self.parameters) - 1, -1, -1))

    def _set_buckets(self, order) -> None:
        self.buckets = assign(list(order), self.parameters, self.sparse, self.caps)
        self.native.set_buckets(self.buckets, [self.sparse[bucket[0]] for bucket in self.buckets])

    # What happens in a backward.
    def begin(self) -> None:
        """The first gradient is there."""
        self._works = [None] * len(self.buckets)  # what a failed backward left behind is forgotten
        self._begin_step()

    def _begin_step(self) -> None:
        from ...distributed import all_reduce

        self.begun += 1
        self._count = None
        if self.average == "samples" and self.hook is None:
            total = tensor([float(self.samples)], dtype=float64)
            self._count = (self.samples, total, all_reduce(total, group=self.group, async_op=True))

    def _reduction(self):
        from ...distributed import ReduceOp
        from ...distributed.distributed_c10d._types import _make_nccl_premul_sum

        if self._count is not None:
            mine, total, work = self._count
            if work is not None:
                work.wait()
                self._count = (mine, total, None)
            return _make_nccl_premul_sum(mine / max(total.item(), 1.0))
        return ReduceOp.AVG if self.divisor is None else _make_nccl_premul_sum(1 / self.divisor)

    def _start(self, index: int, buffer, gradients):
        """Begins to reduce a bucket; what `_finish` takes."""
        from ...distributed import GradBucket, all_reduce
        from ...distributed.distributed_c10d._deferred import deferring
        from ...distributed.distributed_c10d._process_group import ALL_REDUCE, _reduction

        if self.hook is None:
            sent = buffer if self.dtype is None else buffer.to(self.dtype)
            if getattr(self.group, "_engine", None) is None:
                work = all_reduce(sent, self._reduction(), group=self.group, async_op=True)
            else:  # Numbered, so that ranks of which one has left a backward early notice it.
                work = self.group._run(ALL_REDUCE, [], [sent], reduction=_reduction(self._reduction()), tag=self.begun << 16 | index + 1)
            return work if sent is buffer else _InAnotherDtype(work, sent, buffer)
        state, hook = self.hook
        params = [self.parameters[i] for i in self.buckets[index]]
        with no_grad(), deferring():
            return hook(state, GradBucket(index, buffer, gradients, params, index == len(self.buckets) - 1))

    def ready(self, index: int) -> None:
        """All gradients of a bucket are in it, and all buckets before it have been begun."""
        (first, *_) = self.buckets[index]
        if self.sparse[first]:
            from ._sparse_rows import reduce_rows

            self._works[index] = reduce_rows(self.parameters[first], self.group, self._reduction())
        else:
            buffer = self.native.buffer(index, self.hook is None)
            self._works[index] = self._start(index, buffer, self.native.views(index) if self.hook is not None else None)

    def end(self) -> None:
        """The backward is over: waits for all buckets."""
        begin = time.perf_counter()
        used = self._reduce_used(self.native.unused())
        with no_grad():
            for index, work in enumerate(self._works):
                result = work.wait()
                if self.hook is not None and not self.sparse[self.buckets[index][0]]:
                    self._take(index, result)
        self._works = []
        self.waited += time.perf_counter() - begin
        self._adopt_others(used)
        self.after_step()
        if is_grad_enabled():
            warn("DistributedDataParallel: backward(create_graph=True): the gradients are reduced, but their own graph is not kept: "
                 "no gradients of gradients go through them")

    def after_step(self) -> None:
        """What all ranks do after each synchronisation, those without input, too."""
        self.steps += 1
        self.samples = 0
        if not self.rebuilt:
            self._rebuild()

    def _take(self, index: int, result) -> None:
        result = result[0] if isinstance(result, (list, tuple)) else result
        buffer = self.native.buffer(index)
        if result.data_ptr() != buffer.data_ptr() or result.dtype != buffer.dtype:
            buffer.copy_(result.reshape(buffer.shape))

    # Parameters that this rank did not use.
    def _reduce_used(self, unused: list):
        """Hooks see gradients only, so with one the ranks tell each other apart from it which parameters they used."""
        if self.hook is None:
            return unused
        from ...distributed import ReduceOp, all_reduce

        used = self._used_flags(unused)
        all_reduce(used, ReduceOp.MAX, group=self.group)
        return [(i, used[i].item() > 0) for i in unused]

    def _used_flags(self, unused):
        used = zeros(len(self.parameters), dtype=int64) + 1
        if len(unused):
            used[tensor(list(unused))] = 0
        return used

    def _adopt_others(self, unused: list) -> None:
        if self.hook is None and unused:
            flags = {}
            for index, bucket in enumerate(self.buckets):
                if not self.sparse[bucket[0]] and not set(bucket).isdisjoint(unused):
                    values = self.native.buffer(index, True)[-len(bucket):].tolist()
                    flags.update(zip(bucket, values, strict=True))
            unused = [(i, flags.get(i, 0) != 0) for i in unused]
        for i, others_do in unused:
            if others_do and not self.sparse[i]:
                self.native.adopt(i)
        if unused and self.warn_unused:
            self.warn_unused = False
            names = ", ".join(self.names[i] for i, _ in unused)
            warn(f"DistributedDataParallel: no gradient came for {names} on rank {self.group.rank()}: they count as zero here, and "
                 "stay as they are where no rank has one\nfind_unused_parameters=True says that this is meant")

    def _rebuild(self) -> None:
        """Buckets in the order in which gradients came on rank 0, the same on all ranks."""
        from ...distributed import broadcast

        self.rebuilt = True
        if len(self.buckets) == 1:
            return
        came = self.native.order()
        seen = set(came)
        order = tensor(came + [i for i in range(len(self.parameters) - 1, -1, -1) if i not in seen], dtype=int64)
        broadcast(order, group=self.group, group_src=0)
        self._set_buckets(order.tolist())

    # For a rank without input while others still have some.
    def shadow(self) -> None:
        """Takes part in a synchronisation with zeros."""
        from ...distributed import ReduceOp, all_reduce

        self.samples = 0
        self._begin_step()
        works = []
        for index, bucket in enumerate(self.buckets):
            params = [self.parameters[i] for i in bucket]
            if self.sparse[bucket[0]]:
                from ._sparse_rows import reduce_rows

                works.append(reduce_rows(params[0], self.group, self._reduction(), shadow=True))
                continue
            sizes = [p.numel() for p in params]
            buffer = zeros(sum(sizes) + (len(sizes) if self.hook is None else 0), dtype=params[0].dtype, device=params[0].device)
            views = [v.view(p.shape) for v, p in zip(buffer.split(sizes), params, strict=True)] if self.hook is not None else None
            works.append(self._start(index, buffer, views))
        if self.hook is not None:
            all_reduce(self._used_flags(range(len(self.parameters))), ReduceOp.MAX, group=self.group)
        for work in works:
            work.wait()
        self.after_step()
