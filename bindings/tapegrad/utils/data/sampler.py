"""Samplers: in which order a DataLoader goes through a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

from ... import Generator, as_tensor, default_generator, float64, int64, multinomial, randint, randperm

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"]


def draw_seed(generator=None) -> int:
    """A seed of 62 bits from the given generator, or from the default one."""
    source = default_generator if generator is None else generator
    return int(randint(0, 1 << 62, (), dtype=int64, generator=source).item())


_T = TypeVar("_T", covariant=True)


class Sampler(Generic[_T]):
    """Base of samplers: iterating one gives indices, or lists of indices."""

    def __init__(self, data_source=None) -> None:
        pass

    def __iter__(self) -> Iterator[_T]:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """From the first to the last."""

    def __init__(self, data_source) -> None:
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """In random order; with replacement, or a given number of samples, when asked."""

    def __init__(self, data_source, replacement: bool = False, num_samples: int | None = None, generator=None) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(self.num_samples, int) or self.num_samples < 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many samples one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n = len(self.data_source)
        if self.generator is None:
            generator = Generator()
            generator.manual_seed(draw_seed())
        else:
            generator = self.generator
        if self.replacement:
            left = self.num_samples
            while left > 0:
                yield from randint(0, n, (min(left, 4096),), dtype=int64, generator=generator).tolist()
                left -= 4096
            return
        for _ in range(self.num_samples // n if n else 0):
            yield from randperm(n, generator=generator).tolist()
        rest = self.num_samples % n if n else 0
        yield from randperm(n, generator=generator).tolist()[:rest]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given indices in random order."""

    def __init__(self, indices, generator=None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self):
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn with probabilities in proportion to weights."""

    def __init__(self, weights, num_samples: int, replacement: bool = True, generator=None) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        weights = as_tensor(weights, dtype=float64)
        if weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(weights.shape)}")
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self):
        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


def batches_of(items, batch_size: int, drop_last: bool):
    """Lists of batch_size items, the last of which may be shorter, or is left out."""
    items = iter(items)
    while batch := list(itertools.islice(items, batch_size)):
        if len(batch) < batch_size and drop_last:
            return
        yield batch


class BatchSampler(Sampler):
    """Lists of batch_size indices from another sampler."""

    def __init__(self, sampler, batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        return batches_of(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
