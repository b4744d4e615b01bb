"""record.feeder: the batches of a plain loop, ahead of it, and a clean end however the loop ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
import tapegrad as tg
from tapegrad.record import feeder
from tapegrad.utils.data import DataLoader, Dataset, TensorDataset


def threads() -> int:
    return sum(t.name == "feeder" for t in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    assert threads() == 0


class Noisy(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return tg.rand(3), i


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_batches_and_random_numbers_are_those_of_a_plain_loop(depth):
    results = []
    for feed in (lambda loader: loader, lambda loader: feeder(loader, depth)):
        tg.manual_seed(3)
        loader = feed(DataLoader(Noisy(), batch_size=3, shuffle=True))
        results.append([t for _ in range(2) for x, i in loader for t in (x, i, tg.rand(2))])
    assert len(results[0]) == len(results[1]) == 24
    assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_it_runs_ahead_by_its_depth_and_no_further():
    made = []

    def loader():
        for i in range(10):
            made.append(i)
            yield i

    it = iter(feeder(loader(), 3))
    for taken in range(1, 8):
        assert next(it) == taken - 1
        deadline = time.monotonic() + 5
        while len(made) < taken + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        assert len(made) == taken + 3  # those that wait
    assert list(it) == [7, 8, 9] and list(it) == []


def test_steps_and_batches_overlap():
    def loader():
        for i in range(8):
            time.sleep(0.03)
            yield i

    def loop(batches):
        start = time.perf_counter()
        for _ in batches:
            time.sleep(0.03)
        return time.perf_counter() - start

    assert loop(feeder(loader())) < 0.75 * loop(loader())


def test_what_the_loader_raises():
    def loader():
        yield 1
        yield 2
        raise ValueError("broken file")  # here

    got = []
    with pytest.raises(ValueError, match="broken file") as caught:
        for x in feeder(loader(), 5):
            got.append(x)
    assert got == [1, 2]
    assert "raise ValueError" in "".join(traceback.format_tb(caught.tb)) and any("# here" in line for line in traceback.format_tb(caught.tb))

    def first():
        raise KeyError("none")
        yield

    with pytest.raises(KeyError):
        list(feeder(first()))
    for error in (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        def loader(error=error):
            yield 1
            raise error

        it = iter(feeder(loader()))
        assert next(it) == 1
        with pytest.raises(error):
            next(it)
        with pytest.raises(StopIteration):
            next(it)


@pytest.mark.parametrize("waits", [False, True])
def test_leaving_the_loop_ends_the_thread(waits):
    ended = []

    class Endless:
        def __iter__(self):
            try:
                i = 0
                while True:
                    i += 1
                    yield i
            finally:
                ended.append(1)

    for x in feeder(Endless()):
        if waits:
            time.sleep(0.01)
        if x == 3:
            break
    del x
    assert threads() == 0 and ended == [1]
    it = iter(feeder(Endless()))
    assert next(it) == 1
    it.close()
    assert threads() == 0 and ended == [1, 1]
    with pytest.raises(StopIteration):
        next(it)
    with pytest.raises(ZeroDivisionError):
        for _ in feeder(Endless()):
            1 / 0  # noqa: B018
    gc.collect()
    assert threads() == 0


def test_a_loader_that_is_a_generator_goes_on_after_the_loop():
    numbers = iter(range(10))
    generator = (n for n in numbers)
    for x in feeder(generator, 1):
        if x == 2:
            break
    rest = list(generator)
    assert rest[-1] == 9 and rest[0] in (3, 4, 5)  # the thread was ahead


def run(code: str, **options):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, **options)


def test_interrupted_loops():
    code = """
        import os, signal, threading, time
        import tapegrad as tg

        def loader():
            yield 0
            time.sleep(30)
            yield 1

        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            for x in tg.record.feeder(loader()):
                pass
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 3)
        os._exit(0)
    """
    done = run(code)
    assert done.stdout == "interrupted True\n", done


@pytest.mark.parametrize("loader", ["(i for i in range(10**9))", "slow()", "DataLoader(TensorDataset(tg.rand(1000, 3)), batch_size=2, num_workers=2)"])
def test_the_program_ends_in_the_middle(loader):
    done = run(f"""
        import time
        import tapegrad as tg
        from tapegrad.utils.data import DataLoader, TensorDataset

        def slow():
            yield 0
            time.sleep(20)
            yield 1

        it = iter(tg.record.feeder({loader}))
        next(it)
        print("end", flush=True)
    """)
    assert done.returncode == 0 and done.stdout == "end\n" and not done.stderr, done


def test_forked_children():
    it = iter(feeder(range(100)))
    assert next(it) == 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                next(it)
            except RuntimeError as error:
                fresh = list(feeder(range(5)))
                it.close()
                code = 0 if "this loop began in process" in str(error) and fresh == [0, 1, 2, 3, 4] else 2
        finally:
            os._exit(code)
    signal.alarm(30)
    assert os.waitpid(child, 0)[1] == 0
    signal.alarm(0)
    assert next(it) == 1
    it.close()


def test_shuffled():
    data = feeder(range(20), shuffle=6, seed=1)
    first, second = list(data), list(data)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second and first != list(range(20))
    assert all(entry <= place + 5 for place, entry in enumerate(first))  # none is there before it is in the buffer
    again = feeder(range(20), shuffle=6, seed=1)
    assert [list(again), list(again)] == [first, second] != [list(feeder(range(20), shuffle=6, seed=2)), second]
    assert sorted(feeder(range(3), shuffle=100)) == [0, 1, 2] and list(feeder([], shuffle=3)) == [] == list(feeder([]))


def test_padded_batches():
    batches = [(tg.ones(2, n, 3), tg.arange(2)) for n in (1, 4, 5)]
    got = list(feeder(batches, pad=([4, 8], None), value=-1))
    assert [x.shape[1] for (x, _), _ in got] == [4, 4, 8] and all(y.equal(tg.arange(2)) for (_, y), _ in got)
    for ((x, _), (lengths,)), n in zip(got, (1, 4, 5), strict=True):
        assert lengths.equal(tg.tensor([n, n])) and x[:, :n].equal(tg.ones(2, n, 3)) and (x[:, n:] == -1).all()
    for pad, text in [((3, None), "a sequence has 4 entries, and pad says at most 3"), ((4, 4, 4), "pad has 3 entries for a batch of 2 parts"),
                      (8, r"of shape \(2,\): sequences of a batch lie along dimension 1")]:
        with pytest.raises(ValueError, match=text):
            list(feeder(batches, pad=pad))


def test_samples_become_padded_batches():
    samples = [{"ids": tg.arange(n), "x": tg.rand(n, 2), "label": n} for n in (3, 1, 5, 2, 2)]
    pad = {"ids": [4, 6], "x": True}
    got = list(feeder(samples, batch=2, pad=pad))
    assert [b["ids"].shape for b, _ in got] == [(2, 4), (2, 6), (1, 4)] and [b["x"].shape for b, _ in got] == [(2, 3, 2), (2, 5, 2), (1, 2, 2)]
    assert got[0][0]["ids"].equal(tg.tensor([[0, 1, 2, 0], [0, 0, 0, 0]])) and got[0][0]["label"].equal(tg.tensor([3, 1]))
    assert [[length.tolist() for length in lengths] for _, lengths in got] == [[[3, 1], [3, 1]], [[5, 2], [5, 2]], [[2], [2]]]
    assert len(feeder(samples, batch=2)) == 3 and len(feeder(samples, batch=2, drop_last=True)) == 2 == len(list(feeder(samples, batch=2, pad=pad, drop_last=True)))
    plain = list(feeder([tg.ones(2), tg.zeros(2), tg.ones(2)], batch=2))
    assert plain[0].equal(tg.tensor([[1.0, 1], [0, 0]])) and plain[1].shape == (1, 2)
    with pytest.raises(ValueError, match="without dimensions"):
        list(feeder([tg.tensor(1.0)], batch=2, pad=4))


def test_steps_see_few_sizes():
    weight = tg.rand(3, 3)
    step = tg.record(lambda x, n: ((x @ weight).sum((1, 2)) / n,), fullgraph=True)
    ragged = [tg.rand(2, n, 3) for n in (3, 5, 2, 8, 7, 1, 4, 6, 2, 3)]
    for _ in range(3):
        for x, (n,) in feeder(ragged, pad=[4, 8]):
            step(x, n)
    assert len(step._replays.plans()) == 2 and step._replays.count >= 20


def test_arguments():
    for options, text in [({"depth": 0}, "depth an integer of at least 1: got 0"), ({"shuffle": -1}, "shuffle"), ({"batch": 0}, "batch"), ({"depth": True}, "depth"),
                          ({"pad": []}, "expected for pad"), ({"pad": [4, 2]}, "rising"), ({"pad": "x"}, "expected for pad"), ({"pad": [0]}, "expected for pad")]:
        with pytest.raises(ValueError, match=text):
            feeder([], **options)
    with pytest.raises(TypeError, match="not iterable"):
        feeder(3)
    assert len(feeder(DataLoader(TensorDataset(tg.rand(10, 2)), batch_size=4))) == 3
