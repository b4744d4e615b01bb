"""Datasets. A map-style dataset has `__getitem__` (and `__len__`), an iterable one `__iter__`.

Two optional extras speed a dataset up in a DataLoader: `__getitems__(indices)` gives a list of samples at once, and
`_collated(indices)` gives the collated batch itself, for data that lies in tensors. `_deterministic = True` says that
samples do not depend on random generators, so that the loader need not key these for each sample.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

from ... import Tensor, as_tensor, default_generator, index_select, randperm
from ..._warn import warn
from .collate import result_like

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
           "random_split"]


_T = TypeVar("_T", covariant=True)


class Dataset(Generic[_T]):
    """Base of map-style datasets."""

    _deterministic = False

    def __getitem__(self, index) -> _T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T]):
    """Base of datasets that are a stream of samples."""

    def __iter__(self) -> Iterator[_T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset) -> ChainDataset:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Samples are the rows of tensors of the same length."""

    _deterministic = True

    def __init__(self, *tensors) -> None:
        if any(tensors[0].size(0) != t.size(0) for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].size(0)

    def _collated(self, indices):
        if type(self).__getitem__ is not TensorDataset.__getitem__:
            return None
        return rows_of(self.tensors, indices)


def rows_of(tensors, indices) -> list:
    """The rows of each tensor, copied out at once."""
    indices = as_tensor(indices)
    rows = []
    for t in tensors:
        out = result_like(t[0], len(indices)) if len(t) else None
        rows.append(t.index_select(0, indices) if out is None else index_select(t, 0, indices, out=out))
    return rows


class StackDataset(Dataset):
    """Samples are tuples (or dictionaries) of the samples of several datasets."""

    def __init__(self, *args, **kwargs) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output, but "
                             "both types are given." if args else "At least one dataset should be passed")
        self.datasets = args or kwargs
        parts = self._parts()
        self._length = len(parts[0])
        if any(len(d) != self._length for d in parts):
            raise ValueError("Size mismatch between datasets")

    def _parts(self) -> list:
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else list(self.datasets)

    @property
    def _deterministic(self) -> bool:
        return all(getattr(d, "_deterministic", False) for d in self._parts())

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: list) -> list:
        columns = []
        for d in self._parts():
            fetch = getattr(d, "__getitems__", None)
            column = fetch(indices) if callable(fetch) else [d[i] for i in indices]
            if len(column) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}")
            columns.append(column)
        rows = zip(*columns, strict=True)
        return [dict(zip(self.datasets, row, strict=True)) for row in rows] if isinstance(self.datasets, dict) else list(rows)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[_T]):
    """Several datasets one after the other."""

    def __init__(self, datasets) -> None:
        self.datasets = list(datasets)
        if len(self.datasets) == 0:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence) -> list[int]:
        """Where each of the datasets ends."""
        return list(itertools.accumulate(len(d) for d in sequence))

    @property
    def _deterministic(self) -> bool:
        return all(getattr(d, "_deterministic", False) for d in self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx):
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        before = self.cumulative_sizes[which - 1] if which > 0 else 0
        return self.datasets[which][idx - before]


class ChainDataset(IterableDataset):
    """Several iterable datasets one after the other."""

    def __init__(self, datasets) -> None:
        self.datasets = datasets

    def __iter__(self):
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class Subset(Dataset[_T]):
    """The samples of a dataset at the given indices."""

    def __init__(self, dataset, indices) -> None:
        self.dataset = dataset
        self.indices = indices

    @property
    def _deterministic(self) -> bool:
        return getattr(self.dataset, "_deterministic", False)

    def __getitem__(self, idx):
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices):
        chosen = [self.indices[i] for i in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        return fetch(chosen) if callable(fetch) else [self.dataset[i] for i in chosen]

    def _collated(self, indices):
        collated = getattr(self.dataset, "_collated", None)
        if collated is None or type(self).__getitem__ is not Subset.__getitem__:
            return None
        return collated([self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def _lengths(total: int, lengths) -> list[int]:
    """Numbers of samples; fractions that sum to 1 are turned into numbers, the rest dealt out from the front."""
    if not (math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9):
        return [int(n) for n in lengths]
    for i, fraction in enumerate(lengths):
        if fraction < 0 or fraction > 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    counts = [math.floor(total * fraction) for fraction in lengths]
    for i in range(total - sum(counts)):
        counts[i % len(counts)] += 1
    for i, n in enumerate(counts):
        if n == 0:
            warn(f"Length of split at index {i} is 0. This might result in an empty dataset.")
    return counts


def random_split(dataset, lengths, generator=default_generator) -> list[Subset]:
    """Deals the samples out at random into subsets of the given lengths (or fractions)."""
    counts = _lengths(len(dataset), lengths)
    if sum(counts) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(len(dataset), generator=generator).tolist()
    ends = itertools.accumulate(counts)
    return [Subset(dataset, order[end - n:end]) for end, n in zip(ends, counts, strict=True)]
