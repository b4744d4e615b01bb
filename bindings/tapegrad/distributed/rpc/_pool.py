"""The threads of a worker: a bounded number for functions of callers, as many as needed for the library's own work.

What the library does itself never waits for a function of the program, so that one that waits for an answer cannot keep it from coming.
"""

import threading
import traceback
from collections import deque

__all__ = ["Pool"]

_IDLE = 60.0  # seconds after which a thread that has nothing to do ends


class _Thread:
    __slots__ = ("task", "wake")

    def __init__(self, task) -> None:
        self.task = task
        self.wake = threading.Lock()
        self.wake.acquire()


class Pool:
    """`run(task)` runs it at once; `run_user(task)` when fewer than `limit` functions of callers run."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._idle: list = []  # the last one to become idle runs next: its memory is in the cache
        self._waiting: deque = deque()
        self._running = 0
        self._closed = False

    def run(self, task) -> bool:
        """Whether it runs: not after close(). RuntimeError where no thread can be started."""
        with self._lock:
            if self._closed:
                return False
            if self._idle:
                thread = self._idle.pop()
                thread.task = task
                thread.wake.release()
                return True
        thread = _Thread(task)
        threading.Thread(target=self._serve, args=(thread,), daemon=True, name="rpc worker").start()
        return True

    def run_user(self, task) -> None:
        with self._lock:
            if self._running >= self._limit:
                self._waiting.append(task)
                return
            self._running += 1
        try:
            self.run(lambda: self._run_users(task))
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _run_users(self, task) -> None:
        while True:
            try:
                task()
            except BaseException:  # a fault of this library's: those that wait for the thread get it
                traceback.print_exc()
            task = None
            with self._lock:
                if self._waiting and not self._closed:
                    task = self._waiting.popleft()
                else:
                    self._running -= 1
            if task is None:
                return

    def _serve(self, thread: _Thread) -> None:
        while True:
            task, thread.task = thread.task, None
            task()
            task = None
            with self._lock:
                if self._closed:
                    return
                self._idle.append(thread)
            if not thread.wake.acquire(timeout=_IDLE):
                with self._lock:
                    if thread in self._idle:
                        self._idle.remove(thread)
                        return
                thread.wake.acquire()  # it was given something in this very moment
            if thread.task is None:
                return

    def close(self) -> None:
        """Idle threads end; what runs goes on, what waits is dropped."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.task = None
            thread.wake.release()
