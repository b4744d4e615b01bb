"""Chains over data sets, by PyTorch's names (`utils.data.datapipes`): `IterableWrapper(x).map(f).shuffle().batch(8)`.

A chain is a data set like any other and is given to the DataLoader, whose workers share it out where it has a `sharding_filter()`. Steps
are methods: `functional_datapipe(name)` makes one of a class. Those that read files are not there.
"""

import contextlib
import random
from collections import deque
from copy import copy as _shallow
from copy import deepcopy as _deep
from functools import partial
from typing import TypeVar

from .collate import default_collate
from .dataset import Dataset, IterableDataset
from .sampler import SequentialSampler, batches_of
from .worker import get_worker_info

_T = TypeVar("_T")


class _WithSteps:
    """What has the steps as methods."""

    functions: dict = {}

    def __getattr__(self, name: str):
        if name in type(self).functions:
            return partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_function(cls, name: str, function) -> None:
        """Makes `pipe.name(...)` be function(pipe, ...)."""
        cls.functions[name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register, enable_df_api_tracing: bool = False) -> None:
        """Makes `pipe.function_name(...)` be cls_to_register(pipe, ...). Raises ValueError for a name that is taken."""
        if function_name in cls.functions:
            raise ValueError(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__


class IterDataPipe(_WithSteps, IterableDataset[_T]):
    """A data set that is gone through, with the steps of a chain as methods."""

    functions: dict = {}

    def reset(self) -> None:
        """Called before each pass by programs that have written it."""


class MapDataPipe(_WithSteps, Dataset[_T]):
    """A data set with places, with the steps of a chain as methods."""

    functions: dict = {}


class DataChunk(list):
    """A batch of a chain."""

    def __init__(self, items) -> None:
        super().__init__(items)
        self.items = items

    def raw_iterator(self):
        """The items."""
        yield from self.items


class functional_datapipe:  # noqa: N801
    """Makes a class of steps a method of all chains of its kind: `@functional_datapipe("name")`."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls):
        if not (isinstance(cls, type) and issubclass(cls, (IterDataPipe, MapDataPipe))):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        (IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe).register_datapipe_as_function(self.name, cls)
        return cls


def _length(pipes, of=sum) -> int:
    return of(len(pipe) for pipe in pipes)


def _copied(source, wanted: bool):
    if wanted:
        with contextlib.suppress(TypeError):  # a generator cannot be copied
            return _deep(source)
    return source


class IterableWrapperIterDataPipe(IterDataPipe):
    """An iterable as a chain; each pass goes over a copy of it, where it can be copied."""

    def __init__(self, iterable, deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self):
        yield from _copied(self.iterable, self.deepcopy)

    def __len__(self) -> int:
        return len(self.iterable)


class _Behind:
    """A step behind another."""

    def __init__(self, datapipe) -> None:
        self.datapipe = datapipe

    def __len__(self) -> int:
        return len(self.datapipe)


class _Of(_Behind, IterDataPipe):
    pass


def _applied(fn, item, input_col, output_col=None, keep: bool = False):
    """fn of the columns of an item; without `keep` in the item's place of output_col."""
    value = fn(item) if input_col is None else fn(*(item[c] for c in input_col)) if isinstance(input_col, (list, tuple)) else fn(item[input_col])
    if keep or input_col is None:
        return value
    changed = list(item) if isinstance(item, tuple) else _shallow(item)
    if output_col == -1:
        changed.append(value)
    else:
        place = output_col if output_col is not None else input_col[0] if isinstance(input_col, (list, tuple)) else input_col
        changed[place] = value
        for c in sorted(input_col[1:], reverse=True) if output_col is None and isinstance(input_col, (list, tuple)) else ():
            del changed[c]
    return tuple(changed) if isinstance(item, tuple) else changed


@functional_datapipe("map")
class MapperIterDataPipe(_Of):
    """fn of each item, or of its columns `input_col`, whose place it then takes (or that of output_col; -1: behind them)."""

    def __init__(self, datapipe, fn, input_col=None, output_col=None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        super().__init__(datapipe)
        self.fn, self.input_col, self.output_col = fn, input_col, output_col

    def __iter__(self):
        for item in self.datapipe:
            yield _applied(self.fn, item, self.input_col, self.output_col)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Each item, a batch, as tensors."""

    def __init__(self, datapipe, conversion=default_collate, collate_fn=None) -> None:
        super().__init__(datapipe, collate_fn or conversion)


class _Unsized(_Of):
    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


@functional_datapipe("filter")
class FilterIterDataPipe(_Unsized):
    """The items for which filter_fn, of the item or its columns, is true."""

    def __init__(self, datapipe, filter_fn, input_col=None) -> None:
        super().__init__(datapipe)
        self.filter_fn, self.input_col = filter_fn, input_col

    def __iter__(self):
        for item in self.datapipe:
            wanted = _applied(self.filter_fn, item, self.input_col, keep=True)
            if not isinstance(wanted, bool):
                raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(wanted)}")
            if wanted:
                yield item


class _InBatches:
    """What the two batchers share."""

    def __init__(self, datapipe, batch_size: int, drop_last: bool = False, wrapper_class=DataChunk) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        super().__init__(datapipe)
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("batch")
class BatcherIterDataPipe(_InBatches, _Of):
    """Lists of batch_size items, the last of which may be shorter."""

    def __iter__(self):
        return map(self.wrapper_class, batches_of(self.datapipe, self.batch_size, self.drop_last))


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(_Unsized):
    """The items of batches, of `unbatch_level` levels (-1: all)."""

    def __init__(self, datapipe, unbatch_level: int = 1) -> None:
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        super().__init__(datapipe)
        self.unbatch_level = unbatch_level

    def __iter__(self):
        for item in self.datapipe:
            yield from self._items(item, self.unbatch_level)

    def _items(self, item, level: int):
        if level == 0 or level == -1 and not isinstance(item, (list, DataChunk)):
            yield item
        elif not isinstance(item, (list, DataChunk)):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        else:
            for inner in item:
                yield from self._items(inner, level if level == -1 else level - 1)


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(_Of):
    """The items in a random order, as far as a buffer of buffer_size goes; set_seed makes the next pass repeatable."""

    def __init__(self, datapipe, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        super().__init__(datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level))
        self.buffer_size, self._enabled, self._seed = buffer_size, True, None

    def set_shuffle(self, shuffle: bool = True):
        """Turns it on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int):
        """The seed of the next pass; without one it comes of tapegrad's generator."""
        self._seed = seed
        return self

    def __iter__(self):
        if not self._enabled:
            yield from self.datapipe
            return
        from ... import int64, randint

        seed, self._seed = self._seed, None
        draw = random.Random(int(randint(0, 2**62, (), dtype=int64)) if seed is None else seed)
        buffer: list = []
        for item in self.datapipe:
            if len(buffer) == self.buffer_size:
                place = draw.randrange(len(buffer))
                item, buffer[place] = buffer[place], item
                yield item
            else:
                buffer.append(item)
        draw.shuffle(buffer)
        yield from buffer


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(_Of):
    """Every n-th item where there are n workers, each worker others."""

    def __init__(self, source_datapipe, sharding_group_filter=None) -> None:
        super().__init__(source_datapipe)
        self._share = None

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group=None) -> None:
        """The share that a program gives it, in place of the worker's."""
        self._share = num_of_instances, instance_id

    def _number(self) -> tuple[int, int]:
        worker = get_worker_info()
        return self._share or ((worker.num_workers, worker.id) if worker is not None else (1, 0))

    def __iter__(self):
        count, mine = self._number()
        for i, item in enumerate(self.datapipe):
            if i % count == mine:
                yield item

    def __len__(self) -> int:
        count, mine = self._number()
        return len(self.datapipe) // count + (mine < len(self.datapipe) % count)


