"""Tensors in other processes. Every child is daemonic or killed, and every wait has an end."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.multiprocessing as mp
from tapegrad import nn

sys.path.insert(0, str(Path(__file__).parent))
import workers  # noqa: E402

WAIT = 60


class Worker(workers.Child):
    """A child that answers (action, object)."""

    patience = 5

    def __init__(self, method="fork"):
        self.context = mp.get_context(method)
        self.inbox, self.outbox = self.context.SimpleQueue(), self.context.SimpleQueue()
        self.process = self.context.Process(target=workers.answer, args=(self.inbox, self.outbox), daemon=True)
        self.process.start()

    def ask(self, action, obj):
        self.inbox.put((action, obj))
        return self.get()

    def get(self):
        assert self.outbox._reader.poll(WAIT), "the child gives no answer"
        return self.outbox.get()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(WAIT)

    overdue = kill


@pytest.fixture(scope="module")
def worker():
    with Worker() as w:
        yield w


@pytest.fixture(params=["fork", "spawn"], scope="module")
def any_worker(request):
    with Worker(request.param) as w:
        yield w


def stats():
    gc.collect()
    return mp.shared_memory_stats()


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_both_sides_look_at_one_memory(any_worker):
    base = tg.zeros(4, 6)
    view = base[1:3, ::2]
    assert any_worker.ask("add_one", view) == 6
    assert view.is_shared() and base.is_shared()  # the view's storage moved, and with it all views
    assert base.sum().item() == 6
    assert base[1].tolist() == [1, 0, 1, 0, 1, 0]
    assert any_worker.ask("add_one", base) == 6 + 24
    back = any_worker.ask("same", view)
    assert back.data_ptr() == view.data_ptr()  # it came home


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "bool", "int64"])
def test_views_ties_dtypes_and_parameters(any_worker, dtype):
    a = tg.ones(3, 4).to(getattr(tg, dtype)).t()[1:]
    p = nn.Parameter(tg.ones(2))
    got = any_worker.ask("describe", (a, a[:1], p))
    assert got == ([3, 3], (1, 4), f"tapegrad.{dtype}", a.tolist(), True, "Parameter", True, True, True)
    leaf = tg.ones(2, requires_grad=True)
    assert any_worker.ask("same", leaf).requires_grad
    empty = any_worker.ask("same", tg.zeros(0, 3))
    assert empty.shape == (0, 3)


def test_modules_keep_their_ties(worker):
    model = workers.Digits()
    copy = worker.ask("same", model)
    assert copy.second.again.data_ptr() == copy.second.weight.data_ptr() == model.second.weight.data_ptr()
    assert copy.first.weight.requires_grad
    assert all(p.is_shared() for p in model.parameters())
    assert all(p.is_shared() for p in workers.Digits().share_memory().parameters())


def test_other_kinds_of_tensors(worker):
    sparse = tg.eye(3).to_sparse()
    assert worker.ask("same", sparse).to_dense().tolist() == tg.eye(3).tolist()
    array = np.arange(5.0)
    t = tg.from_numpy(array)
    assert worker.ask("sum", t) == 10
    assert t.is_shared()
    array[0] = 100  # NumPy keeps its own memory
    assert t[0].item() == 0
    shown = tg.arange(3.0)
    seen = shown.numpy()
    worker.ask("add_one", shown)
    assert shown.tolist() == [1, 2, 3]
    assert seen.tolist() == [0, 1, 2]  # still there, though the tensor has moved
    with pytest.raises(RuntimeError, match="send tensor.detach()"):
        worker.inbox.put(tg.ones(2, requires_grad=True) * 2)


def test_storages(worker):
    s = tg.ones(4).untyped_storage()
    got = worker.ask("same", s)
    assert got.is_shared() and s.is_shared() and got.nbytes() == 16 and got.data_ptr() == s.data_ptr()
    assert tg.UntypedStorage._new_shared(10).is_shared()
    assert not tg.ones(3).untyped_storage().is_shared()


def test_read_only_sharing(worker):
    t = mp.share_read_only(tg.arange(4))
    t[1] = 7  # the owner writes
    assert "read-only" in worker.ask("write", t)
    assert worker.ask("sum", t) == 12


def test_pools_and_managers():
    with mp.get_context("fork").Pool(2) as pool:
        results = pool.map_async(workers.square, [tg.full((3,), float(i)) for i in range(6)]).get(WAIT)
    assert [r.tolist() for r in results] == [[i * i] * 3 for i in range(6)]
    receiver, sender = mp.Pipe(duplex=False)
    sender.send([tg.ones(2), "text"])
    assert receiver.poll(WAIT)
    assert receiver.recv()[0].tolist() == [1, 1]
    queue = mp.Queue()
    with pytest.raises(RuntimeError, match="history"):  # raised where it is put, not printed by a thread
        queue.put(tg.ones(2, requires_grad=True) * 2)
    queue.close()


def test_names():
    import torch.multiprocessing as theirs

    missing = [n for n in theirs.__all__ if not hasattr(mp, n)]
    assert missing == []
    assert mp.get_all_sharing_strategies() == theirs.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("carrier_pigeon")
    with pytest.raises(ValueError):
        mp.get_context("telepathy")
    from tapegrad.multiprocessing.pool import Pool  # noqa: F401
    from tapegrad.multiprocessing.queue import SimpleQueue  # noqa: F401


def test_spawn_and_its_failures():
    t = tg.zeros(3).share_memory_()
    mp.start_processes(workers.fill, (t,), nprocs=3, start_method="fork")
    assert t.tolist() == [1, 2, 3]
    context = mp.spawn(workers.fill, (t.zero_(),), nprocs=1, join=False)
    assert len(context.pids()) == 1
    while not context.join(timeout=WAIT):
        pass
    assert t.tolist() == [1, 0, 0]
    with pytest.raises(mp.ProcessRaisedException, match="(?s)Process 1 terminated.*no number seven"):
        mp.start_processes(workers.fail, ("raise",), nprocs=2, start_method="fork")
    with pytest.raises(mp.ProcessExitedException, match="exit code 3") as error:
        mp.start_processes(workers.fail, ("exit",), nprocs=2, start_method="fork")
    assert error.value.exit_code == 3 and error.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="SIGKILL"):
        mp.start_processes(workers.fail, ("kill",), nprocs=2, start_method="fork")


def test_descriptors_stay_flat_over_100_000_tensors(worker):
    tensors = [tg.full((2,), i) for i in range(50_000)]
    before = len(os.listdir("/proc/self/fd"))
    worker.ask("keep", tensors[:1])
    mine = len(os.listdir("/proc/self/fd"))
    theirs = len(os.listdir(f"/proc/{worker.process.pid}/fd"))
    for first in range(0, 50_000, 10_000):
        worker.ask("keep", tensors[first:first + 10_000])
    more = [t.share_memory_() for t in (tg.full((2,), i) for i in range(50_000))]
    assert len(os.listdir("/proc/self/fd")) <= mine + 1 <= before + 8
    assert len(os.listdir(f"/proc/{worker.process.pid}/fd")) <= theirs + 1
    assert stats()["blocks"] >= 100_000
    assert more[-1][0].item() == 49_999


DAMAGED = int(os.environ.get("TAPEGRAD_TEST_DAMAGED", "10000"))  # handles per way; 100,000 by hand


def given_tensors():
    """Handles of blocks of several sizes, among free ones, with the sums of their bytes."""
    tensors = [tg.full((n,), 1, dtype=tg.uint8).share_memory_() for n in (1, 7, 64, 100, 4096, 5000, 100_000, 3 << 20) for _ in range(4)]
    del tensors[1::4]
    return tensors, [tg._C._shared_give(t) for t in tensors], [t.numel() for t in tensors]


def test_damaged_handles_are_refused(any_worker):
    tensors, handles, values = given_tensors()
    assert all(workers.seal(h) == h for h in handles)
    taken, whole = any_worker.ask("receive_damaged", (handles, values, DAMAGED, 1))
    assert not taken and whole
    any_worker.ask("pid", None)  # and it lives
    del tensors


def test_damaged_handles_are_refused_by_their_owner():
    tensors, handles, values = given_tensors()
    taken, whole = workers.receive_damaged((handles, values, DAMAGED, 2))
    assert not taken and whole
    del tensors


def test_the_low_byte_of_an_entry():
    """Handles of the next blocks of the owner, which is fresh: most of them were never used."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import tapegrad as tg
        t = tg.ones(4).share_memory_()
        handle = tg._C._shared_give(t)
        for low in range(256):
            damaged = handle[:16] + bytes([low]) + handle[17:]
            if damaged == handle:
                continue
            try:
                print(low, float(tg._C._tensor_over(tg._C._shared_receive(damaged), tg.float32, (4,), (1,), 0).sum()))
            except RuntimeError as error:
                assert "damaged handle" in str(error), error
        assert float(tg._C._tensor_over(tg._C._shared_receive(handle), tg.float32, (4,), (1,), 0).sum()) == 4
    """)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stdout, (done.returncode, done.stdout[:300], done.stderr[-2000:])


@pytest.mark.parametrize("channel", ["SimpleQueue", "Queue", "Pipe"])
@pytest.mark.parametrize("moment", ["before it reads", "while it holds"])
def test_a_killed_receiver_leaves_nothing(channel, moment):
    before = stats()
    context = mp.get_context("fork")
    for _ in range(3):
        if channel == "Pipe":
            reader, queue = context.Pipe(duplex=False)
            put = queue.send
        else:
            queue = getattr(context, channel)()
            put = queue.put
        target = workers.receive_slowly if moment == "while it holds" and channel != "Pipe" else time.sleep
        p = context.Process(target=target, args=(queue if target is workers.receive_slowly else 60,), daemon=True)
        p.start()
        for _ in range(4):
            put(tg.ones(200_000))
        if target is workers.receive_slowly:
            wait_for(lambda: stats()["tickets"] < before["tickets"] + 4)
        os.kill(p.pid, signal.SIGKILL)
        p.join(WAIT)
        if channel == "Pipe":
            reader.close()
            queue.close()
        elif channel == "Queue":
            queue.close()
            queue.join_thread()
        del queue, put, p
    wait_for(lambda: stats()["blocks"] == before["blocks"])
    after = stats()
    assert after["tickets"] == before["tickets"]
    assert after["allocated_bytes"] <= before["allocated_bytes"]
    assert not [line for line in Path("/proc/net/unix").read_text().split() if line.startswith("/") and "tapegrad" in line]


def shared_files():
    """The names in /dev/shm, but for those that tests beside this one have for a moment: Python's semaphores and temporary files."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("sem.", "tmp"))}


