"""What processes of the tests run; imported by spawned children, too."""

import contextlib
import os
import random
import signal
import struct
import time

import tapegrad as tg
import tapegrad.multiprocessing as mp
from tapegrad import nn


class Child:
    """A `process` that takes tasks from its `inbox` until None comes. It ends with the block, or within `patience` seconds after it."""

    patience = 60

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.is_alive():
            self.inbox.put(None)
        self.process.join(self.patience)
        if self.process.is_alive():
            self.overdue()

    def overdue(self):
        raise AssertionError("the child does not end")


def answer(inbox, outbox):
    """Gets objects and applies the named action to each until None comes."""
    while (task := inbox.get()) is not None:
        action, obj = task
        outbox.put(ACTIONS[action](obj))
        del task, obj


def add_one(t):
    with tg.no_grad():
        t.add_(1)
    return t.sum().item()


def describe(obj):
    a, b, p = obj
    return (list(a.shape), a.stride(), str(a.dtype), a.tolist(), a._storage_id() == b._storage_id(), type(p).__name__,
            p.requires_grad, p.is_leaf, a.is_shared())


def keep(t, kept=[]):  # noqa: B006
    kept.append(t)
    return len(kept)


def write(t):
    try:
        t[0] = 3
    except RuntimeError as error:
        return str(error)
    return t.tolist()


def seal(handle):
    """The handle with the checksum that belongs to it, as multiprocessing/handle.h has it."""
    mask, sum_ = (1 << 64) - 1, 0x9E3779B97F4A7C15
    handle = handle[:60] + bytes(4) + handle[64:]
    for (word,) in struct.iter_unpack("<Q", handle):
        sum_ = (sum_ ^ word) * 0xFF51AFD7ED558CCD & mask
        sum_ ^= sum_ >> 32
    return handle[:60] + struct.pack("<I", (sum_ ^ sum_ >> 32) & 0xFFFFFFFF) + handle[64:]


def damage(handle, others, dice):
    """One byte, one bit, a field of another handle, a limit, noise, or the end."""
    damaged, way = bytearray(handle), dice.randrange(6)
    at = dice.randrange(64)
    if way == 0:
        damaged[at] = dice.randrange(256)
    elif way == 1:
        damaged[at] ^= 1 << dice.randrange(8)
    elif way == 2:
        at &= ~3
        damaged[at:at + 4] = dice.choice(others)[at:at + 4]
    elif way == 3:
        damaged[at & ~3:(at & ~3) + 4] = dice.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\1\0\0\0"))
    elif way == 4:
        damaged[at:at + 8] = dice.randbytes(8)[:64 - at]
    else:
        del damaged[at:]
    return bytes(damaged)


def receive_damaged(task):
    """Damaged handles that were taken, used so that a wrong place is read; and whether the whole ones still give what they gave."""
    handles, values, count, seed = task
    dice, taken = random.Random(seed), []
    for i in range(count):
        handle = dice.choice(handles)
        damaged = damage(handle, handles, dice)
        if i % 2 and len(damaged) == 64:  # by one who knows the checksum
            damaged = seal(damaged)
        if damaged == handle:
            continue
        tg._C._shared_on_its_way(handle)
        with contextlib.suppress(RuntimeError, NotImplementedError):
            if tg._C._shared_on_its_way(damaged) | tg._C._shared_take_back(damaged):
                taken.append((handle, damaged))
        with contextlib.suppress(RuntimeError, NotImplementedError):
            float(tg._C._shared_receive(damaged).sum())
            taken.append((handle, damaged))
    return taken, [int(tg._C._shared_receive(h).sum()) for h in handles] == values


ACTIONS = {"add_one": add_one, "describe": describe, "keep": keep, "write": write, "same": lambda t: t, "sum": lambda t: t.sum().item(),
           "pid": lambda t: os.getpid(), "receive_damaged": receive_damaged}


def send_and_wait(outbox, tensor_bytes, n):
    for i in range(n):
        outbox.put(tg.full((tensor_bytes,), i, dtype=tg.uint8))
    time.sleep(60)


def receive_slowly(inbox):
    held = [inbox.get()]
    time.sleep(60)
    return held


def send_one(connection):
    connection.send(tg.arange(4))
    connection.recv()


def fail(i, kind):
    if i == 1:
        if kind == "raise":
            raise ValueError("no number seven")
        if kind == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)


def fill(i, t):
    t[i] = i + 1


def square(t):
    return t * t


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(784, 32), nn.Linear(32, 10)
        self.second.again = self.second.weight  # a tie

    def forward(self, x):
        return self.second(tg.relu(self.first(x)))


def train(i, model, x, y, steps):
    tg.set_num_threads(1)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    n = len(x)
    for step in range(steps):
        rows = slice((step * 64 + i * 37) % (n - 64), (step * 64 + i * 37) % (n - 64) + 64)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def use_up_descriptors(outbox):
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    t = tg.ones(10).share_memory_()  # the arena is there
    spare = []
    with contextlib.suppress(OSError):
        while True:
            spare.append(os.dup(0))
    messages = [t.share_memory_().sum().item(), tg.ones(5).share_memory_().sum().item()]
    try:
        tg.ones(32 << 20).share_memory_()
    except RuntimeError as error:
        messages.append(str(error))
    for fd in spare:
        os.close(fd)
    messages.append(tg.ones(32 << 20).share_memory_().sum().item())
    outbox.send(messages)


def orphan(connection):
    """Starts a child, says which, and waits to be killed."""
    inbox, outbox = mp.get_context("fork").SimpleQueue(), mp.get_context("fork").SimpleQueue()
    p = mp.get_context("fork").Process(target=mp_answer, args=(inbox, outbox), daemon=True)
    p.start()
    connection.send(p.pid)
    time.sleep(60)


def mp_answer(inbox, outbox):
    from tapegrad.multiprocessing._parent import end_with_parent

    end_with_parent()
    answer(inbox, outbox)
