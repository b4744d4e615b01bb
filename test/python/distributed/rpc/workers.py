"""Workers of the tests of remote calls: what they call on each other, and how they meet."""

import contextlib
import threading
import time

import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed import rpc


@contextlib.contextmanager
def working(rank: int, size: int, path: str, graceful: bool = True, **options):
    """A worker w<rank> within this; the end waits for all."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}", **{"rpc_timeout": 20, **options})
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    try:
        yield
    except BaseException:
        if rpc._is_current_rpc_agent_set():
            rpc.shutdown(graceful=False)
        raise
    rpc.shutdown(graceful=graceful)


def run_workers(size: int, function, tmp_path, *args, **options):
    """What function(*args) gives in worker 0; the others only serve."""
    code = function.__code__
    return results(run_ranks(size, _rank, str(tmp_path / "store"), code.co_filename, function.__qualname__, args, world=False,
                             **{"timeout": 40, **options}))[0]


def _rank(rank, size, path, file, name, args):
    from distributed.ranks import _find

    function = _find(file, name)  # on all: functions travel by name
    with working(rank, size, path):
        return function(*args) if rank == 0 else None


# What is called.
def echo(value):
    return value


def add(a, b, *, c=0):
    return a + b + c


def fails(text, kind=ValueError):
    raise kind(text)


def exits():
    raise SystemExit(3)


def waits(seconds):
    time.sleep(seconds)
    return seconds


def where():
    return rpc.get_worker_info().name


def through(names, value):
    """The value, by way of these workers."""
    return rpc.rpc_sync(names[0], through, args=(names[1:], value)) if names else (where(), value)


@rpc.functions.async_execution
def later(value, seconds=0.0):
    future = tg.futures.Future()
    threading.Timer(seconds, lambda: future.set_result(value)).start()
    return future


@rpc.functions.async_execution
def at_once(value):
    return value


@rpc.functions.async_execution
def chained(to, a, b):
    return rpc.rpc_async(to, add, args=(a, b)).then(lambda future: future.wait() + 1)


class Counter:
    """An object that calls change."""

    alive = 0

    def __init__(self, start=0):
        self.value = start
        Counter.alive += 1

    def __del__(self):
        Counter.alive -= 1

    def count(self, by=1):
        self.value += by
        return self.value

    @classmethod
    def called_alive(cls):
        return cls.alive

    @staticmethod
    @rpc.functions.async_execution
    def slowly(value):
        return later(value, 0.01)

    def raises(self):
        raise KeyError("no such thing")


def alive():
    return Counter.alive


def held():
    """How many values this worker holds for others."""
    return len(rpc._get_current_rpc_agent().rrefs.owned)


kept: list = []


def keep(rref):
    kept.append(rref)


def use_kept():
    return kept[-1].rpc_sync().count(0)


def drop_kept():
    kept.clear()


def local(rref):
    return rref.local_value().value


def contexts():
    return len(rpc._get_current_rpc_agent().contexts.all)


def until(condition, seconds: float = 5.0) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def net(sizes, seed):
    tg.manual_seed(seed)
    return nn.Sequential(*[layer for a, b in zip(sizes, sizes[1:], strict=False) for layer in (nn.Linear(a, b), nn.Tanh())]).double()


def parameter_rrefs(rref):
    return [rpc.RRef(p) for p in rref.local_value().parameters()]


def gradients(context_id, rref):
    found = dist.autograd.get_gradients(context_id)
    return [found.get(p) for p in rref.local_value().parameters()]