def test_a_killed_sender_leaves_nothing_and_its_data_lives_on():
    context = mp.get_context("fork")
    files = shared_files()
    before = stats()
    held = []
    for i in range(4):
        queue = context.SimpleQueue()
        p = context.Process(target=workers.send_and_wait, args=(queue, 3_000_000, 2), daemon=True)
        p.start()
        assert queue._reader.poll(WAIT)
        got = queue.get()
        os.kill(p.pid, signal.SIGKILL)
        p.join(WAIT)
        assert got.sum().item() == 0 and got.numel() == 3_000_000
        got[0] = 1  # still ours to write
        if i == 0:
            held.append(got)
            assert Worker.ask  # (passing it on moves it to memory of our own)
            with Worker() as w:
                assert w.ask("sum", got) == 1
        elif i == 1 and queue._reader.poll(1):
            with pytest.raises(RuntimeError, match="stale|has ended"):  # sent, but the owner died with it
                queue._reader.recv()
                raise RuntimeError("stale: the second was received, as its arena was known")
        del got, queue
    gc.collect()
    tg._C._shared_collect()
    after = stats()
    assert after["owners"] <= before["owners"] + 1
    del held
    assert shared_files() <= files


def test_arguments_of_a_process_that_dies_are_taken_back():
    before = stats()
    context = mp.get_context("spawn")
    p = context.Process(target=workers.fill, args=(0, tg.zeros(3)), daemon=True)
    p.start()
    os.kill(p.pid, signal.SIGKILL)
    p.join(WAIT)
    del p
    wait_for(lambda: stats()["blocks"] == before["blocks"])


