"""References: what they lead to, and that their owner frees it with the last one."""

import gc
import pickle

import pytest
import tapegrad as tg
from distributed.rpc import workers as w
from distributed.rpc.workers import run_workers
from tapegrad.distributed import rpc


def freed(to="w1", count=0):
    return w.until(lambda: rpc.rpc_sync(to, w.alive) == count and rpc.rpc_sync(to, w.held) == 0)


def scenario_values():
    rref = rpc.remote("w1", w.Counter, args=(3,))
    assert not rref.is_owner() and rref.owner() == rpc.get_worker_info("w1") and rref.owner_name() == "w1"
    assert rref.rpc_sync().count(2) == 5 and rref.rpc_async().count().wait() == 6 and rref.remote().count().to_here() == 7
    assert rref.rpc_sync().slowly("a") == "a" and rref.rpc_sync().called_alive() == 1
    assert rpc.rpc_sync("w1", w.local, args=(rref,)) == 7 and w.until(rref.confirmed_by_owner)
    assert rref._get_type() is w.Counter and repr(rref).startswith("UserRRef(")
    with pytest.raises(RuntimeError, match="can't call localValue"):
        rref.local_value()
    with pytest.raises(KeyError, match="no such thing"):
        rref.rpc_sync().raises()
    with pytest.raises(AttributeError, match="nothing"):
        rref.rpc_sync().nothing()
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        pickle.dumps(rref)
    broken = rpc.remote("w1", w.fails, args=("no",))
    for f in (broken.to_here, broken.rpc_sync().anything, lambda: rpc.rpc_sync("w1", w.local, args=(broken,))):
        with pytest.raises(ValueError, match="no"):
            f()
    mine = rpc.RRef(w.Counter(1))
    assert mine.is_owner() and mine.confirmed_by_owner() and mine.local_value() is mine.to_here() and repr(mine).startswith("OwnerRRef(")
    assert mine.rpc_sync().count() == 2 == mine.local_value().value
    assert rpc.rpc_sync("w1", w.keep, args=(mine,)) is None and rpc.rpc_sync("w1", w.drop_kept) is None
    with pytest.raises(RuntimeError, match="needs a context"):
        rref.backward()
    x = tg.ones(2, requires_grad=True)
    rpc.RRef((x * 3).sum()).backward()
    assert x.grad.tolist() == [3, 3]
    assert rpc.RRef[int] is not None


def test_values(tmp_path):
    run_workers(2, scenario_values, tmp_path)


def scenario_lifetime():
    assert freed()
    rref = rpc.remote("w1", w.Counter)
    assert rref.rpc_sync().count() == 1 and rpc.rpc_sync("w1", w.alive) == 1
    del rref
    assert freed()
    # Passed on to a third worker, and let go here at once: it lives as long as that one keeps it.
    for _ in range(20):
        rref = rpc.remote("w1", w.Counter, args=(5,))
        passed = rpc.rpc_async("w2", w.keep, args=(rref,))
        del rref
        passed.wait()
    assert rpc.rpc_sync("w2", w.use_kept) == 5 and w.until(lambda: rpc.rpc_sync("w1", w.alive) == 20)
    rpc.rpc_sync("w2", w.drop_kept)
    assert freed()
    # Round about: back to its owner, and back here.
    rref = rpc.remote("w1", w.Counter, args=(7,))
    back = rpc.rpc_sync("w2", w.echo, args=(rref,))
    del rref
    owners = rpc.rpc_sync("w2", w.echo, args=([back, back],))
    assert rpc.rpc_sync("w1", w.local, args=(owners[1],)) == 7
    rpc.rpc_sync("w1", w.keep, args=(back,))
    del back, owners
    assert w.until(lambda: rpc.rpc_sync("w1", w.held) == 0) and rpc.rpc_sync("w1", w.alive) == 1
    rpc.rpc_sync("w1", w.drop_kept)
    assert freed()
    # One of this worker.
    mine = rpc.RRef(w.Counter(9))
    rpc.rpc_sync("w1", w.keep, args=(mine,))
    del mine
    gc.collect()
    assert w.held() == 1 and w.Counter.alive == 1
    rpc.rpc_sync("w1", w.drop_kept)
    assert w.until(lambda: w.held() == 0 and w.Counter.alive == 0)
    # A result that is not waited for, and one that comes too late.
    rpc.rpc_async("w1", make_reference)
    with pytest.raises(RuntimeError, match="set timeout"):
        rpc.rpc_sync("w1", make_reference, args=(0.2,), timeout=0.05)
    assert w.until(lambda: rpc.rpc_sync("w1", w.alive) == 0) and freed()
    # Arguments that cannot be sent leave nothing behind.
    rref = rpc.remote("w1", w.Counter)
    with pytest.raises(TypeError):
        rpc.rpc_sync("w2", w.echo, args=([rref, object()],))
    with pytest.raises(TypeError):
        rpc.rpc_sync("w2", w.echo, args=([rpc.RRef(1), object()],))
    assert w.held() == 0
    del rref
    assert freed()


def make_reference(seconds=0.0):
    w.waits(seconds)
    return rpc.RRef(w.Counter())


def test_the_owner_frees_with_the_last_reference(tmp_path):
    run_workers(3, scenario_lifetime, tmp_path)
