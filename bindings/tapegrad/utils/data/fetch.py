"""Fetching the samples of one batch, in any process or thread.

Samples are keyed: before each call of a dataset that may use random numbers, the generators of tapegrad, NumPy and Python
start anew from (seed of the pass, index). So a sample depends neither on which samples were made before it nor on who
makes it. A user's collate function is keyed by the number of its batch.
"""

import contextlib
import random
import threading
import zlib

import numpy as np

from ... import _C, Tensor
from .collate import default_collate, default_convert

__all__ = ["Fetcher", "SampleError", "start_stream"]

_BATCHES = 1 << 62  # keys of batches lie apart from those of samples
_PLAIN = {list, tuple, range, dict, str, np.ndarray, Tensor}  # what draws no random numbers
_one_at_a_time = threading.Lock()
_numpy_state = np.random.mtrand._rand


def number_of(index) -> int:
    """One number for an index of any type, equal for equal indices."""
    if isinstance(index, int):
        return index & 0x7FFFFFFFFFFFFFFF
    return int(index) if hasattr(index, "__index__") else zlib.crc32(repr(index).encode())


class _Keyed:
    """Within the block `seed(number)` starts all generators anew; afterwards they are as before."""

    def __init__(self, base: int) -> None:
        self.base = base

    def __enter__(self):
        self._token = _C._keyed_begin(random._inst, _numpy_state)
        return self

    def seed(self, number: int) -> None:
        _C._keyed_seed(self._token, self.base, number)

    def __exit__(self, *exception) -> None:
        _C._keyed_end(self._token)


class SampleError(Exception):
    """Wraps what a dataset raised, with the index of the sample. Never leaves the loader."""

    def __init__(self, index) -> None:
        self.index = index


class Fetcher:
    """Makes batch number `task` from what the sampler gave for it."""

    def __init__(self, dataset, collate, batched: bool, in_thread: bool = False) -> None:
        self.dataset = dataset
        self.collate = collate
        self.batched = batched
        self.plain = collate is default_collate or collate is default_convert
        self.deterministic = self.plain and (type(dataset) in _PLAIN or bool(getattr(dataset, "_deterministic", False)))
        self.whole = getattr(dataset, "_collated", None) if collate is default_collate and batched else None
        several = getattr(dataset, "__getitems__", None)
        self.several = several if callable(several) else None
        # Of a dataset that passes on to another one, samples are asked one by one, so that each has a key of its own.
        self.by_one = self.several is None or (hasattr(dataset, "dataset") and not self.deterministic)
        # The generators of Python and NumPy belong to the process.
        self.lock = _one_at_a_time if in_thread and not self.deterministic else contextlib.nullcontext()

    def __call__(self, task: int, indices, seed: int):
        if self.whole is not None and (batch := self.whole(indices)) is not None:
            return batch
        if self.deterministic:
            return self.collate(self._get(indices))
        with self.lock, _Keyed(seed) as keyed:
            data = self._get_keyed(indices, keyed)
            if not self.plain:
                keyed.seed(_BATCHES + task)
                return self.collate(data)
        return self.collate(data)

    def _get(self, indices):
        if not self.batched:
            return self._one(indices)
        if self.several is not None:
            return self.several(indices)
        dataset, samples, i = self.dataset, [], None
        try:
            for i in indices:
                samples.append(dataset[i])
        except Exception as error:
            raise SampleError(i) from error
        return samples

    def _get_keyed(self, indices, keyed: _Keyed):
        dataset = self.dataset
        if not self.batched:
            keyed.seed(number_of(indices))
            return self._one(indices)
        if not self.by_one:
            keyed.seed(number_of(tuple(indices)))
            return self.several(indices)
        samples = []
        seed, base, token = _C._keyed_seed, keyed.base, keyed._token
        i = None
        try:
            for i in indices:
                seed(token, base, i if type(i) is int else number_of(i))
                samples.append(dataset[i])
        except Exception as error:
            raise SampleError(i) from error
        return samples

    def _one(self, index):
        try:
            return self.dataset[index]
        except Exception as error:
            raise SampleError(index) from error


def start_stream(dataset, collate, batch_size: int | None, drop_last: bool):
    """The batches of an iterable dataset."""
    samples = iter(dataset)
    if batch_size is None:
        for sample in samples:
            yield collate(sample)
        return
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == batch_size:
            yield collate(batch)
            batch = []
    if batch and not drop_last:
        yield collate(batch)
