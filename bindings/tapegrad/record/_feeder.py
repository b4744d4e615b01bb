"""feeder: batches that a thread makes and stages in a bounded queue while a step runs, shuffled and padded where that is asked for."""

from __future__ import annotations

import atexit
import os
import random
import threading
import weakref
from collections import deque

from .. import _C, Tensor, default_generator, full, int64, manual_seed, tensor

_PATIENCE = 5.0  # seconds that the end of a loop waits for the batch that is being made

_living: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for queue in list(_living):
        queue.close(1.0)


class _Queue:
    """What a thread and the iterator share. The thread does not hold the iterator, so a loop that is left ends it."""

    def __init__(self, depth: int) -> None:
        self.depth, self.pid = depth, os.getpid()
        self.changed = threading.Condition()
        self.items: deque = deque()
        self.closed = self.ended = False
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        _living.add(self)

    def wait_for_space(self) -> bool:
        """Waits until one more item fits; False once the queue is closed."""
        with self.changed:
            while len(self.items) >= self.depth and not self.closed:
                self.changed.wait()
            return not self.closed

    def put(self, item) -> None:
        with self.changed:
            self.items.append(item)
            self.changed.notify_all()

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.error, self.ended = error, True
            self.changed.notify_all()

    def get(self):
        """The next item; raises StopIteration at the end, and what the loader raised once all before it were taken."""
        if os.getpid() != self.pid:
            raise RuntimeError(f"feeder: this loop began in process {self.pid}, whose thread makes the batches\nbegin another one in this process")
        with self.changed:
            while not self.items and not self.ended:
                self.changed.wait()
            if self.items:
                item = self.items.popleft()
                self.changed.notify_all()
                return item
            error, self.error = self.error, None
        if error is None:
            raise StopIteration
        raise error

    def close(self, patience: float = _PATIENCE) -> None:
        if os.getpid() != self.pid:  # the lock may be held by a thread that is not here
            return
        with self.changed:
            self.closed = self.ended = True
            self.items.clear()
            self.error = None
            self.changed.notify_all()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(patience)


def _work(queue: _Queue, source, seed: int) -> None:
    """The life of the thread."""
    error = None
    try:
        _C._keyed_own_generator(True)  # what it draws changes nothing in the program's numbers
        manual_seed(seed)
        while queue.wait_for_space():
            queue.put(next(source))
    except StopIteration:
        pass
    except BaseException as raised:  # for the program's thread
        error = raised
    finally:
        try:
            source.close()  # runs the loader's own endings here
        except BaseException as raised:
            error = error or raised
        queue.end(error)
        _C._keyed_own_generator(False)


class _Iterator:
    """One pass over the batches."""

    def __init__(self, feeder: Feeder, number: int) -> None:
        self._queue = queue = _Queue(feeder.depth)
        source = feeder._batches(number)
        # The first batch is made here: loaders draw the seed of a pass then, from the program's generator as without a feeder.
        try:
            queue.items.append(next(source))
        except StopIteration:
            queue.ended = True
            return
        queue.thread = threading.Thread(target=_work, args=(queue, source, default_generator.initial_seed() + number), daemon=True, name="feeder")
        queue.thread.start()

    def __iter__(self):
        return self

    def __next__(self):
        return self._queue.get()

    def close(self) -> None:
        """Ends the thread, after the batch that it is making. Leaving the loop does the same."""
        self._queue.close()

    def __del__(self) -> None:
        if queue := getattr(self, "_queue", None):
            queue.close()


def _sizes(pad):
    """A checked `pad`: None, True, or a list of rising sizes; in tuples and dictionaries."""
    if pad is None or pad is True:
        return pad
    if isinstance(pad, tuple):
        return tuple(_sizes(p) for p in pad)
    if isinstance(pad, dict):
        return {key: _sizes(p) for key, p in pad.items()}
    sizes = [pad] if isinstance(pad, int) else pad
    if not isinstance(sizes, list) or not sizes or not all(isinstance(n, int) and n > 0 for n in sizes) or sorted(set(sizes)) != sizes:
        raise ValueError(f"feeder: expected for pad a size, a rising list of sizes, True or None, also in tuples and dictionaries like a batch: got {pad!r}")
    return sizes


def _size_for(sizes, longest: int) -> int:
    if sizes is True:
        return longest
    found = next((n for n in sizes if n >= longest), None)
    if found is None:
        raise ValueError(f"feeder: a sequence has {longest} entries, and pad says at most {sizes[-1]}")
    return found


