"""Readers for data that lies in many files: shards, read several at a time by threads, with a buffer that shuffles."""

import queue
import threading

from ... import Generator, randint, randperm
from .dataset import IterableDataset
from .worker import described, get_worker_info

__all__ = ["ShardDataset", "ShuffleBuffer"]


def read_lines(path):
    """The lines of a text file, without their ends."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


class ShuffleBuffer(IterableDataset):
    """The samples of a stream in an order that is random within a window: each one that comes out was drawn from the
    buffer_size that had come in. `seed` and `set_epoch` fix the order."""

    def __init__(self, source, buffer_size: int, seed: int = 0) -> None:
        if buffer_size < 1:
            raise ValueError(f"ShuffleBuffer: expected a buffer of at least one sample: got buffer_size={buffer_size}")
        self.source = source
        self.buffer_size = buffer_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, on which the order depends."""
        self.epoch = epoch
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    def __iter__(self):
        info = get_worker_info()
        generator = Generator()
        generator.manual_seed(hash((self.seed, self.epoch, info.id if info else 0)) & 0x7FFFFFFFFFFFFFFF)
        buffer, places = [], []
        for sample in self.source:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
                continue
            if not places:  # numbers are drawn by the block
                places = randint(0, self.buffer_size, (1024,), generator=generator).tolist()
            i = places.pop()
            buffer[i], sample = sample, buffer[i]
            yield sample
        for i in randperm(len(buffer), generator=generator).tolist():
            yield buffer[i]


class _End:
    """The last item of a shard's queue: how it ended."""

    def __init__(self, error=None) -> None:
        self.error = error


class ShardDataset(IterableDataset):
    """The samples of many shards (files, or whatever `read` takes).

    shards: a list. read: from a shard to an iterable of its samples; default: the lines of a text file.
    parallel: so many shards are open at a time, each read ahead by a thread of its own; their samples come in turns, so the
    order does not depend on which is faster. read_ahead: samples that each may be ahead.
    shuffle: the shards come in another order each epoch (`set_epoch`), and buffer_size samples are shuffled among each other.
    Shards are dealt out to the workers of a DataLoader, and before that to `num_replicas` processes, of which this is `rank`.
    An exception of `read` comes out as a RuntimeError that names the shard.
    """

    def __init__(self, shards, read=read_lines, *, shuffle: bool = False, buffer_size: int = 1024, parallel: int = 4,
                 read_ahead: int = 64, seed: int = 0, num_replicas: int = 1, rank: int = 0) -> None:
        self.shards = list(shards)
        if parallel < 1 or read_ahead < 1:
            raise ValueError(f"ShardDataset: parallel and read_ahead are at least 1: got {parallel} and {read_ahead}")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"ShardDataset: rank must lie in [0, {num_replicas}): got {rank}")
        self.read, self.parallel, self.read_ahead = read, parallel, read_ahead
        self.shuffle, self.buffer_size, self.seed, self.epoch = shuffle, buffer_size, seed, 0
        self.num_replicas, self.rank = num_replicas, rank

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, on which the order depends."""
        self.epoch = epoch

    def _mine(self) -> list:
        order = range(len(self.shards))
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(hash((self.seed, self.epoch)) & 0x7FFFFFFFFFFFFFFF)
            order = randperm(len(self.shards), generator=generator).tolist()
        mine = [self.shards[i] for i in order][self.rank::self.num_replicas]
        info = get_worker_info()
        return mine if info is None else mine[info.id::info.num_workers]

    def __iter__(self):
        if not self.shuffle:
            return self._stream()
        buffer = ShuffleBuffer(_Iterable(self._stream), self.buffer_size, self.seed)
        buffer.set_epoch(self.epoch)
        return iter(buffer)

    def _stream(self):
        waiting = iter(self._mine())
        stop = threading.Event()
        open_shards: list[tuple[object, queue.Queue]] = []

        def open_next() -> None:
            shard = next(waiting, stop)
            if shard is not stop:
                items: queue.Queue = queue.Queue(self.read_ahead)
                threading.Thread(target=_read_ahead, args=(self.read, shard, items, stop), daemon=True).start()
                open_shards.append((shard, items))

        try:
            for _ in range(self.parallel):
                open_next()
            turn = 0
            while open_shards:
                turn %= len(open_shards)
                shard, items = open_shards[turn]
                item = items.get()
                if not isinstance(item, _End):
                    yield item
                    turn += 1
                    continue
                if item.error is not None:
                    raise RuntimeError(f"ShardDataset: reading {shard!r} failed: {described(item.error)}") from item.error
                del open_shards[turn]
                open_next()
        finally:
            stop.set()


class _Iterable:
    """Something to iterate over, made by a function each time."""

    def __init__(self, make) -> None:
        self.make = make

    def __iter__(self):
        return self.make()


def _put(items: queue.Queue, item, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            items.put(item, timeout=0.1)
            return True
        except queue.Full:
            pass
    return False


def _read_ahead(read, shard, items: queue.Queue, stop: threading.Event) -> None:
    try:
        for sample in read(shard):
            if not _put(items, sample, stop):
                return
        _put(items, _End(), stop)
    except BaseException as error:  # of any kind: a consumer is waiting
        _put(items, _End(error), stop)