class SamplerIterDataPipe(_Of):
    """The places of a data set in a sampler's order."""

    def __init__(self, datapipe, sampler=SequentialSampler, sampler_args=None, sampler_kwargs=None) -> None:
        super().__init__(datapipe)
        self.sampler = sampler(*(sampler_args or ()), **{"data_source": datapipe, **(sampler_kwargs or {})})

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("groupby")
class GrouperIterDataPipe(_Unsized):
    """Lists of items of one key, of group_size of them but for the last; where buffer_size items wait, the largest group goes first, which must then
    have that many, or guaranteed_group_size."""

    def __init__(self, datapipe, group_key_fn, *, keep_key: bool = False, buffer_size: int = 10000, group_size=None, guaranteed_group_size=None,
                 drop_remaining: bool = False) -> None:
        super().__init__(datapipe)
        self.group_key_fn, self.keep_key, self.buffer_size, self.group_size = group_key_fn, keep_key, buffer_size, group_size
        self.least = guaranteed_group_size if guaranteed_group_size is not None else group_size or 0
        self.drop_remaining = drop_remaining

    def __iter__(self):
        groups: dict = {}
        for item in self.datapipe:
            key = self.group_key_fn(item)
            groups.setdefault(key, []).append(item)
            if len(groups[key]) == self.group_size:
                yield self._named(key, groups.pop(key))
            elif sum(map(len, groups.values())) == self.buffer_size:
                key = max(groups, key=lambda k: len(groups[k]))
                group = groups.pop(key)
                if len(group) >= self.least:
                    yield self._named(key, group)
                elif not self.drop_remaining:
                    raise RuntimeError(f"Failed to group items: {group}: the buffer is full, and no group has {self.least} of them")
        for key, group in groups.items():
            yield self._named(key, group)

    def _named(self, key, group):
        return (key, group) if self.keep_key else group


