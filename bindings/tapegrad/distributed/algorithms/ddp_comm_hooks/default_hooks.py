"""Hooks that all-reduce gradients unchanged or in 16 bits."""

from .... import bfloat16, empty, empty_like, float16
from ....futures import Future

__all__ = ["ErrorFeedback", "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "error_feedback_hook", "fp16_compress_hook",
           "fp16_compress_wrapper"]


def _group(process_group):
    from ... import group

    return process_group if process_group is not None else group.WORLD


def _allreduce_fut(process_group, tensor) -> Future:
    """A future of the mean of a tensor over the ranks, in its memory."""
    from ... import all_reduce

    group = _group(process_group)
    tensor.div_(group.size())
    return all_reduce(tensor, group=group, async_op=True).get_future().then(lambda future: future.value()[0])


def allreduce_hook(process_group, bucket) -> Future:
    """The mean of the gradients over the ranks: what happens without a hook."""
    return _allreduce_fut(process_group, bucket.buffer())


def _compress(dtype, process_group, buffer) -> Future:
    return _allreduce_fut(process_group, buffer.to(dtype)).then(lambda future: buffer.copy_(future.value()))


def fp16_compress_hook(process_group, bucket) -> Future:
    """The mean of the gradients, passed on as float16."""
    return _compress(float16, process_group, bucket.buffer())


def bf16_compress_hook(process_group, bucket) -> Future:
    """The mean of the gradients, passed on as bfloat16."""
    return _compress(bfloat16, process_group, bucket.buffer())


def _wrapper(hook, dtype):
    def wrapped(hook_state, bucket) -> Future:
        given = bucket.buffer()
        bucket.set_buffer(given.to(dtype))
        return hook(hook_state, bucket).then(lambda future: given.copy_(future.value()))

    return wrapped


def fp16_compress_wrapper(hook):
    """The hook, on gradients in float16."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook):
    """The hook, on gradients in bfloat16."""
    return _wrapper(hook, bfloat16)


class ErrorFeedback:
    """The state of error_feedback_hook: which 16-bit type, and what rounding has kept back of each parameter's gradient so far.

    One state for one model. It is not saved with the model: a run that goes on from a checkpoint begins with nothing kept back.
    """

    def __init__(self, process_group=None, dtype=bfloat16):
        if dtype not in (float16, bfloat16):
            raise ValueError(f"ErrorFeedback: dtype must be float16 or bfloat16: got {dtype}")
        self.process_group, self.dtype = process_group, dtype
        self._kept_of_sums: dict = {}
        self._kept: dict = {}  # parameters of a bucket -> what was kept back, as one vector

    def kept(self, bucket):
        """What was kept back of this bucket's gradients; zero at first, moved along when buckets change."""
        params = bucket.parameters()
        key = tuple(map(id, params))
        if key not in self._kept:
            parts = {name: part for names, kept in self._kept.items()
                     for name, part in zip(names, kept.split([self._sizes[n] for n in names]), strict=True)}
            self._sizes = {**getattr(self, "_sizes", {}), **{id(p): p.numel() for p in params}}
            fresh = empty_like(bucket.buffer()).zero_()
            for p, part in zip(params, fresh.split([p.numel() for p in params]), strict=True):
                if id(p) in parts:
                    part.copy_(parts[id(p)])
            for names in [names for names in self._kept if all(any(n == id(p) for p in params) for n in names)]:
                del self._kept[names]  # all of it has moved
            self._kept[key] = fresh
        return self._kept[key]

    def kept_of_sum(self, bucket, share: int):
        """What was kept back of the sum of this rank's share of the bucket; begins anew when buckets change."""
        key = tuple(map(id, bucket.parameters()))
        if key not in self._kept_of_sums:
            self._kept_of_sums = {k: t for k, t in self._kept_of_sums.items() if not set(k) & set(key)}
            self._kept_of_sums[key] = bucket.buffer().new_zeros(share)
        return self._kept_of_sums[key]


def error_feedback_hook(state: ErrorFeedback, bucket) -> Future:
    """The mean of the gradients, passed on in 16 bits; what rounding loses in one step is added to the next step's gradients.

    Each rank gets its share of all ranks' rounded gradients, adds them in 32 bits, rounds the sum and sends it to all: both roundings are
    made up for, with the traffic of one reduction in 16 bits.
    """
    from ... import all_gather_into_tensor, all_to_all_single

    group, buffer, kept = _group(state.process_group), bucket.buffer(), state.kept(bucket)
    n, numel = group.size(), buffer.numel()
    share = -(-numel // n)
    exact = buffer.div_(n).add_(kept)
    rounded = empty(n * share, dtype=state.dtype, device=buffer.device).zero_()
    rounded[:numel].copy_(exact)
    kept.copy_(exact).sub_(rounded[:numel].to(exact.dtype))
    mine = state.kept_of_sum(bucket, share)
    received = empty(n * share, dtype=state.dtype, device=buffer.device)
    future = all_to_all_single(received, rounded, group=group, async_op=True).get_future()

    def finish(future):
        future.value()
        total = received.view(n, share).to(mine.dtype).sum(0).add_(mine)
        of_share = total.to(state.dtype)
        mine.copy_(total).sub_(of_share.to(total.dtype))
        all_gather_into_tensor(rounded, of_share, group=group)
        return buffer.copy_(rounded[:numel])

    return future.then(finish)
