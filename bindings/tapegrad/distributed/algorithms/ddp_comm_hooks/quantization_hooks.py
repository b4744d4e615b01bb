"""Hooks that pass gradients on as bytes, each rank's with a scale and a zero point of its own. Worth it where bandwidth is scarce and ranks are
few: every rank receives every rank's bytes."""

from .... import empty, stack, uint8, zeros
from ....futures import Future
from .default_hooks import _group

__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]


def _exchange(process_group, rows, n: int) -> Future:
    """rows: one scale per row. A future of the mean of all ranks' rows, as a vector of n."""
    from ... import all_gather

    group = _group(process_group)
    low, high = rows.amin(1).clamp(max=0), rows.amax(1).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-38)
    zero = (-low / scale).round().clamp(0, 255)
    mine = stack((scale, zero))
    numbers = ((rows / scale[:, None]).round() + zero[:, None]).clamp(0, 255).to(uint8)
    all_scales = [zeros(mine.shape) for _ in range(group.size())]
    all_numbers = [empty(numbers.shape, dtype=uint8) for _ in range(group.size())]
    all_gather(all_scales, mine, group=group, async_op=True)
    future = all_gather(all_numbers, numbers, group=group, async_op=True).get_future()  # behind the first one

    def mean(future):
        future.value()
        total = zeros(rows.shape)
        for (its_scale, its_zero), its_numbers in zip(all_scales, all_numbers, strict=True):
            total += its_scale[:, None] * (its_numbers.float() - its_zero[:, None])
        return total.div_(group.size()).reshape(-1)[:n]

    return future.then(mean)


def quantization_pertensor_hook(process_group, bucket) -> Future:
    """The mean of gradients passed on as bytes, with one scale for a bucket."""
    buffer = bucket.buffer()
    return _exchange(process_group, buffer.float().view(1, -1), buffer.numel())


def quantization_perchannel_hook(process_group, bucket, bucket_size: int = 512) -> Future:
    """The mean of gradients passed on as bytes, with a scale for every bucket_size of them."""
    buffer = bucket.buffer()
    n = buffer.numel()
    rows = zeros(-(-n // bucket_size) * bucket_size)
    rows[:n].copy_(buffer)
    return _exchange(process_group, rows.view(-1, bucket_size), n)
