"""Calls: what travels, what is raised, how long they take, who runs them."""

import collections
import enum
import functools
import sys
import threading
import time

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.rpc import workers as w
from distributed.rpc.workers import run_workers, working
from tapegrad import nn
from tapegrad.distributed import rpc
from tapegrad.distributed.rpc._values import find
from threads import run_all

Point = collections.namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Plain:
    """A class that is not on the allow list."""


@pytest.fixture
def alone(tmp_path):
    """A world of one worker, which calls itself: values are copied as on the way to others."""
    with working(0, 1, str(tmp_path / "store"), num_worker_threads=2):
        yield


def call(function, *args, **kwargs):
    return rpc.rpc_sync("w0", function, args=args, kwargs=kwargs)


VALUES = [None, True, 3, -1.5, float("inf"), 2 + 1j, "täxt", b"bytes", bytes(10000), bytearray(5000), [], (), {}, [1, (2, {"a": [3]})],
          {1: "a", (2, 3): None}, {1, 2}, slice(1, None, 2), range(3), Point(1, [2]), Colour.RED, tg.float16, tg.device("cpu"), tg.Size([1, 2]),
          w.add, w.Counter, w.Counter.called_alive, tg.Tensor.add, tg.add, nn.functional.relu, np.float32(2), np.dtype("f4"), functools.partial(w.add, 1, c=2)]


def test_values_come_as_they_went(alone):
    for value in VALUES:
        got = call(w.echo, value)
        if isinstance(value, functools.partial):
            assert (got.func, got.args, got.keywords) == (value.func, value.args, value.keywords)
        else:
            assert got == value and type(got) is type(value), value
    assert call(w.add, 1, 2, c=3) == 6
    info = call(w.echo, rpc.get_worker_info())
    assert info == rpc.get_worker_info("w0") and repr(info) == "WorkerInfo(id=0, name=w0)" and hash(info) == hash(rpc.get_worker_info())
    assert call(tg.add, tg.ones(2), 1).tolist() == [2, 2]
    assert type(call(tg.max, tg.eye(2), 0)) is type(tg.max(tg.eye(2), 0)) and call(tg.max, tg.eye(2), 0).values.tolist() == [1, 1]
    assert call("x".join, ["a", "b"]) == "axb"


@pytest.mark.parametrize("t", [
    tg.arange(6.0).reshape(2, 3), tg.arange(6.0).reshape(2, 3).t(), tg.tensor(3), tg.empty(0, 4), tg.ones(3, dtype=tg.bfloat16),
    tg.tensor([1 + 2j, 3j]).conj(), tg.tensor([True, False]), tg.eye(3).to_sparse(), tg.empty(2, 3, device="meta"),
    tg.ones(2, requires_grad=True), nn.Parameter(tg.ones(2)), tg.arange(20.0)[3::4], np.arange(300).reshape(3, 100).T, np.array(["a", "bc"]),
    np.ones((2, 2), np.float16)], ids=lambda t: f"{type(t).__name__}-{t.dtype}-{tuple(t.shape)}")
def test_tensors_come_as_they_went(alone, t):
    got = call(w.echo, t)
    assert type(got) is type(t) and got.shape == t.shape and got.dtype == t.dtype
    if isinstance(t, np.ndarray):
        assert (got == t).all() and got.flags.writeable
        return
    assert got.requires_grad == t.requires_grad and got.device == t.device and got.is_sparse == t.is_sparse
    if not t.is_meta:
        assert bool((got.to_dense() == t.to_dense()).all())
        assert t.numel() == 0 or t.is_sparse or got.data_ptr() != t.data_ptr()


