"""Hooks that pass gradients on in a shorter form. Among one process a gradient goes to that form and back."""

from __future__ import annotations

from .... import bfloat16, float16
from ....futures import Future

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


def _future(value) -> Future:
    future = Future()
    future.set_result(value)
    return future


def allreduce_hook(process_group, bucket) -> Future:
    """The mean of the gradients: those of this process."""
    return _future(bucket.buffer())


def fp16_compress_hook(process_group, bucket) -> Future:
    """The mean, passed on as float16."""
    return _future(bucket.buffer().to(float16).to(bucket.buffer().dtype))


def bf16_compress_hook(process_group, bucket) -> Future:
    """The mean, passed on as bfloat16."""
    return _future(bucket.buffer().to(bfloat16).to(bucket.buffer().dtype))


def _wrapper(hook, dtype):
    def wrapped(state, bucket) -> Future:
        given = bucket.buffer()
        bucket.set_buffer(given.to(dtype))
        return hook(state, bucket).then(lambda future: future.value().to(given.dtype))

    return wrapped


def fp16_compress_wrapper(hook):
    """The hook on gradients in float16."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook):
    """The hook on gradients in bfloat16."""
    return _wrapper(hook, bfloat16)
