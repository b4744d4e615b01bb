"""DataLoader: batches of a dataset, made in this process or by workers."""

from __future__ import annotations

import copy
import os
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from ... import _C, get_rng_state, set_rng_state
from ..._warn import warn
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .fetch import Fetcher, SampleError, start_stream
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed
from .worker import Failure, StreamEnd, get_worker_info
from .workers import ProcessWorkers, ThreadWorkers, WorkerGone, _Timeout

_collate_fn_t = Callable[[list], object]  # what annotations of programs name
__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]


class _InfiniteConstantSampler(Sampler):
    """The sampler of an iterable dataset: asks for the next sample forever."""

    def __iter__(self):
        while True:
            yield None


class _DatasetKind:
    """PyTorch's numbers of the two kinds of datasets, which libraries ask loaders for."""

    Map, Iterable = 0, 1


_T = TypeVar("_T", covariant=True)


class DataLoader(Generic[_T]):
    """Goes through a dataset in batches.

    The arguments are PyTorch's, and one more: `worker_type` is "process" or "thread". Samples are the same for any number
    and kind of workers: the generators of tapegrad, NumPy and Python start anew for each from the seed of the pass and
    the index. `state_dict()` says where in the data the loader is, `load_state_dict` goes on from there.

    Threads suit datasets that are ready in memory or that wait for files; calls that may draw random numbers from Python's
    or NumPy's generator run one at a time there. With pin_memory, tensors come in pinned
    memory, so that to("cuda", non_blocking=True) does not wait; without a GPU that changes nothing.
    """

    def __init__(self, dataset: Dataset[_T], batch_size: int | None = 1, shuffle: bool | None = None, sampler=None, batch_sampler=None,
                 num_workers: int = 0, collate_fn=None, pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn=None, multiprocessing_context=None, generator=None, *, prefetch_factor: int | None = None,
                 persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True,
                 worker_type: str = "process") -> None:
        self._check_workers(num_workers, timeout, prefetch_factor, persistent_workers, worker_type)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = self._check_context(multiprocessing_context, num_workers)
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.worker_type = worker_type
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
                sampler = _InfiniteConstantSampler()
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
        self._workers = None  # persistent ones
        self._last = None  # a weak reference to the iterator of the pass under way
        self._resume = None
        self._said_length = None  # what len() said of an IterableDataset, which may give more
        if pin_memory and pin_memory_device:
            warn(f"pin_memory_device is deprecated: the current device is used, and '{pin_memory_device}' has no effect")
        if pin_memory and _C._cuda_device_count() == 0:
            warn("'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.")
        self.__initialized = True  # under the name by which subclasses written for PyTorch switch the check below off

    __initialized = False

    def __setattr__(self, name, value):
        if self.__initialized and name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __getstate__(self):
        return {**self.__dict__, "_workers": None, "_last": None}

    @staticmethod
    def _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, worker_type) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                             "multiprocessing, otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if worker_type not in ("process", "thread"):
            raise ValueError(f"DataLoader: worker_type is \"process\" or \"thread\": got {worker_type!r}")
        if num_workers > (cores := len(os.sched_getaffinity(0))) and worker_type == "process":
            warn(f"This DataLoader will create {num_workers} worker processes, but {cores} processors are there for this program: more "
                 "workers than that take memory, and excessive worker creation might get DataLoader running slow or even freeze.")

    @staticmethod
    def _check_context(context, num_workers):
        if context is None:
            return None
        if num_workers == 0:
            raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                             f"num_workers={num_workers}")
        import multiprocessing

        if isinstance(context, str):
            if context not in multiprocessing.get_all_start_methods():
                raise ValueError("multiprocessing_context option should specify a valid start method in "
                                 f"{multiprocessing.get_all_start_methods()!r}, but got multiprocessing_context={context!r}")
        elif not isinstance(context, multiprocessing.context.BaseContext):
            raise TypeError("multiprocessing_context option should be a valid context object or a string specifying the start "
                            f"method, but got multiprocessing_context={context}")
        return context

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
        if self.batch_size is not None:
            n = n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
        self._said_length = n
        return n

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._iterable else _DatasetKind.Map

    def _get_iterator(self) -> Iterator[Any]:
        return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._get_iterator()
        self._last = weakref.ref(iterator)
        return iterator

    @property
    def _iterator(self):
        """With persistent workers: the iterator of the last pass, while something holds it. Set to None, the workers end, and the
        next pass starts others."""
        return self._last() if self._workers is not None and self._last else None

    @_iterator.setter
    def _iterator(self, value) -> None:
        if value is not None:
            raise ValueError("DataLoader: _iterator can be set to None only")
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()

    # ---- position

    def state_dict(self) -> dict:
        """Where the loader is: plain data and tensors, for tapegrad.save. Between two passes: at the start of the next."""
        last = self._last and self._last()
        if last is not None and not last._done:
            return {"batches": last._yielded, **last._start}
        return {"batches": 0} if self._resume is None else dict(self._resume)

    def load_state_dict(self, state: dict) -> None:
        """The next pass goes on where `state` was taken. Batches before that are not made again, but for those of an
        iterable dataset, which are made and dropped; without workers, one that has `state_dict` and `load_state_dict` goes on by itself."""
        batches = state.get("batches") if isinstance(state, dict) else None
        if type(batches) is not int or batches < 0 or (batches and not isinstance(state.get("states"), dict)):
            raise ValueError(f"load_state_dict: expected what DataLoader.state_dict() gave: got the keys {sorted(state)}")
        self._resume = dict(state) if batches else None
        self._last = None