def test_one_tensor_twice_is_one_tensor(alone):
    t = tg.ones(3)
    a, (b, c) = call(w.echo, (t, [t, t[:2]]))
    assert a is b and a.equal(t) and c.equal(t[:2])
    module = call(w.echo, nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert isinstance(module[0], nn.Linear) and isinstance(module[0].weight, nn.Parameter) and set(module.state_dict()) >= {"1.running_mean"}


def test_what_cannot_travel_is_refused(alone):
    with pytest.raises(TypeError, match="functions and classes travel by name"):
        call(lambda: 1)
    with pytest.raises(TypeError, match=r"(?s)rpc: cannot send an object of class .*Plain as plain data.*allow_pickle\(True\)"):
        call(w.echo, [tg.ones(2), Plain()])
    with pytest.raises(ValueError, match="a container holds itself"):
        loop: list = []
        loop.append(loop)
        call(w.echo, loop)
    with pytest.raises(TypeError, match="NumPy array of dtype object"):
        call(w.echo, np.array([None]))
    with pytest.raises(AttributeError, match=r"travel by name: they have to be there on caller and callee"):
        from tapegrad.distributed.rpc._values import find

        find(__name__, "nothing_here")
    dist.allow_pickle(True)
    try:
        assert type(call(w.echo, [Plain(), tg.ones(1)])[0]) is Plain
    finally:
        dist.allow_pickle(False)


def test_a_pickle_is_not_read_unless_allowed(alone):
    from tapegrad.distributed.distributed_c10d import _objects
    from tapegrad.distributed.rpc._values import Reader, Writer

    agent = rpc._get_current_rpc_agent()
    dist.allow_pickle(True)
    try:
        tree = Writer(agent, 0, True).encode(Plain())
    finally:
        dist.allow_pickle(False)
    with pytest.raises(TypeError, match="does not read pickles"):
        Reader(agent, 0, []).decode(tree)
    assert not _objects._allowed


def test_exceptions_come_with_the_traceback_from_there(alone):
    with pytest.raises(ValueError, match=r"(?s)^On WorkerInfo\(id=0, name=w0\):\nValueError\('no'\)\nTraceback .*workers.py.*in fails"):
        call(w.fails, "no")
    with pytest.raises(RuntimeError, match="(?s)SystemExit"):
        call(w.exits)
    with pytest.raises(RuntimeError, match="(?s)Failed to create original exception type.*UnicodeDecodeError"):
        call(bytes.decode, b"\xff")
    with pytest.raises(TypeError, match=r"fails\(\) missing"):
        call(w.fails)
    with pytest.raises(TypeError, match="(?s)On WorkerInfo.*cannot send an object of class .*lock"):
        call(threading.Lock)
    assert call(w.where) == "w0"  # the worker goes on


def test_the_wrong_arguments(alone, tmp_path):
    with pytest.raises(RuntimeError, match="could not find destination name nobody"):
        rpc.rpc_sync("nobody", w.where)
    with pytest.raises(RuntimeError, match="could not find destination id 7"):
        rpc.rpc_sync(7, w.where)
    with pytest.raises(ValueError, match="Cannot get WorkerInfo from name 1.5"):
        rpc.rpc_sync(1.5, w.where)
    with pytest.raises(RuntimeError, match="RPC is already initialized"):
        rpc.init_rpc("w1", rank=0, world_size=1)
    for name in ("", "a b", "x" * 128, 3):
        with pytest.raises(ValueError, match="a worker's name has"):
            rpc.init_rpc(name, rank=0, world_size=1)
    with pytest.raises(TypeError, match="must be a member of BackendType"):
        rpc.init_rpc("a", backend="tensorpipe")
    with pytest.raises(TypeError, match="must be an instance of RpcBackendOptions"):
        rpc.init_rpc("a", rpc_backend_options={})
    with pytest.raises(ValueError, match="1-to-1"):
        rpc.TensorPipeRpcBackendOptions(device_maps={"a": {"cuda:0": "cuda:1", "cuda:1": "cuda:1"}})
    with pytest.raises(ValueError, match="must be positive"):
        rpc.TensorPipeRpcBackendOptions(num_worker_threads=0)


def test_without_a_worker():
    for f in (lambda: rpc.rpc_sync("a", print), lambda: rpc.RRef(1), rpc.shutdown, rpc.get_worker_info, lambda: dist.autograd.context().__enter__()):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            f()
    with pytest.raises(ValueError, match="rank parameter missing|RANK expected"):
        rpc.init_rpc("a")
    assert rpc.is_available() and not rpc._is_current_rpc_agent_set()


def test_calls_that_take_too_long_end(alone):
    since = time.monotonic()
    with pytest.raises(RuntimeError, match=r"RPC ran for more than set timeout \(100 ms\).*rpc_sync, w0"):
        rpc.rpc_sync("w0", w.waits, args=(0.4,), timeout=0.1)
    assert time.monotonic() - since < 0.35
    future = rpc.rpc_async("w0", w.waits, args=(0.3,), timeout=0.05)
    assert w.until(future.done, 0.25)
    with pytest.raises(RuntimeError, match="50 ms"):
        future.wait()
    rref = rpc.remote("w0", w.waits, args=(0.3,))
    with pytest.raises(RuntimeError, match="set timeout"):
        rref.to_here(timeout=0.05)
    assert rref.to_here() == 0.3 and rpc.rpc_sync("w0", w.waits, args=(0.05,), timeout=0) == 0.05


def test_functions_run_on_as_many_threads_as_there_may_be(alone):
    since = time.monotonic()
    futures = [rpc.rpc_async("w0", w.waits, args=(0.1,)) for _ in range(4)]  # two threads
    assert tg.futures.wait_all(futures) == [0.1] * 4 and 0.19 < time.monotonic() - since < 2
    results: list = []
    run_all([lambda i=i: results.extend(call(w.add, i, j) for j in range(20)) for i in range(8)])
    assert sorted(results) == sorted(i + j for i in range(8) for j in range(20))


def test_functions_that_give_futures(alone):
    assert call(w.later, 3, 0.02) == 3 and call(w.chained, "w0", 1, 2) == 4
    assert rpc.remote("w0", w.later, args=(5, 0.02)).to_here() == 5
    with pytest.raises(RuntimeError, match="must return a torch.futures.Future object, but got int"):
        call(w.at_once, 3)
    since = time.monotonic()  # they hold no thread: more of them than threads wait at once
    assert tg.futures.wait_all([rpc.rpc_async("w0", w.later, args=(i, 0.1)) for i in range(12)]) == list(range(12))
    assert time.monotonic() - since < 1
    done = tg.futures.Future()
    rpc.rpc_async("w0", w.later, args=(1, 0.01)).add_done_callback(lambda f: done.set_result(call(w.add, f.wait(), 1)))  # may call itself
    assert done.wait() == 2
    assert rpc.rpc_async("w0", w.add, args=(1, 1)).then(lambda f: f.wait() + 1).wait() == 3


def test_shutdown_with_a_limit(tmp_path):
    with pytest.raises(RuntimeError, match="shutdown: calls are still under way after 0.1 s"), working(0, 1, str(tmp_path / "store"), graceful=False):
        waiting = rpc.rpc_async("w0", w.waits, args=(0.5,))
        rpc.shutdown(timeout=0.1)
    with pytest.raises(RuntimeError, match="this worker has shut down"):
        waiting.wait()
    with working(0, 1, str(tmp_path / "again")):
        done = rpc.rpc_async("w0", w.waits, args=(0.1,))
    assert done.done() and done.wait() == 0.1  # shutdown has waited for it


def test_functions_of_a_module_that_another_thread_is_importing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_slowly.py").write_text("import time\ntime.sleep(0.3)\ndef f(): pass\n")
    thread = threading.Thread(target=find, args=("imported_slowly", "f"))
    thread.start()
    while "imported_slowly" not in sys.modules:
        time.sleep(0.001)
    assert find("imported_slowly", "f").__name__ == "f"
    thread.join()


def scenario_between_workers():
    assert rpc.rpc_sync("w1", w.where) == "w1" and rpc.rpc_sync(2, w.where) == "w2"
    assert rpc.rpc_sync(rpc.get_worker_info("w1"), w.through, args=(["w2", "w0", "w1", "w0"], [1])) == ("w0", [1])
    big = tg.arange(3_000_000)
    both = [rpc.rpc_async(to, w.echo, args=(big,)) for to in ("w1", "w2", "w1", "w2")]  # much both ways at once
    assert all(f.wait().equal(big) for f in both)
    many = [tg.full((i % 7,), float(i)) for i in range(1500)]
    assert all(a.equal(b) for a, b in zip(rpc.rpc_sync("w1", w.echo, args=(many,)), many, strict=True))
    with rpc._wait_all():
        futures = [rpc.rpc_async("w1", w.waits, args=(0.05,)) for _ in range(3)]
    assert all(f.done() for f in futures)
    gathered = [rpc.rpc_async(f"w{r}", rpc._all_gather, args=(r,)) for r in (1, 2)]
    assert rpc._all_gather(0) == {"w0": 0, "w1": 1, "w2": 2} == gathered[0].wait()
    rpc.rpc_async("w1", w.through, args=(["w2", "w1", "w2"], 1))  # shutdown waits for it
    rpc.rpc_async("w2", w.waits, args=(0.1,))


def test_between_workers(tmp_path):
    run_workers(3, scenario_between_workers, tmp_path)
