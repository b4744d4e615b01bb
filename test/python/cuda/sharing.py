"""What test_processes.py runs, each function in a process of its own with simulated devices: `python sharing.py NAME`."""

import os
import signal
import sys
import time
from pathlib import Path

import tapegrad as tg
import tapegrad.cuda as cuda
import tapegrad.multiprocessing as mp
from pytest import raises
from tapegrad import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "multiprocessing"))
from workers import Child, seal  # noqa: E402


def in_use(device=0):
    return cuda.memory_allocated(device)


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def work(inbox, outbox):
    """Applies each function it is sent to what comes with it; the last result is kept until the next one."""
    while (task := inbox.get()) is not None:
        function, args = task
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001
            result = f"{type(error).__name__}: {error}"
        del task, args
        outbox.put(result)


class Peer(Child):
    def __init__(self):
        context = mp.get_context("spawn")
        self.inbox, self.outbox = context.Queue(), context.Queue()
        self.process = context.Process(target=work, args=(self.inbox, self.outbox))
        self.process.start()

    def send(self, function, *args):
        self.inbox.put((function, args))

    def call(self, function, *args):
        self.send(function, *args)
        return self.outbox.get(timeout=60)


KEPT = []


def describe(a, b, p):
    return (list(a.shape), a.stride(), str(a.dtype), str(a.device), a.cpu().tolist(), a._storage_id() == b._storage_id(),
            type(p).__name__, p.requires_grad, p.is_leaf, a.is_shared())


def add_one(t):
    with tg.no_grad():
        t.add_(1)
    cuda.synchronize()


def keep(t):
    KEPT.append(t)


def kept_sum():
    return KEPT[-1].sum().item()


def drop():
    KEPT.clear()


def same(t):
    return t


def kept():
    return KEPT[-1]


def sum_on_a_stream(t):
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())  # which received it
    with cuda.stream(stream):
        return t.sum().item()


def step(model, x, y):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    with tg.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    cuda.synchronize()
    return loss.item()


# --- the tests ---


def values():
    """Views, dtypes, devices, ties and classes arrive; both sides see one memory."""
    with Peer() as peer:
        for dtype in (tg.float32, tg.bfloat16, tg.int64, tg.bool, tg.complex64):
            base = tg.arange(12).to(dtype).cuda()
            view = base.view(3, 4).t()[1:]
            p = nn.Parameter(tg.ones(2, device="cuda:1"))
            expected = ([3, 3], (1, 4), str(dtype), "cuda:0", view.cpu().tolist(), True, "Parameter", True, True, True)
            assert peer.call(describe, view, base, p) == expected
            assert view._storage_id() == base._storage_id()
        x = tg.zeros(1000, device="cuda:1")
        y = x[10:]
        for n in range(3):  # both write, one after the other
            peer.call(add_one, x)
            y += 1
            assert y.sum().item() == 990 * 2 * (n + 1) and x[:10].sum().item() == 10 * (n + 1)
        assert peer.call(describe, tg.empty(0, 3, device="cuda"), tg.empty(0, device="cuda"), p)[0] == [0, 3]
        big = tg.arange(5_000_000, dtype=tg.float32, device="cuda")  # a segment of its own
        assert peer.call(sum_on_a_stream, big) == big.sum().item()
        storage = tg.arange(8, device="cuda").untyped_storage()
        assert storage.is_shared()
        assert peer.call(bytes_of, storage) == storage.tolist()
        s = tg.sparse_coo_tensor([[4, 1, 4]], [1.0, 2.0, 3.0], (5,), device="cuda:1")  # its two parts travel
        assert peer.call(parts_of, s) == (str(s.device), s._indices().tolist(), s._values().tolist(), True)


def parts_of(s):
    return str(s.device), s._indices().tolist(), s._values().tolist(), s.is_sparse


def bytes_of(storage):
    return storage.tolist()


def order():
    """The receiver's stream goes on behind the sender's work, which nobody here waits for."""
    with Peer() as peer:
        x = tg.zeros(50_000, device="cuda")
        for n in range(1, 21):
            side = cuda.Stream() if n % 2 else cuda.default_stream()
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):
                x.fill_(n)
                peer.send(sum_on_a_stream if n % 3 else total, x)
            assert peer.outbox.get(timeout=60) == n * 50_000
            cuda.current_stream().wait_stream(side)


def total(t):
    return t.sum().item()


def ownership():
    """The sender's memory stays until all have let go, and goes then."""
    with Peer() as peer, Peer() as other:
        before = in_use()
        x = tg.full((300_000,), 2.0, device="cuda")
        size = in_use() - before
        peer.call(keep, x)
        assert in_use() - before == size  # it moved: there is one copy
        other.call(keep, x)
        del x
        cuda.ipc_collect()
        assert in_use() - before == size
        again = [tg.full((300_000,), 7.0, device="cuda") for _ in range(3)]  # does not take the memory
        assert peer.call(kept_sum) == other.call(kept_sum) == 600_000
        del again
        peer.call(drop)
        cuda.ipc_collect()
        assert in_use() - before == size
        back = other.call(kept)  # our own memory comes back
        assert back.sum().item() == 600_000
        assert peer.call(total, back) == 600_000
        other.call(drop)
        del back
        until(lambda: (cuda.ipc_collect(), in_use())[1] == before)
        # From a receiver to a third process, behind the receiver's work.
        y = tg.ones(1000, device="cuda")
        peer.call(keep, y)
        passed = peer.call(add_and_give)
        assert passed.data_ptr() == y.data_ptr() and passed.sum().item() == 2000
        for p in (peer, other):
            p.call(drop)