def _python_state_in():
    version, words, gauss = random.getstate()
    return {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss}


def _numpy_state_in():
    name, words, pos, has_gauss, gauss = np.random.get_state()
    return {"name": name, "words": words.copy(), "pos": int(pos), "has_gauss": int(has_gauss), "gauss": float(gauss)}


class _States:
    """The generators that samplers may draw from, as they were at the beginning of a pass."""

    @staticmethod
    def take(generator) -> dict:
        return {"own": get_rng_state(), "given": None if generator is None else generator.get_state(), "python": _python_state_in(),
                "numpy": _numpy_state_in()}

    @staticmethod
    def put(state: dict, generator) -> None:
        set_rng_state(state["own"])
        if generator is not None and state["given"] is not None:
            generator.set_state(state["given"])
        p, n = state["python"], state["numpy"]
        random.setstate((p["version"], tuple(int(w) for w in p["words"]), p["gauss"]))
        np.random.set_state((n["name"], np.asarray(n["words"], dtype=np.uint32), n["pos"], n["has_gauss"], n["gauss"]))


class _BaseDataLoaderIter:
    """One pass over the data."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._dataset = loader.dataset
        self._done = False
        self._yielded = 0
        resume, loader._resume = loader._resume, None
        self._of_dataset = None if resume is None else resume.get("dataset")
        generator = loader.generator
        if resume is None:
            self._states = _States.take(generator)
            self._base_seed = draw_seed(generator)
            self._index_iter = iter(loader._index_sampler)
            return
        # The sampler draws the same numbers again, without affecting other generators.
        now = _States.take(None)
        _States.put(resume["states"], generator)
        self._states = resume["states"]
        self._base_seed = draw_seed(generator)
        self._index_iter = iter(loader._index_sampler)
        self._skip(resume["batches"])
        self._yielded = resume["batches"]
        _States.put(now, None)

    def _skip(self, batches: int) -> None:
        if not self._loader._iterable:
            for _ in range(batches):
                next(self._index_iter, None)

    @property
    def _start(self) -> dict:
        return {"states": self._states}

    def __iter__(self):
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def __next__(self):
        if self._done:
            raise StopIteration
        try:
            data = self._next_data()
        except StopIteration:
            self._done = True
            raise
        self._yielded += 1
        said = self._loader._said_length
        if said is not None and self._yielded > said:
            warn(f"Length of IterableDataset {self._dataset} was reported to be {said} batches (when accessing len(dataloader)), but "
                 f"{self._yielded} samples have been fetched. For multiprocessing data-loading, this could be caused by workers that each give all of "
                 "it: see get_worker_info()")
        if self._loader.pin_memory and _C._cuda_device_count() > 0:
            from ._utils.pin_memory import pin_memory

            return pin_memory(data)
        return data


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches made by this process on demand."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._num_workers = 0
        if loader._iterable:
            batch_size = loader.batch_size if loader._auto_collation else None
            if self._of_dataset is not None:
                loader.dataset.load_state_dict(self._of_dataset)
            self._stream = start_stream(loader.dataset, loader.collate_fn, batch_size, loader.drop_last)
            for _ in range(self._yielded if self._of_dataset is None else 0):
                next(self._stream, None)
            self._next_data = self._stream.__next__
        else:
            self._fetch = Fetcher(loader.dataset, loader.collate_fn, loader._auto_collation)

    @property
    def _start(self) -> dict:
        goes_on = self._loader._iterable and hasattr(self._dataset, "state_dict") and hasattr(self._dataset, "load_state_dict")
        return {**super()._start, **({"dataset": copy.deepcopy(self._dataset.state_dict())} if goes_on else {})}

    def _next_data(self):
        indices = next(self._index_iter)
        try:
            return self._fetch(self._yielded, indices, self._base_seed)
        except SampleError as error:
            cause = error.__cause__
            if hasattr(cause, "add_note"):
                cause.add_note(f"raised by the dataset for sample {error.index!r}")
        raise cause


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches made by workers ahead of time."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._num_workers = n = loader.num_workers
        self._timeout = loader.timeout
        self._in_order = loader.in_order
        kind = ThreadWorkers if loader.worker_type == "thread" else ProcessWorkers
        self._persistent = loader.persistent_workers
        if self._persistent and loader._workers is not None:
            self._workers = loader._workers
            if previous := loader._workers.user:
                if (old := previous()) is not None:
                    old._abandon()
        else:
            self._workers = kind(loader, self._base_seed)
            if self._persistent:
                loader._workers = self._workers
        self._workers.user = weakref.ref(self)
        self._pid = os.getpid()
        self._worker_pids = [p.pid for p in getattr(self._workers, "processes", ())]
        self._active = list(range(n))
        self._turn = 0
        self._task = 0 if loader._iterable else self._yielded
        self._pending: deque[tuple[int, int]] = deque()  # (task, worker), in the order of the sampler
        self._ready: dict[int, object] = {}
        self._to_drop = self._yielded if loader._iterable else 0
        for i in range(n):
            self._workers.send(i, ("pass", self._base_seed, None))
        for _ in range(max(1, loader.prefetch_factor) * n):
            self._put_task()

    def _put_task(self) -> None:
        if not self._active:
            return
        try:
            indices = next(self._index_iter)
        except StopIteration:
            return
        worker = self._active[self._turn % len(self._active)]
        self._turn += 1
        self._workers.send(worker, ("task", self._task, indices))
        self._pending.append((self._task, worker))
        self._task += 1

    def _receive(self):
        """Takes in what is needed next: the oldest batch, or any."""
        try:
            if self._in_order:
                worker = self._pending[0][1]
                task, data = self._workers.receive(worker, self._timeout)
            else:
                worker, (task, data) = self._workers.receive_any({w for _, w in self._pending}, self._timeout)
        except _Timeout:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        if data is StreamEnd:
            if worker in self._active:
                place = self._active.index(worker)
                self._active.remove(worker)
                self._turn = self._turn % (len(self._active) + 1)
                if place < self._turn:
                    self._turn -= 1
            self._pending = deque(item for item in self._pending if item[0] != task)
            self._put_task()
            return
        self._ready[task] = data

    def _next_data(self):
        while self._pending:
            if self._in_order:
                task = self._pending[0][0]
            else:
                task = next(iter(self._ready), None)
            if task is None or task not in self._ready:
                self._receive()
                continue
            data = self._ready.pop(task)
            self._pending = deque(item for item in self._pending if item[0] != task) if not self._in_order else self._popped()
            self._put_task()
            if isinstance(data, Failure):
                data.reraise()
            if self._to_drop:
                self._to_drop -= 1
                continue
            return data
        self._finish()
        raise StopIteration

    def _popped(self):
        self._pending.popleft()
        return self._pending

    def _abandon(self) -> None:
        """Receives the remaining batches of an abandoned pass."""
        self._done = True
        while self._pending:
            try:
                task, _ = self._workers.receive(self._pending[0][1], 0)
            except WorkerGone:
                break
            self._pending.popleft()
        self._ready.clear()

    def _finish(self) -> None:
        self._done = True
        if not self._persistent:
            self._workers.close()

    def _shutdown_workers(self) -> None:
        self._finish()
        if self._loader._workers is self._workers:
            self._loader._iterator = None

    def __del__(self):
        workers = getattr(self, "_workers", None)
        if workers is None:
            return
        if not self._persistent:
            workers.close()
        elif not self._done and not workers._closed and self._pid == os.getpid():  # a forked copy would take what the first process waits for
            try:
                self._abandon()
            except Exception:  # at the end of the interpreter
                pass
