"""DataLoader: batches of a dataset, in this process.

Samples are keyed: around each call of a dataset that may use random numbers, the generators of tapegrad, NumPy and
Python are seeded from (seed of the pass, index), and put back after the batch. So a sample does not depend on which
samples were made before it, and the loader does not disturb the random numbers of the training loop.
"""

from __future__ import annotations

import random
import warnings
import zlib

import numpy as np

from ... import get_rng_state, manual_seed, set_rng_state
from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "get_worker_info"]


def get_worker_info():
    """None: batches are made in the main process."""
    return None


def _key(seed: int, index) -> int:
    """A seed for one sample: equal for equal (seed, index) whatever the index's type."""
    if not isinstance(index, int):
        index = int(index) if hasattr(index, "__index__") else zlib.crc32(repr(index).encode())
    x = (seed ^ (index * 0x9E3779B97F4A7C15)) & 0xFFFFFFFFFFFFFFFF  # SplitMix64's finaliser
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (x ^ (x >> 31)) >> 1


class _KeyedGenerators:
    """Within the block every `seed(index)` starts all generators anew; afterwards they are as before."""

    def __init__(self, seed: int) -> None:
        self.base = seed

    def __enter__(self):
        self.saved = random.getstate(), np.random.get_state(), get_rng_state()
        return self

    def seed(self, index) -> None:
        key = _key(self.base, index)
        random.seed(key)
        np.random.seed(key & 0xFFFFFFFF)
        manual_seed(key)

    def __exit__(self, *exception) -> None:
        python, numpy, own = self.saved
        random.setstate(python)
        np.random.set_state(numpy)
        set_rng_state(own)


class _Unlimited:
    """The sampler of an iterable dataset: asks for the next sample for ever."""

    def __iter__(self):
        while True:
            yield None


class DataLoader:
    """Goes through a dataset in batches.

    The arguments are PyTorch's. Worker processes are not there: with num_workers > 0 the batches are made in this
    process, and a warning says so once; the batches are the same for any number of workers.
    """

    _warned_of_workers = False

    def __init__(self, dataset, batch_size: int | None = 1, shuffle: bool | None = None, sampler=None, batch_sampler=None,
                 num_workers: int = 0, collate_fn=None, pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn=None, multiprocessing_context=None, generator=None, *, prefetch_factor: int | None = None,
                 persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True) -> None:
        self._check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.generator = generator
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value not in (None, False):
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                                     f"{name}={value}")
        shuffle = bool(shuffle)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
                sampler = _Unlimited()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn

    @classmethod
    def _check_workers(cls, num_workers, timeout, prefetch_factor, persistent_workers) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                             "multiprocessing, otherwise set prefetch_factor to None.")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if num_workers > 0 and not DataLoader._warned_of_workers:
            DataLoader._warned_of_workers = True
            warnings.warn(f"DataLoader: num_workers={num_workers}: worker processes are not there yet, batches are made in this "
                          "process", stacklevel=3)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        if not self._iterable:
            return len(self._index_sampler)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        seed = draw_seed(self.generator)
        return self._stream() if self._iterable else self._batches(seed)

    def _batches(self, seed: int):
        dataset, collate = self.dataset, self.collate_fn
        deterministic = getattr(dataset, "_deterministic", False)
        whole = getattr(dataset, "_collated", None) if collate is default_collate and self._auto_collation else None
        for indices in self._index_sampler:
            if whole is not None and (batch := whole(indices)) is not None:
                yield batch
                continue
            if deterministic:
                data = self._fetch(dataset, indices)
            else:
                data = self._fetch_keyed(dataset, indices, seed)
            yield collate(data)

    def _fetch(self, dataset, indices):
        if not self._auto_collation:
            return dataset[indices]
        several = getattr(dataset, "__getitems__", None)
        return several(indices) if callable(several) else [dataset[i] for i in indices]

    def _fetch_keyed(self, dataset, indices, seed: int):
        with _KeyedGenerators(seed) as generators:
            if not self._auto_collation:
                generators.seed(indices)
                return dataset[indices]
            several = getattr(dataset, "__getitems__", None)
            if callable(several) and not hasattr(dataset, "dataset"):
                generators.seed(tuple(indices))
                return several(indices)
            samples = []
            for i in indices:
                generators.seed(i)
                samples.append(dataset[i])
            return samples

    def _stream(self):
        samples = iter(self.dataset)
        if not self._auto_collation:
            for sample in samples:
                yield self.collate_fn(sample)
            return
        batch = []
        for sample in samples:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.collate_fn(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.collate_fn(batch)
