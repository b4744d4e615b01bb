"""The loop of a worker process or thread: receives indices of batches and sends the batches until it is told to stop."""

import gc
import pickle
import random
import signal
import threading
import time
import traceback
from multiprocessing.reduction import ForkingPickler

import numpy as np

from ... import _C, OutOfMemoryError, manual_seed, set_num_threads
from .collate import in_worker_process
from .fetch import Fetcher, SampleError, start_stream
from .packed import unpack_into

__all__ = ["Failure", "WorkerInfo", "get_worker_info"]

_PATIENCE_S = 10.0

_here = threading.local()


class WorkerInfo:
    """Which worker this is: `id` of `num_workers`, its `seed` and its copy of the `dataset`."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset) -> None:
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, dataset={self.dataset})"


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a DataLoader what it is; None elsewhere."""
    return getattr(_here, "info", None)


class Job:
    """What all workers of a loader do."""

    def __init__(self, loader) -> None:
        self.dataset = loader.dataset
        self.collate = loader.collate_fn
        self.batched = loader._auto_collation
        self.iterable = loader._iterable
        self.batch_size = loader.batch_size
        self.drop_last = loader.drop_last
        self.init = loader.worker_init_fn
        self.num_workers = loader.num_workers


class Failure:
    """An exception of a worker, to be raised again by the loader."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.index = None
        if isinstance(error, SampleError):
            self.index, error = (error.index,), error.__cause__
        # What is no Exception says something of whoever it passes through: that the program, the thread or a generator ends.
        # Here only a sample has failed, and the loader's caller is another one.
        self.type = type(error) if isinstance(error, Exception) else RuntimeError
        text = _safely(lambda: "".join(traceback.format_exception(type(error), error, error.__traceback__)))
        sample = "" if self.index is None else f", sample {_safely(lambda: repr(self.index[0]))}"
        self.message = f"Caught {type(error).__name__} in DataLoader worker {where}{sample}.\nOriginal {text}"
        self.error = error

    def __getstate__(self):
        state = {**self.__dict__, "error": None}
        try:
            ForkingPickler.loads(ForkingPickler.dumps(self.type))
        except BaseException:  # a class that cannot travel
            state["type"] = RuntimeError
        return state

    def reraise(self):
        if self.type is KeyError:
            raise KeyError(_Text(self.message)) from self.error
        try:
            error = self.type(self.message)
            str(error)
        except BaseException:
            error = None  # a class that is made from other arguments, or that does not show them
        raise (error if isinstance(error, Exception) else RuntimeError(self.message)) from self.error


def _safely(describe) -> str:
    """The text that describe() returns; methods of the program's own classes may raise anything."""
    try:
        return describe()
    except BaseException as error:
        return f"({type(error).__name__} while it was described)"


def described(error: BaseException) -> str:
    """An exception's class and text."""
    return f"{type(error).__name__}: {_safely(lambda: str(error))}"


class _Text(str):
    """A message that KeyError shows with its line breaks."""

    def __repr__(self) -> str:
        return str(self)


class StreamEnd:
    """An iterable dataset has no more samples."""


class Worker:
    """The part that processes and threads have in common."""

    def __init__(self, job: Job, id: int, in_thread: bool) -> None:
        self.job, self.id = job, id
        self.where = f"{'thread' if in_thread else 'process'} {id}"
        self.fetch = None
        self.in_thread = in_thread
        self.failure = None
        self.stream = None
        self.seed = 0

    def start(self, seed: int) -> None:
        job = self.job
        _here.info = WorkerInfo(self.id, job.num_workers, seed, job.dataset)
        try:
            if job.init is not None:
                job.init(self.id)
            if not job.iterable:
                self.fetch = Fetcher(job.dataset, job.collate, job.batched, self.in_thread)
        except BaseException as error:
            self.failure = Failure(error, self.where)

    def begin(self, seed: int) -> None:
        """A new pass over the data."""
        self.seed = seed
        job = self.job
        if job.iterable and self.failure is None:
            self.stream = start_stream(job.dataset, job.collate, job.batch_size if job.batched else None, job.drop_last)

    def make(self, task: int, indices):
        if self.failure is not None:
            return self.failure
        try:
            if self.job.iterable:
                return next(self.stream, StreamEnd)
            return self.fetch(task, indices, self.seed)
        except BaseException as error:
            return Failure(error, self.where)


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    manual_seed(seed)


def run_process(payload, packed, id: int, seed: int, inbox, outbox, parent: int) -> None:
    """The life of a worker process."""
    from ...multiprocessing._parent import end_with_parent

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent=parent)
    set_num_threads(1)
    in_worker_process()
    job = payload
    kept = unpack_into(job.dataset, packed)
    gc.freeze()  # what came along is not looked through again: a look would copy its pages
    _seed_all(seed + id)
    worker = Worker(job, id, in_thread=False)
    worker.start(seed + id)
    try:
        while (message := pickle.loads(inbox.recv_bytes())) is not None:
            kind, a, b = message
            if kind == "pass":
                _seed_all(a + id)
                worker.begin(a)
                continue
            outbox.send_bytes(_dump(a, worker.make(a, b), worker.where))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the loader has gone
    del kept


def _retry_when_full(make):
    """Calls make(); where shared memory is full, waits for the program to let go of batches and tries again.

    When the program has taken all that was made and lets go of nothing, it holds what fills the memory: an error then.
    """
    waiting_since = None
    while True:
        try:
            return make()
        except OutOfMemoryError:
            now = time.monotonic()
            stats = _C._shared_stats()
            if stats["tickets"] or waiting_since is None:
                waiting_since = now
            if stats["blocks"] == 0 or now - waiting_since > _PATIENCE_S:
                raise
            time.sleep(0.005)


def _dump(task: int, data, where: str) -> bytes:
    """The number of a batch, which can be read whatever the batch is made of, and the batch; its tensors go into shared memory."""
    from ...multiprocessing.reductions import dumps

    try:
        batch = _retry_when_full(lambda: dumps(data))
    except BaseException as error:
        batch = dumps(Failure(error, where))
    return task.to_bytes(8, "little") + batch


def run_thread(job: Job, id: int, seed: int, inbox, outbox) -> None:
    """The life of a worker thread."""
    try:
        _C._keyed_own_generator(True)
        manual_seed(seed + id)
        worker = Worker(job, id, in_thread=True)
        worker.start(seed + id)
        while (message := inbox.get()) is not None:
            kind, a, b = message
            if kind == "pass":
                worker.begin(a)
            else:
                outbox.put((a, worker.make(a, b)))
    except BaseException as error:  # one that another thread has put here, or there is no memory
        outbox.put(Failure(error, f"thread {id}"))
    finally:
        _C._keyed_own_generator(False)
