"""A connection between two workers: messages both ways, many threads that send, one that reads.

A message is a header (kind, length of the head, number of the call, bytes of all tensors), the head in JSON, and the bytes of the tensors,
which are read to where the tensors are. Whoever sends blocks until the system has taken the bytes; the thread that reads never sends, so that
two workers that send to each other at once do not wait for each other.
"""

import json
import os
import socket
import struct
import threading
import time

from .._wire import bytes_of, described, made

__all__ = ["Connection", "Damaged", "Loopback", "packed"]

_HEADER = struct.Struct("<BxxxIqQ")
_MOST_HEAD = 1 << 28
_MOST_BYTES = 1 << 42
_BUFFER = 1 << 16
_PIECES = 512  # of memory in one call of the system, which takes 1024
_STUCK = 60.0  # seconds without a byte taken after which the other side is given up
_SMALL = 1 << 18  # bytes that a thread sends itself


class Damaged(Exception):
    """Bytes that are no message."""


def packed(kind: int, call: int, head: list, tensors) -> list:
    """The pieces of memory of a message. head: JSON data; the tensors' descriptions are added to it."""
    pieces, size = [], 0
    for t in tensors:
        memory = bytes_of(t if t.is_cpu else t.cpu())
        size += len(memory)
        pieces.append(memory)
    text = json.dumps([*head, [described(t) for t in tensors]], separators=(",", ":")).encode()
    return [_HEADER.pack(kind, len(text), call, size) + text, *(p for p in pieces if len(p))]