class _Several(IterDataPipe):
    def __init__(self, *datapipes) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError(f"Expected all inputs to be `IterDataPipe`: got {', '.join(type(pipe).__name__ for pipe in datapipes)}")
        self.datapipes = datapipes


@functional_datapipe("concat")
class ConcaterIterDataPipe(_Several):
    """One chain after another."""

    def __iter__(self):
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return _length(self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(_Several):
    """Tuples of an item of each, until one ends."""

    def __iter__(self):
        yield from zip(*self.datapipes)

    def __len__(self) -> int:
        return _length(self.datapipes, min)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(_Several):
    """An item of each in turn, until one ends."""

    def __iter__(self):
        for items in zip(*self.datapipes):
            yield from items

    def __len__(self) -> int:
        return _length(self.datapipes, min) * len(self.datapipes)


class _Source:
    """What the children of a fork share: one pass over the source, and what each child has still to take."""

    def __init__(self, datapipe, count: int, buffer_size: int, places, sized: bool) -> None:
        self.datapipe, self.buffer_size, self.places, self.sized = datapipe, buffer_size, places, sized
        self.queues: list = [deque() for _ in range(count)]
        self.begin()

    def begin(self) -> None:
        self.iterator, self.begun = None, set()
        for queue in self.queues:
            queue.clear()

    def items(self, child: int):
        if child in self.begun:
            self.begin()
        self.begun.add(child)
        begun, queue = self.begun, self.queues[child]
        if self.iterator is None:
            self.iterator = iter(self.datapipe)
        while True:
            if begun is not self.begun:
                raise RuntimeError("This iterator has been invalidated, because another child of the chain began a new pass over it")
            if queue:
                yield queue.popleft()
                continue
            try:
                item = next(self.iterator)
            except StopIteration:
                return
            for place in self.places(item):
                self.queues[place].append(item)
                if place != child and 0 <= self.buffer_size < len(self.queues[place]):
                    raise BufferError(f"the buffer of {self.buffer_size} items of a chain's other children is full: set buffer_size=-1, or take from them, too")


class _Child(IterDataPipe):
    def __init__(self, source: _Source, number: int, copied) -> None:
        self.main_datapipe, self.instance_id, self.copied = source, number, copied

    def __iter__(self):
        for item in self.main_datapipe.items(self.instance_id):
            yield item if self.copied is None else self.copied(item)

    def __len__(self) -> int:
        if not self.main_datapipe.sized:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return len(self.main_datapipe.datapipe)


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe):
    """num_instances chains that each have all items; `copy`: "shallow" or "deep" copies of them."""

    def __new__(cls, datapipe, num_instances: int, buffer_size: int = 1000, copy=None):
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
        copiers = {None: None, "shallow": _shallow, "deep": _deep}
        if copy not in copiers:
            raise ValueError(f"Unknown copy method `{copy}` given as argument, choose one of None, shallow or deep.")
        source = _Source(datapipe, num_instances, buffer_size, lambda item: range(num_instances), True)
        return [_Child(source, i, copiers[copy]) for i in range(num_instances)]


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe):
    """num_instances chains, to one of which classifier_fn gives each item."""

    def __new__(cls, datapipe, num_instances: int, classifier_fn, drop_none: bool = False, buffer_size: int = 1000):
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")

        def places(item):
            place = classifier_fn(item)
            if place is None and drop_none:
                return ()
            if place is None or not 0 <= place < num_instances:
                raise ValueError(f"Output of the classification fn should be between 0 and {num_instances - 1}. {place} is returned.")
            return (place,)

        source = _Source(datapipe, num_instances, buffer_size, places, False)
        return [_Child(source, i, None) for i in range(num_instances)]