def _walk(value, pad, leaf):
    """leaf(value, pad) for each tensor for which pad has sizes; the rest stays."""
    if pad is None:
        return value
    if isinstance(value, Tensor):
        return leaf(value, pad)
    if isinstance(value, dict):
        return type(value)({key: _walk(item, pad.get(key) if isinstance(pad, dict) else pad, leaf) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        if isinstance(pad, tuple) and len(pad) != len(value):
            raise ValueError(f"feeder: pad has {len(pad)} entries for a batch of {len(value)} parts")
        parts = [_walk(item, p, leaf) for item, p in zip(value, pad if isinstance(pad, tuple) else [pad] * len(value))]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


class Feeder:
    """What `feeder` gives: each pass over it is one over its loader."""

    def __init__(self, loader, depth: int, shuffle: int, seed: int, batch, pad, value, drop_last: bool) -> None:
        for name, n, least in (("depth", depth, 1), ("shuffle", shuffle, 0), ("batch", 1 if batch is None else batch, 1)):
            if not isinstance(n, int) or isinstance(n, bool) or n < least:
                raise ValueError(f"feeder: expected for {name} an integer of at least {least}: got {n!r}")
        iter(()) if hasattr(loader, "__iter__") or hasattr(loader, "__getitem__") else iter(loader)  # TypeError for what is no iterable
        self.loader, self.depth, self.shuffle, self.seed = loader, depth, shuffle, seed
        self.batch, self.pad, self.value, self.drop_last = batch, _sizes(pad), value, drop_last
        self._passes = 0
        if batch is not None:
            from ..utils.data import default_collate

            self._collate = default_collate

    def __iter__(self):
        number, self._passes = self._passes, self._passes + 1
        return _Iterator(self, number)

    def __len__(self) -> int:
        n = len(self.loader)
        return n if self.batch is None else n // self.batch if self.drop_last else -(-n // self.batch)

    # --- what the thread runs ---

    def _batches(self, number: int):
        items = iter(self.loader)
        if self.shuffle > 1:
            items = self._shuffled(items, random.Random(f"{self.seed} {number}"))
        if self.batch is not None:
            items = self._joined(items)
        elif self.pad is not None:
            items = map(self._padded, items)
        for item in items:  # noqa: UP028, which would close a loader that is a generator when a loop is left
            yield item

    def _shuffled(self, items, chance: random.Random):
        buffer: list = []
        for item in items:
            if len(buffer) < self.shuffle:
                buffer.append(item)
                continue
            at = chance.randrange(len(buffer))
            out, buffer[at] = buffer[at], item
            yield out
            del out
        chance.shuffle(buffer)
        while buffer:
            yield buffer.pop()

    def _joined(self, items):
        from ..utils.data.sampler import batches_of

        return map(self._collated, batches_of(items, self.batch, self.drop_last))

    def _collated(self, samples: list):
        """The samples as one batch, with the lengths of what was padded."""
        if self.pad is None:
            return self._collate(samples)
        columns: list[list] = [[] for _ in samples]
        for column, sample in zip(columns, samples, strict=True):
            _walk(sample, self.pad, lambda t, sizes, column=column: column.append((t, sizes)))
        counts = {len(column) for column in columns}
        if len(counts) != 1:
            raise ValueError(f"feeder: samples of a batch have {min(counts)} and {max(counts)} tensors that pad speaks of")
        longest = [_size_for(row[0][1], max(self._length(t) for t, _ in row)) for row in zip(*columns, strict=True)]
        filled = [self._filled(sample, longest) for sample in samples]
        lengths = tuple(tensor([self._length(t) for t, _ in row], dtype=int64) for row in zip(*columns, strict=True))
        return self._collate(filled), lengths

    @staticmethod
    def _length(sample: Tensor) -> int:
        if sample.ndim == 0:
            raise ValueError("feeder: pad speaks of a tensor without dimensions, which has no length")
        return sample.shape[0]

    def _filled(self, sample, longest: list[int]):
        sizes = iter(longest)
        return _walk(sample, self.pad, lambda t, _: self._up_to(t, 0, next(sizes)))

    def _up_to(self, t: Tensor, dim: int, size: int) -> Tensor:
        if t.shape[dim] == size:
            return t
        made = full((*t.shape[:dim], size, *t.shape[dim + 1:]), self.value, dtype=t.dtype, device=t.device)
        made.narrow(dim, 0, t.shape[dim]).copy_(t)
        return made

    def _padded(self, batch):
        """A batch whose sequences lie along dimension 1, with their length."""
        lengths: list[Tensor] = []

        def leaf(t: Tensor, sizes) -> Tensor:
            if t.ndim < 2:
                raise ValueError(f"feeder: pad speaks of a tensor of shape {tuple(t.shape)}: sequences of a batch lie along dimension 1")
            lengths.append(full((t.shape[0],), t.shape[1], dtype=int64))
            return self._up_to(t, 1, _size_for(sizes, t.shape[1]))

        made = _walk(batch, self.pad, leaf)
        return made, tuple(lengths)


def feeder(loader, depth: int = 2, *, shuffle: int = 0, seed: int = 0, batch: int | None = None, pad=None, value: float = 0, drop_last: bool = False) -> Feeder:
    """Batches of `loader`, any iterable, made by a thread while the program computes; at most `depth` wait.

        for x, y in tapegrad.record.feeder(loader):
            step(x, y)

    `shuffle`: entries are taken at random from a buffer of that many, in an order that `seed` and the number of the pass decide. `batch`: that
    many entries of the loader, then samples, become one batch; `drop_last` leaves out a last one with fewer. `pad`: sequences are filled
    up with `value`, to the smallest of these sizes (a number or a rising list) that fits, or with True to the longest of the batch; in a tuple
    or dictionary it says so for each part of a batch, with None for what is not padded. Sequences are dimension 1 of a batch,
    dimension 0 of a sample; the entries are then (batch, lengths), with an int64 tensor of lengths for each part that was padded.
    A step sees few sizes so, each of which is recorded once.

    What the loader raises is raised by the loop, with its own traceback, after the batches before it. Leaving the loop, an error in it and the end
    of the program end the thread. In a forked process a loop that began before the fork raises RuntimeError. The thread has a generator
    of its own; those of Python and NumPy belong to the whole process. Raises ValueError for arguments that do not fit.
    """
    return Feeder(loader, depth, shuffle, seed, batch, pad, value, drop_last)
