"""Datasets of the tests of workers; imported by spawned workers, too."""

import os
import random
import signal
import time

import numpy as np
import tapegrad as tg
from tapegrad.utils import data


class Sized(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


class Noisy(Sized):
    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i, random.random(), random.gauss(0, 1), float(np.random.randn()), float(np.random.rand()), tg.rand(2)


def noisy_collate(samples):
    return [samples[0][0], random.random(), tg.rand(()).item()]


class Stream(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(self.n)) if info is None else iter(range(info.id, self.n, info.num_workers))


class Counting(Sized):
    def __init__(self, n):
        super().__init__(n)
        self.marks = {}

    def __getitem__(self, i):
        info = data.get_worker_info()
        return i, info.id, info.num_workers, info.dataset.marks[info.id], tg.get_num_threads(), os.getpid()


def init_worker(i):
    data.get_worker_info().dataset.marks[i] = 100 + i


class Listed(data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)


class Slow(Listed):
    def __getitem__(self, i):
        time.sleep(self.items[i])
        return i


class Faulty(Sized):
    def __init__(self, n, error):
        super().__init__(n)
        self.error = error

    def __getitem__(self, i):
        if i == 7:
            raise self.error
        return i


class Deadly(Sized):
    def __getitem__(self, i):
        if i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


def private_kib():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))


class Names(Listed):
    def __getitem__(self, i):
        return len(self.items[i]), private_kib() if i % 10_000 == 0 else 0


def where_it_is(samples):
    """What the default collate function makes, and whether it lies in shared memory already."""
    batch = data.default_collate(samples)
    return [batch, batch.is_shared()]


class Unlucky(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


class Speechless(Exception):
    def __str__(self):
        raise SystemExit("no text")


class Unclear(Exception):
    """Neither it nor its class can be sent to another process."""

    def __reduce__(self):
        raise GeneratorExit


class Exploding:
    """Can be sent, but not be made again."""

    def __reduce__(self):
        return _explode, ()


def _explode():
    raise ValueError("not made again")


def local_error():
    class Local(Exception):
        pass

    return Local("of a function")


ERRORS = {"SystemExit": SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt(), "GeneratorExit": GeneratorExit(), "BaseException": BaseException("x"),
          "arguments": Unlucky(1, 2), "no text": Speechless(), "not sent": Unclear(), "local": local_error(), "MemoryError": MemoryError()}


class Raising(data.Dataset):
    """Raises at one sample, or where else it is told to."""

    def __init__(self, error, where="sample"):
        self.error, self.where = error, where

    def fail(self, where):
        if where == self.where:
            raise ERRORS[self.error]

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            self.fail("sample")
        return i

    def collate(self, samples):
        if 5 in samples:
            self.fail("collate")
        return samples

    def init(self, i):
        self.fail("init")


class RaisingStream(Raising, data.IterableDataset):
    def __iter__(self):
        self.fail("stream")
        for i in range(8):
            yield self[i]
