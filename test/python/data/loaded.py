"""Datasets of the tests of workers; imported by spawned workers, too."""

import os
import random
import signal
import time

import numpy as np
import tapegrad as tg
from tapegrad.utils import data


class Noisy(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

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


class Counting(data.Dataset):
    def __init__(self, n):
        self.n = n
        self.marks = {}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        info = data.get_worker_info()
        return i, info.id, info.num_workers, info.dataset.marks[info.id], tg.get_num_threads(), os.getpid()


def init_worker(i):
    data.get_worker_info().dataset.marks[i] = 100 + i


class Slow(data.Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return len(self.seconds)

    def __getitem__(self, i):
        time.sleep(self.seconds[i])
        return i


class Faulty(data.Dataset):
    def __init__(self, n, error):
        self.n, self.error = n, error

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == 7:
            raise self.error
        return i


class Deadly(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


def private_kib():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))


class Names(data.Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        return len(self.names[i]), private_kib() if i % 10_000 == 0 else 0


def where_it_is(samples):
    """What the default collate function makes, and whether it lies in shared memory already."""
    batch = data.default_collate(samples)
    return [batch, batch.is_shared()]