def test_children_end_with_their_parent():
    receiver, sender = mp.Pipe(duplex=False)
    # Not daemonic, so that it may have a child.
    p = mp.get_context("fork").Process(target=workers.orphan, args=(sender,))
    p.start()
    try:
        assert receiver.poll(WAIT)
        child = receiver.recv()
    finally:
        os.kill(p.pid, signal.SIGKILL)
        p.join(WAIT)

    def gone():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{child}/stat").read_text().split(") ")[1][0] in "ZX"
        return True

    wait_for(gone)


def test_few_descriptors():
    receiver, sender = mp.Pipe(duplex=False)
    p = mp.get_context("fork").Process(target=workers.use_up_descriptors, args=(sender,), daemon=True)
    p.start()
    assert receiver.poll(WAIT)
    messages = receiver.recv()
    p.join(WAIT)
    assert messages[:2] == [10, 5]
    assert "no file descriptor left: the limit is 64" in messages[2]
    assert messages[3] == 32 << 20
    assert p.exitcode == 0


PROGRAM = """
    import sys, tapegrad as tg
    {before}
    try:
        for i in range(40):
            kept = globals().setdefault("kept", [])
            kept.append(tg.ones(1 << 20).share_memory_())
    except tg.OutOfMemoryError as error:
        print(len(kept), error)
    kept.pop()
    print(tg.full((1 << 18,), 2.0).share_memory_().sum().item())
"""