# Chains over data sets with places.


class SequenceWrapperMapDataPipe(MapDataPipe):
    """A sequence or a dictionary as a chain."""

    def __init__(self, sequence, deepcopy: bool = True) -> None:
        self.sequence = _copied(sequence, deepcopy)

    def __getitem__(self, index):
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


class _OfMap(_Behind, MapDataPipe):
    pass


@functional_datapipe("map")
class MapperMapDataPipe(_OfMap):
    """fn of each item."""

    def __init__(self, datapipe, fn=lambda item: item) -> None:
        super().__init__(datapipe)
        self.fn = fn

    def __getitem__(self, index):
        return self.fn(self.datapipe[index])


@functional_datapipe("batch")
class BatcherMapDataPipe(_InBatches, _OfMap):
    """Lists of batch_size items, the last of which may be shorter."""

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        first = index * self.batch_size
        return self.wrapper_class([self.datapipe[i] for i in range(first, min(first + self.batch_size, len(self.datapipe)))])


class ShufflerMapDataPipe(IterDataPipe):
    """The items of a chain with places in a random order: a chain that is gone through."""

    def __init__(self, datapipe, *, indices=None) -> None:
        self.datapipe, self.indices = datapipe, list(range(len(datapipe))) if indices is None else indices

    def __iter__(self):
        order = ShufflerIterDataPipe(IterableWrapperIterDataPipe(self.indices), buffer_size=max(len(self.indices), 1))
        yield from (self.datapipe[i] for i in order)

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerMapDataPipe)


@functional_datapipe("concat")
class ConcaterMapDataPipe(MapDataPipe):
    """One chain behind another."""

    def __init__(self, *datapipes) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __getitem__(self, index):
        for pipe in self.datapipes:
            if index < len(pipe):
                return pipe[index]
            index -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return _length(self.datapipes)


@functional_datapipe("zip")
class ZipperMapDataPipe(ConcaterMapDataPipe):
    """Tuples of an item of each."""

    def __getitem__(self, index):
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self) -> int:
        return _length(self.datapipes, min)
