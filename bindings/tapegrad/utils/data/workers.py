"""The loader's side of its workers: one pipe to each and one back, so that a worker that dies holds no lock.

Batches come back as handles of shared memory of the worker's: one file without a name per 64 MB, no descriptor per
tensor. How many can be under way is bounded by `prefetch_factor`; a worker whose memory is full waits until some is free.
"""

import os
import pickle
import queue
import select
import threading
import time
import weakref
from collections import deque

from .packed import pack
from .worker import Failure, Job, run_process, run_thread

__all__ = ["ProcessWorkers", "ThreadWorkers", "WorkerGone"]


class WorkerGone(RuntimeError):
    """A worker has ended without being told to."""


class _Timeout(Exception):
    """Nothing came in time."""


class ProcessWorkers:
    """Worker processes."""

    def __init__(self, loader, seed: int) -> None:
        import multiprocessing

        from ... import multiprocessing as ours
        from ...multiprocessing.sending import named

        given = loader.multiprocessing_context
        method = given if isinstance(given, str) or given is None else given.get_start_method()
        context = ours.get_context(method)
        packed = pack(loader.dataset)
        job = Job(loader)
        self.processes, self._to, self._from = [], [], []
        self._arrived = [deque() for _ in range(loader.num_workers)]
        self._closed = False
        try:
            for i in range(loader.num_workers):
                inbox, to_worker = multiprocessing.Pipe(duplex=False)
                from_worker, outbox = multiprocessing.Pipe(duplex=False)
                process = context.Process(target=run_process, daemon=True, name=f"DataLoader-{i}",
                                          args=(job, packed, i, seed, inbox, outbox, os.getpid()))
                with named("DataLoader", dataset=job.dataset, collate_fn=job.collate, worker_init_fn=job.init):
                    process.start()
                # The other ends are the worker's alone, so that its death is seen as the end of the pipe.
                inbox.close()
                outbox.close()
                os.set_blocking(to_worker.fileno(), False)
                self.processes.append(process)
                self._to.append(to_worker)
                self._from.append(from_worker)
        except BaseException:
            self.close()
            raise
        # It holds the pipes: a collection of garbage may finalise a pipe before the object that closes it, which would close its number twice.
        self._finalizer = weakref.finalize(self, _end_processes, self.processes, self._to, self._from)

    def send(self, i: int, message) -> None:
        """Never blocks for good: while the worker's pipe is full, what it has made is taken in."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        data = memoryview(len(data).to_bytes(4, "big") + data)
        fd = self._to[i].fileno()
        while data:
            try:
                data = data[os.write(fd, data):]
            except BlockingIOError:
                poller = select.poll()
                poller.register(fd, select.POLLOUT)
                poller.register(self._from[i].fileno(), select.POLLIN)
                for ready, _ in poller.poll():
                    if ready != fd:
                        self._arrived[i].append(self._read(i))
            except BrokenPipeError:
                raise self._gone(i) from None

    def _read(self, i: int):
        try:
            data = self._from[i].recv_bytes()
        except (EOFError, ConnectionResetError):
            raise self._gone(i) from None
        task = int.from_bytes(data[:8], "little")
        try:
            return task, pickle.loads(memoryview(data)[8:])
        except Exception as error:
            if isinstance(error, RuntimeError):  # the tensors of a batch that came through are asked for from the worker's process
                self.processes[i].join(0.5)
                if self.processes[i].exitcode is not None:
                    raise self._gone(i) from None
            return task, Failure(error, f"process {i}")  # reported to the consumer of the batch

    def __iter__(self):
        return iter(self.processes)  # PyTorch's iterators have a list of them

    def _gone(self, i: int) -> WorkerGone:
        process = self.processes[i]
        process.join(1)
        code = process.exitcode
        if code is not None and code < 0:
            return WorkerGone(f"DataLoader worker (pid {process.pid}) is killed by signal: {-code}: worker {i} exited unexpectedly")
        how = "is still closing" if code is None else f"ended with exit code {code}"
        return WorkerGone(f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly: worker {i} {how}")

    def receive(self, i: int, timeout: float):
        """The next (task, batch) of worker i. Seconds of 0 wait forever."""
        if self._arrived[i]:
            return self._arrived[i].popleft()
        if timeout and not self._from[i].poll(timeout):
            raise _Timeout
        return self._read(i)

    def receive_any(self, candidates, timeout: float):
        """(worker, (task, batch)) of whichever of the candidates is first."""
        for i in candidates:
            if self._arrived[i]:
                return i, self._arrived[i].popleft()
        poller = select.poll()
        places = {self._from[i].fileno(): i for i in candidates}
        for fd in places:
            poller.register(fd, select.POLLIN)
        ready = poller.poll(timeout * 1000 if timeout else None)
        if not ready:
            raise _Timeout
        i = places[ready[0][0]]
        return i, self._read(i)

    def close(self) -> None:
        """Ends the workers, within a second."""
        if self._closed:
            return
        self._closed = True
        _end_processes(self.processes, self._to, self._from)


def _end_processes(processes, pipes, answers) -> None:
    if processes and processes[0]._parent_pid != os.getpid():
        return  # this is a forked copy
    for pipe in pipes:
        try:
            os.write(pipe.fileno(), b"\0\0\0\4\x80\4N.")  # None, pickled
        except OSError:
            pass  # full or broken
        pipe.close()
    end = time.monotonic() + 0.3
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    late = [p for p in processes if p.is_alive()]
    for process in late:
        process.terminate()
    end = time.monotonic() + 0.3
    for process in late:
        process.join(max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    for connection in answers:
        connection.close()


class ThreadWorkers:
    """Worker threads. They share the dataset; what draws from the generators of Python or NumPy runs one at a time."""

    def __init__(self, loader, seed: int) -> None:
        job = Job(loader)
        n = loader.num_workers
        self._inboxes = [queue.SimpleQueue() for _ in range(n)]
        self._outbox = queue.SimpleQueue()
        self._arrived = [deque() for _ in range(n)]
        self._closed = False
        self._gone: dict[int, WorkerGone] = {}
        self._finalizer = weakref.finalize(self, _end_threads, self._inboxes)
        try:
            for i, inbox in enumerate(self._inboxes):
                threading.Thread(target=run_thread, daemon=True, name=f"DataLoader-{i}",
                                 args=(job, i, seed, inbox, _Tagged(i, self._outbox))).start()
        except BaseException:
            self.close()
            raise

    def send(self, i: int, message) -> None:
        self._inboxes[i].put(message)

    def receive(self, i: int, timeout: float):
        return self.receive_any((i,), timeout)[1]

    def receive_any(self, candidates, timeout: float):
        while True:
            for i in candidates:
                if self._arrived[i]:
                    return i, self._arrived[i].popleft()
                if i in self._gone:
                    raise self._gone[i]
            try:
                worker, result = self._outbox.get(timeout=timeout or None)
            except queue.Empty:
                raise _Timeout from None
            if isinstance(result, Failure):
                self._gone[worker] = WorkerGone(f"DataLoader worker (thread {worker}) exited unexpectedly\n{result.message}")
            else:
                self._arrived[worker].append(result)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            _end_threads(self._inboxes)


class _Tagged:
    """A queue that says who put something into it."""

    def __init__(self, id: int, outbox) -> None:
        self.id, self.outbox = id, outbox

    def put(self, item) -> None:
        self.outbox.put((self.id, item))


def _end_threads(inboxes) -> None:
    for inbox in inboxes:
        inbox.put(None)
