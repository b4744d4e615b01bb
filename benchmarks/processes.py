"""Tensors between processes, and the loaders of data. Children are made by fork and end with this program."""

import importlib
import random

import numpy as np

from .harness import Case


def _answer(inbox, outbox, action):
    while (item := inbox.get()) is not None:
        outbox.put(action(item))
        del item


class _Child:
    """A process of one library that answers what it is sent."""

    def __init__(self, lib, action):
        context = importlib.import_module(f"{lib.__name__}.multiprocessing").get_context("fork")
        self.inbox, self.outbox = context.SimpleQueue(), context.SimpleQueue()
        context.Process(target=self._run, args=(lib, action), daemon=True).start()

    def _run(self, lib, action):
        lib.set_num_threads(1)
        _answer(self.inbox, self.outbox, action)

    def ask(self, item):
        self.inbox.put(item)
        return self.outbox.get()


def _first(t):
    return t.reshape(-1)[0].item()


def _whole(t):
    return t.sum().item()


def _firsts(tensors):
    return sum(t[0].item() for t in tensors)


def _passing(libs):
    for name, n in (("4 bytes", 1), ("1 KB", 256), ("1 MB", 1 << 18), ("64 MB", 1 << 24)):
        def run(lib, action, n=n):
            child = _Child(lib, action)
            return lambda: child.ask(lib.ones(n))

        yield Case("between processes", f"fill, pass and acknowledge {name}", {k: run(v, _first) for k, v in libs.items()}, inner=3 if n > 1 << 20 else 0)
        if n > 256:
            yield Case("between processes", f"fill, pass, sum and acknowledge {name}", {k: run(v, _whole) for k, v in libs.items()},
                       inner=3 if n > 1 << 20 else 0)

    def shared(lib):
        child, t = _Child(lib, _first), lib.ones(1 << 24).share_memory_()
        return lambda: child.ask(t)

    yield Case("between processes", "pass 64 MB that are shared already", {k: shared(v) for k, v in libs.items()})

    def many(lib):
        child = _Child(lib, _firsts)
        return lambda: child.ask([lib.ones(16) for _ in range(100)])

    yield Case("between processes", "fill and pass 100 tensors of 64 bytes", {k: many(v) for k, v in libs.items()})


class _Rows:
    """A dataset written by hand: one row and its label at a time."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class _Pictures:
    """Arrays with a random flip and shift, as vision scripts have them."""

    def __init__(self, n):
        self.data = np.random.default_rng(0).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        picture = self.data[i]
        if random.random() < 0.5:
            picture = picture[:, :, ::-1]
        shift = np.random.randint(0, 4)
        return np.roll(picture, shift, axis=2).astype(np.float32) / 255, i % 10


def _drain(loader):
    def run():
        return sum(1 for _ in loader)

    return run


def _loaders(libs):
    def tensors(lib):
        return lib.utils.data.TensorDataset(lib.arange(20_000 * 784, dtype=lib.float32).reshape(20_000, 784), lib.arange(20_000))

    def rows(lib):
        return _Rows(lib.arange(2_000 * 784, dtype=lib.float32).reshape(2_000, 784), lib.arange(2_000))

    def numbers(lib):
        return range(5_000)

    for what, make, batch in (("TensorDataset, 20,000 rows of 784, batch 64", tensors, 64), ("rows by __getitem__, 2,000 of 784, batch 64", rows, 64),
                              ("numbers, 5,000, batch 64", numbers, 64), ("numbers, 5,000, batch 1", numbers, 1),
                              ("pictures 3x32x32 with random flips, 1,000, batch 64", lambda lib: _Pictures(1_000), 64)):
        for workers in (0, 2):
            options = {"batch_size": batch, "shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}
            yield Case(f"loader, {workers} workers", what,
                       {k: _drain(v.utils.data.DataLoader(make(v), **options)) for k, v in libs.items()}, inner=1)
    yield Case("loader, 2 workers", "starting them and ending them, 128 numbers",
               {k: _drain(v.utils.data.DataLoader(range(128), batch_size=64, num_workers=2)) for k, v in libs.items()}, inner=1)


def cases(libraries):
    libs = {n: lib for n, lib in libraries.items() if n != "numpy"}
    yield from _passing(libs)
    yield from _loaders(libs)