def add_and_give():
    KEPT[-1].add_(1)
    return KEPT[-1]


def memory_returns():
    """A sender that is short of memory gets back what others have let go."""
    with Peer() as peer:
        for n in range(6):
            assert peer.call(total, tg.full((10 << 18,), float(n), device="cuda")) == n * (10 << 18)  # 10 MiB of 32


def killed():
    """kill -9 of a receiver frees what it held and what was on its way to it."""
    for held in (True, False):
        with Peer() as peer:
            assert peer.call(os.getpid) == peer.process.pid
            before = in_use()
            if not held:
                os.kill(peer.process.pid, signal.SIGSTOP)
            for _ in range(5):
                (peer.call if held else peer.send)(keep, tg.ones(100_000, device="cuda"))
            cuda.ipc_collect()
            assert in_use() - before >= 5 * 400_000
            os.kill(peer.process.pid, signal.SIGKILL)
            peer.process.join()
            if not held:  # its queue may still be read by somebody: it goes with the queue
                peer.inbox.cancel_join_thread()
                peer.inbox.close()
                del peer.inbox
            until(lambda: (cuda.ipc_collect(), mp.shared_memory_stats(), in_use())[2] == before)


def owner_dies():
    """What a sender that has ended gave stays readable on a simulated device, and a handle of it is an error."""
    context = mp.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=give_two, args=(sender,))
    process.start()
    first = receiver.recv()
    assert first.sum().item() == 10
    assert receiver.poll(60)  # the second one is there before its sender dies
    process.kill()
    process.join()
    with raises((RuntimeError, EOFError), match="has ended"):
        receiver.recv()
    assert first.sum().item() == 10


def give_two(sender):
    for _ in range(2):
        sender.send(tg.ones(10, device="cuda"))
    time.sleep(60)


def module():
    """A whole module trains in another process, on the weights of this one."""
    tg.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).cuda()
    model.register_buffer("tied", model[0].weight.detach())
    assert model.share_memory() is model
    twin = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).cuda()
    twin.register_buffer("tied", twin[0].weight.detach())
    twin.load_state_dict(model.state_dict())
    x, y = tg.randn(16, 4, device="cuda"), tg.randn(16, 1, device="cuda")
    with Peer() as peer:
        for _ in range(3):
            loss = peer.call(step, model, x, y)
            assert loss == step(twin, x, y)
            for p in twin.parameters():
                p.grad = None
    for name, value in twin.state_dict().items():
        assert tg.equal(value, model.state_dict()[name]), name


def train(index, model, steps):
    for _ in range(steps):
        add_one(model.weight)


def spawned():
    """Arguments of `spawn`; the processes write one after the other."""
    model = nn.Linear(3, 1).cuda()
    with tg.no_grad():
        model.weight.zero_()
    for _ in range(2):
        mp.spawn(train, (model, 5), nprocs=1)
    assert model.weight.cpu().tolist() == [[10.0, 10.0, 10.0]]


def mistakes():
    graph_input = tg.ones(8, device="cuda")
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        out = graph_input * 2
    with Peer() as peer:
        with raises(RuntimeError, match=r"memory of a CUDA graph(.|\n)*clone\(\)"):
            peer.call(total, out)
        w = tg.ones(2, device="cuda", requires_grad=True)
        with raises(RuntimeError, match="history"):
            peer.call(total, w * 2)
        handle = tg._C._shared_give(shared(tg.ones(4, device="cuda")))
        assert len(handle) == 192
        for wrong in (handle[:-1], handle[:64], b"x" * 192, handle[:6] + b"\x09\x00" + handle[8:]):
            with raises(RuntimeError, match="handle|device"):
                tg._C._shared_receive(wrong)
        assert "cuda:9" in peer.call(receive, seal(handle[:6] + b"\x09\x00" + handle[8:]))
        tg._C._shared_take_back(handle)
        assert "stale" in peer.call(receive, handle)


def receive(handle):
    return tg._C._shared_receive(handle).tolist()


def shared(tensor):
    from tapegrad._tensor import _to_shared_memory

    return _to_shared_memory(tensor)


def many():
    """Descriptors and memory stay flat."""
    with Peer() as peer:
        peer.call(total, tg.ones(3, device="cuda"))
        before, files = in_use(), len(os.listdir("/proc/self/fd"))
        sent = [tg.full((10,), float(i), device="cuda") for i in range(1200)]  # more than there are events
        assert peer.call(total_of, sent) == 10 * sum(range(1200))
        for i in range(300):
            assert peer.call(total, tg.full((10,), float(i), device="cuda")) == 10 * i
        assert len(os.listdir("/proc/self/fd")) <= files + 2
        del sent
        until(lambda: (cuda.ipc_collect(), in_use())[1] <= before + 512)


def total_of(tensors):
    return sum(t.sum().item() for t in tensors)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done")