def unpacked(text, size: int) -> tuple:
    """The head and new tensors, with their memory, which is to be filled."""
    try:
        head = json.loads(text)
        descriptions = head.pop()
        tensors, memories, left = [], [], size
        for name, shape in descriptions:
            t, memory = made(name, shape, left)
            left -= len(memory)
            tensors.append(t)
            if len(memory):
                memories.append(memory)
    except (ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None
    if left:
        raise Damaged("its tensors have fewer bytes than it says")
    return head, tensors, memories


class Connection:
    """One side. `on_message(kind, call, head, tensors)` and, once, `on_end(why)` are called by the thread that reads."""

    def __init__(self, taken, on_message, on_end) -> None:
        """taken: a connection of multiprocessing that both sides have shown the secret through; its descriptor is taken over."""
        self._socket = socket.socket(fileno=os.dup(taken.fileno()))
        taken.close()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) if self._socket.family == socket.AF_INET else None
        # A send returns now and then, to look whether the other side still takes bytes.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 1, 0))
        self._lock = threading.Lock()
        self._on_message, self._on_end = on_message, on_end
        self.ended: str | None = None
        self._thread = threading.Thread(target=self._read, daemon=True, name="rpc reader")

    def start(self) -> None:
        self._thread.start()

    def end(self, why: str) -> None:
        """Ends all that waits in it, on both sides."""
        if self.ended is None:
            self.ended = why
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def join(self, seconds: float) -> None:
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(seconds)

    # Sending.
    def send(self, pieces: list, limit: float = 0.0) -> None:
        """Sends a message. OSError where the other side has gone, or takes nothing for a minute; TimeoutError where it has not taken all after
        `limit` seconds (0: as long as it takes), while it goes on.

        Large messages have a thread of their own where there is a limit, and where Ctrl-C could cut them off in the middle."""
        if sum(map(len, pieces)) > _SMALL and (limit or threading.current_thread() is threading.main_thread()):
            _in_a_thread(lambda: self._send(pieces), limit)
        else:
            self._send(pieces)

    def _send(self, pieces: list) -> None:
        with self._lock:
            if self.ended is not None:
                raise OSError(self.ended)
            try:
                self._send_all(pieces)
            except BaseException as error:
                # Ctrl-C within these lines: it is unknown how much was sent.
                self.end(f"the connection broke: {error or type(error).__name__}")
                raise

    def _send_all(self, pieces: list) -> None:
        left, since = list(pieces), time.monotonic()
        while left:
            try:
                sent = self._socket.sendmsg(left[:_PIECES])
            except (BlockingIOError, InterruptedError):
                if time.monotonic() - since > _STUCK:
                    raise OSError(f"it took no byte for {_STUCK:g} s") from None
                continue
            since = time.monotonic()
            done = 0
            while sent and sent >= len(left[done]):
                sent -= len(left[done])
                done += 1
            del left[:done]
            if sent:
                left[0] = memoryview(left[0])[sent:]

    # Reading.
    def _read(self) -> None:
        buffer, view = bytearray(_BUFFER), None
        view = memoryview(buffer)
        begin = end = 0
        why = "the connection was closed"
        try:
            while True:
                while end - begin < _HEADER.size:
                    begin, end = self._more(view, begin, end)
                kind, length, call, size = _HEADER.unpack_from(buffer, begin)
                begin += _HEADER.size
                if length > _MOST_HEAD or size > _MOST_BYTES or length < 2:
                    raise Damaged("its header")
                if length <= _BUFFER:
                    while end - begin < length:
                        begin, end = self._more(view, begin, end)
                    text = bytes(view[begin:begin + length])
                    begin += length
                else:
                    text = bytearray(length)
                    begin = self._fill([memoryview(text)], view, begin, end)
                head, tensors, memories = unpacked(text, size)
                if memories:
                    begin = self._fill(memories, view, begin, end)
                self._on_message(kind, call, head, tensors)
                text = head = tensors = memories = None  # nothing of a message lives until the next one comes
        except EOFError:
            pass
        except Damaged as error:
            why = f"a message is damaged: {error}"
        except OSError as error:
            why = f"the connection broke: {error}"
        except MemoryError as error:
            why = f"there is no memory for a message: {error}"
        except BaseException as error:
            why = f"the reader failed: {type(error).__name__}: {error}"
        if self.ended is not None:
            why = self.ended
        self.end(why)
        self._on_end(why)
        with self._lock:
            self._socket.close()

    def _more(self, view, begin: int, end: int) -> tuple[int, int]:
        """Appends what has arrived to what was read, which moves to the front where the buffer is full."""
        if begin == end:
            begin = end = 0
        elif end == _BUFFER or begin:
            view[:end - begin] = bytes(view[begin:end])
            begin, end = 0, end - begin
        n = self._socket.recv_into(view[end:])
        if not n:
            raise EOFError
        return begin, end + n

    def _fill(self, memories: list, view, begin: int, end: int) -> int:
        """Fills memory with what was read, up to `end`, and then from the socket; the new begin of what was read."""
        left = list(memories)
        while left and begin < end:
            n = min(len(left[0]), end - begin)
            left[0][:n] = view[begin:begin + n]
            begin += n
            if n == len(left[0]):
                del left[0]
            else:
                left[0] = left[0][n:]
        while left:
            n = self._socket.recvmsg_into(left[:_PIECES])[0]
            if not n:
                raise EOFError
            done = 0
            while done < len(left) and n >= len(left[done]):
                n -= len(left[done])
                done += 1
            del left[:done]
            if n:
                left[0] = left[0][n:]
        return begin


class Loopback:
    """A worker's connection to itself: messages are written and read all the same, so that the callee gets copies."""

    ended = None

    def __init__(self, on_message) -> None:
        self._on_message = on_message

    def send(self, pieces: list, limit: float = 0.0) -> None:
        header, *memories = pieces
        kind, length, call, size = _HEADER.unpack_from(header)
        head, tensors, targets = unpacked(header[_HEADER.size:], size)
        for target, memory in zip(targets, memories, strict=True):
            target[:] = memory
        self._on_message(kind, call, head, tensors)

    def start(self) -> None:
        pass

    def end(self, why: str) -> None:
        self.ended = why

    def join(self, seconds: float) -> None:
        pass


def _in_a_thread(function, limit: float) -> None:
    """Runs a function in a thread and waits for it, with a limit, in this one, which Ctrl-C can interrupt; the function goes on in either case."""
    failed: list = []

    def run():
        try:
            function()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit or None)
    if thread.is_alive():
        raise TimeoutError
    if failed:
        raise failed[0]