def test_full_folder_is_an_error_and_never_a_signal():
    program = textwrap.dedent(PROGRAM.format(before=""))
    command = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=20m tmpfs "$0" && TAPEGRAD_SHARED_DIR="$0" exec "$@"', "/mnt",
               sys.executable, "-c", program]
    probe = subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this machine lets no user mount a file system of his own")
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    kept, rest = done.stdout.split(" ", 1)
    assert 2 <= int(kept) <= 4
    assert "cannot allocate 4.00 MiB" in rest and "/mnt is full" in rest
    assert "524288.0" in rest


LIMITED = """
    import tapegrad as tg
    kept = []
    try:
        while len(kept) < 100:
            kept.append(tg.ones(1 << 22).share_memory_())
    except tg.OutOfMemoryError as error:
        print(len(kept), str(error).splitlines()[0])
    kept.pop()
    print(tg.full((1 << 20,), 2.0).share_memory_().sum().item())
    del kept
    tg._C._shared_collect()
    try:
        tg.ones(1 << 28)  # a gigabyte of memory of its own
    except tg.OutOfMemoryError as error:
        print("refused")
"""


@contextlib.contextmanager
def memory_group(nbytes):
    """A control group below the one of this process whose members have so many bytes; skips where none can be made."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("memory", ""):
            root = Path("/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup") / path.lstrip("/")
            group, limit = root / f"tapegrad-test-{os.getpid()}", "memory.limit_in_bytes" if controllers else "memory.max"
            try:
                group.mkdir()
            except OSError:
                continue
            try:
                (group / limit).write_text(str(nbytes))
                yield group
                return
            except OSError:
                continue  # the kind of group that has no limit for memory here
            finally:
                wait_for(lambda: not (group / "cgroup.procs").read_text().strip())
                group.rmdir()
    pytest.skip("this machine lets a process make no control group with a limit of memory")


def test_a_control_group_is_a_limit_and_nobody_is_killed():
    """A real one: what its members share and take is refused before the system would end them."""
    with memory_group(600 << 20) as group:
        done = subprocess.run(["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", sys.executable, "-c", textwrap.dedent(LIMITED)],
                              capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, (done.returncode, done.stderr)
    shared, after, private = done.stdout.strip().splitlines()
    count, message = shared.split(" ", 1)
    assert 5 <= int(count) < 38
    assert "16.00 MiB" in message and "available" in message
    assert after == str(2.0 * (1 << 20))
    assert private == "refused"


def test_hogwild():
    from tapegrad.datasets import MNIST

    images, y = MNIST(train=False).tensors()
    x = images.reshape(len(images), -1)[:4000].clone()
    y = y[:4000].clone()
    model = workers.Digits()
    model.share_memory()
    before = [p.detach().clone() for p in model.parameters()]
    first = nn.functional.cross_entropy(model(x), y).item()
    mp.start_processes(workers.train, (model, x, y, 250), nprocs=2, start_method="fork")
    assert not any(tg.equal(a, p) for a, p in zip(before, model.parameters(), strict=True))
    assert nn.functional.cross_entropy(model(x), y).item() < first / 3
    assert (model(x).argmax(1) == y).float().mean().item() > 0.85


def test_no_process_at_all():
    """What a script that starts one process per GPU asks for where there is none."""
    assert tg.multiprocessing.spawn(print, (), nprocs=0) is None
    context = tg.multiprocessing.start_processes(print, (), nprocs=0, join=False)
    assert context.join() is True and context.pids() == []
