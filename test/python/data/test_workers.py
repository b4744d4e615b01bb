"""Workers of the DataLoader. Every wait has an end, and every child ends with its loader."""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tapegrad as tg
from pairs import class_or_error
from tapegrad.utils import data

sys.path.insert(0, str(Path(__file__).parent))
from loaded import Counting, Deadly, Faulty, Names, Noisy, Slow, Stream, init_worker, noisy_collate, where_it_is  # noqa: E402

KINDS = [{"num_workers": 1}, {"num_workers": 2}, {"num_workers": 3, "prefetch_factor": 5}, {"num_workers": 2, "worker_type": "thread"},
         {"num_workers": 2, "persistent_workers": True}]


def seeded(n=1):
    g = tg.Generator()
    g.manual_seed(n)
    return g


def plain(batch):
    return [plain(b) for b in batch] if isinstance(batch, list) else batch.tolist() if hasattr(batch, "tolist") else batch


def batches(dataset, epochs=2, **options):
    loader = data.DataLoader(dataset, batch_size=4, shuffle=True, generator=seeded(), **options)
    return [[plain(b) for b in loader] for _ in range(epochs)]


def children():
    mine = set()
    for p in Path("/proc").iterdir():
        try:
            fields = (p / "stat").read_text().rsplit(") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[1] == str(os.getpid()) and fields[0] not in "ZX":
            mine.add(int(p.name))
    return mine


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_samples_do_not_depend_on_the_workers(kind):
    want = batches(Noisy(22))
    assert want[0] != want[1]
    assert batches(Noisy(22), **kind) == want
    want = batches(Noisy(6), collate_fn=noisy_collate, epochs=1)
    assert batches(Noisy(6), collate_fn=noisy_collate, epochs=1, **kind) == want


def test_samples_do_not_depend_on_the_start_method():
    assert batches(Noisy(10), 1, num_workers=1, multiprocessing_context="spawn") == batches(Noisy(10), 1)


@pytest.mark.parametrize("kind", [{}, *KINDS], ids=str)
def test_the_programs_random_numbers_are_not_disturbed(kind):
    def draws(with_loader):
        tg.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        first = random.gauss(0, 1), np.random.randn()  # each keeps the other half of a pair
        if with_loader:
            list(data.DataLoader(Noisy(9), batch_size=2, generator=seeded(), **kind))
        return first, random.gauss(0, 1), np.random.randn(), random.random(), np.random.rand(), tg.rand(()).item()

    assert draws(True) == draws(False)


def test_keyed_generators_keep_no_half_pairs():
    class Odd(data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return [np.random.randn() for _ in range(i % 2 + 1)][0], [random.gauss(0, 1) for _ in range(i % 2 + 1)][0]

    def samples(order):
        return sorted((i, *(float(v[0]) for v in b)) for i, b in zip(order, data.DataLoader(Odd(), sampler=order, generator=seeded())))

    assert samples([0, 1, 2, 3, 4, 5]) == samples([5, 3, 4, 1, 0, 2])


@pytest.mark.parametrize("kind", [{}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}], ids=str)
def test_streams(kind):
    n = max(1, kind.get("num_workers", 0))
    got = [b.tolist() for b in data.DataLoader(Stream(11), batch_size=3, **kind)]
    assert sorted(sum(got, [])) == list(range(11))
    assert max(len(b) for b in got) == 3
    if n == 2:  # each worker streams its half, in turns
        assert got == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9]]
        kept = data.DataLoader(Stream(11), batch_size=3, persistent_workers=True, **kind)
        assert [b.tolist() for b in kept] == got == [b.tolist() for b in kept]


def test_who_the_worker_is():
    assert data.get_worker_info() is None
    for kind in ("process", "thread"):
        loader = data.DataLoader(Counting(8), num_workers=2, worker_init_fn=init_worker, worker_type=kind, batch_size=2)
        got = [plain(b) for b in loader]
        assert [b[1] for b in got] == [[0, 0], [1, 1], [0, 0], [1, 1]]
        assert got[0][2] == [2, 2]
        assert got[1][3] == [101, 101]  # set by worker_init_fn
        if kind == "process":
            assert got[0][4] == [1, 1]  # thread
            assert got[0][5] != got[1][5]
            assert str(os.getpid()) not in map(str, got[0][5])
        assert data.get_worker_info() is None


def test_tensors_come_as_shared_memory_and_memory_does_not_grow():
    x = tg.randn(3000, 1000)
    dataset = data.TensorDataset(x, tg.arange(3000))
    before = tg.multiprocessing.shared_memory_stats()
    descriptors = len(os.listdir("/proc/self/fd"))
    loader = data.DataLoader(dataset, batch_size=100, num_workers=2, persistent_workers=True)
    for _ in range(4):
        seen = 0
        for images, labels in loader:
            assert images.is_shared()
            assert tg.equal(images, x[labels])
            seen += len(labels)
        assert seen == 3000
    del images, labels
    gc.collect()
    stats = tg.multiprocessing.shared_memory_stats()
    assert stats["received"] == before["received"]
    assert stats["mapped_arenas"] - before["mapped_arenas"] <= 4
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 * 5
    kept = list(loader)  # holding everything is allowed
    assert sum(len(b[1]) for b in kept) == 3000
    del loader
    gc.collect()
    assert tg.equal(kept[0][0], x[:100])  # lives on when the workers have gone


def test_order():
    loader = data.DataLoader(Slow([0.4, 0, 0, 0]), num_workers=2, in_order=False, batch_size=None)
    assert sorted(got := list(loader)) == [0, 1, 2, 3]
    assert got[0] != 0
    assert list(data.DataLoader(Slow([0.2, 0, 0, 0]), num_workers=2, batch_size=None)) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [{"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}], ids=str)
def test_exceptions_bring_their_traceback_and_the_sample(kind):
    loader = data.DataLoader(Faulty(8, ValueError("no seven")), batch_size=2, **kind)
    with pytest.raises(ValueError, match="(?s)Caught ValueError in DataLoader worker .* 1, sample 7.*__getitem__.*no seven"):
        list(loader)
    with pytest.raises(KeyError, match="(?s)sample 7.*'seven'"):
        list(data.DataLoader(Faulty(8, KeyError("seven")), batch_size=2, **kind))
    loader = iter(data.DataLoader(Faulty(12, ValueError("no seven")), batch_size=2, **kind))
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append(next(loader).tolist())
        except ValueError:
            outcomes.append("error")
    assert outcomes == [[0, 1], [2, 3], [4, 5], "error", [8, 9], [10, 11]]  # the pass goes on

    def broken(i):
        raise OSError("no such worker")

    with pytest.raises(OSError, match="no such worker"):
        list(data.DataLoader(Noisy(4), worker_init_fn=broken, **kind))


def frozen(array):
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("sample", [
    lambda i: np.full((3, 40), i, np.float32), lambda i: np.full((50, 60), i).T, lambda i: frozen(np.full(1000, i, np.int16)),
    lambda i: np.full(1000, i, np.float16), lambda i: np.full(1000, i % 2, bool), lambda i: np.full(1000, i, np.complex64),
], ids=["rows", "turned", "frozen", "half", "bool", "complex"])
@pytest.mark.filterwarnings("error")
def test_arrays_are_stacked_where_they_go(sample):
    samples = [sample(i) for i in range(24)]
    got = list(data.DataLoader(samples, batch_size=12, num_workers=1, collate_fn=where_it_is))
    assert [shared for _, shared in got] == [True, True]
    for k, (batch, _) in enumerate(got):
        want = np.stack(samples[12 * k:12 * k + 12])
        assert batch.numpy().dtype == want.dtype
        assert np.array_equal(batch.numpy(), want)


def test_arrays_that_do_not_fit_together():
    mixed = [np.full(1000, i, np.float32 if i % 2 else np.float64) for i in range(8)]
    (got,) = data.DataLoader(mixed, batch_size=8, num_workers=1)
    assert got.dtype == tg.float64
    assert got[:, 0].tolist() == list(range(8))
    with pytest.raises(ValueError, match="same shape"):
        list(data.DataLoader([np.zeros(1000), np.zeros(2000)], batch_size=2, num_workers=1))


def test_a_note_says_which_sample_failed_here():
    with pytest.raises(ValueError, match="no seven") as error:
        list(data.DataLoader(Faulty(8, ValueError("no seven")), batch_size=2))
    if sys.version_info >= (3, 11):
        assert "sample 7" in error.value.__notes__[0]


def test_timeout_and_death():
    loader = data.DataLoader(Slow([0, 30]), num_workers=2, timeout=0.3, batch_size=None)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.3 seconds"):
        list(loader)
    with pytest.raises(RuntimeError, match="(?s)DataLoader worker .pid [0-9]+. is killed by signal: 9: worker .* exited unexpectedly"):
        list(data.DataLoader(Deadly(8), num_workers=2))
    gc.collect()
    assert time.monotonic() - begin < 25  # not the 30 s that the sample takes


def test_workers_end_when_the_pass_is_left():
    before = children()
    iterator = iter(data.DataLoader(Noisy(1000), num_workers=2))
    next(iterator)
    assert len(children() - before) == 2
    del iterator
    gc.collect()
    assert children() - before == set()
    kept = data.DataLoader(Noisy(1000), num_workers=2, persistent_workers=True, generator=seeded())
    for _ in zip(range(3), kept):  # left early
        pass
    assert len(children() - before) == 2
    assert len(list(kept)) == 1000
    assert len(children() - before) == 2
    del kept
    gc.collect()
    assert children() - before == set()


@pytest.mark.parametrize("end", [lambda loader, pass_: pass_._shutdown_workers(), lambda loader, pass_: setattr(loader, "_iterator", None)])
def test_kept_workers_end_when_asked_and_others_start(end):
    loader = data.DataLoader(list(range(6)), num_workers=2, persistent_workers=True)
    assert loader._iterator is None
    pass_ = iter(loader)
    assert loader._iterator is pass_ and next(pass_) == 0
    workers = loader._workers.processes
    end(loader, pass_)
    assert loader._iterator is None and not any(w.is_alive() for w in workers)
    assert [int(x) for x in loader] == list(range(6)) and all(w.is_alive() for w in loader._workers.processes)
    with pytest.raises(ValueError, match="_iterator can be set to None only"):
        loader._iterator = pass_
    assert data.DataLoader([1])._iterator is None


def test_a_subclass_for_pytorch_changes_the_sampler():
    class Repeats(data.DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._DataLoader__initialized = False
            self.batch_sampler = [*self.batch_sampler] * 2
            self._DataLoader__initialized = True

    loader = Repeats(list(range(4)), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]] * 2
    with pytest.raises(ValueError, match="batch_sampler attribute should not be set after Repeats is initialized"):
        loader.batch_sampler = []


def test_large_index_lists_and_large_messages():
    class Texts(data.Dataset):
        def __len__(self):
            return 60_000

        def __getitem__(self, i):
            return "x" * 50 + str(i)

    got = list(data.DataLoader(Texts(), batch_size=20_000, num_workers=1, prefetch_factor=3))
    assert [len(b) for b in got] == [20_000] * 3
    assert got[2][-1].endswith("59999")


def test_unpicklable_batches_are_an_error():
    loader = data.DataLoader(Noisy(4), num_workers=1, collate_fn=lambda samples: threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        list(loader)


# ---- position


@pytest.mark.parametrize("kind", [{}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}], ids=str)
@pytest.mark.parametrize("given", [False, True])
def test_the_position_can_be_saved(kind, given, tmp_path):
    def loader():
        return data.DataLoader(Noisy(20), batch_size=3, shuffle=True, generator=seeded() if given else None, **kind)

    tg.manual_seed(5)
    whole = loader()
    first = iter(whole)
    head = [plain(next(first)) for _ in range(3)]
    between = tg.rand(2).tolist()
    tg.save({"loader": whole.state_dict(), "rng": tg.get_rng_state(), "given": whole.generator and whole.generator.get_state()},
            tmp_path / "x")
    rest = [plain(b) for b in first]
    after = tg.rand(2).tolist(), [plain(b) for b in whole]

    tg.manual_seed(99)
    saved = tg.load(tmp_path / "x")
    tg.set_rng_state(saved["rng"])
    again = loader()
    if given:
        again.generator.set_state(saved["given"])
    again.load_state_dict(saved["loader"])
    assert again.state_dict()["batches"] == 3
    assert [plain(b) for b in again] == rest
    assert (tg.rand(2).tolist(), [plain(b) for b in again]) == after
    assert len(head) == 3 and between
    assert again.state_dict() == {"batches": 0}


def test_the_position_in_a_stream():
    loader = data.DataLoader(Stream(20), batch_size=3, num_workers=2)
    it = iter(loader)
    for _ in range(3):
        next(it)
    state = loader.state_dict()
    rest = [b.tolist() for b in it]
    again = data.DataLoader(Stream(20), batch_size=3, num_workers=2)
    again.load_state_dict(state)
    assert [b.tolist() for b in again] == rest
    for damaged in ({"epoch": 3}, {"batches": -1}, {"batches": "x"}, {"batches": 2}, {"batches": 2, "states": None}):
        with pytest.raises(ValueError, match="state_dict"):
            again.load_state_dict(damaged)


class Resumable(data.IterableDataset):
    """Goes on where its state says, once."""

    def __init__(self):
        self.next = self.made = 0

    def __iter__(self):
        while self.next < 20:
            self.next, self.made = self.next + 1, self.made + 1
            yield self.next
        self.next = 0

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


@pytest.mark.parametrize(("workers", "made"), [(0, 11), (2, 0)])
def test_a_stream_with_a_state_goes_on_by_itself(workers, made, tmp_path):
    from tapegrad.utils.data._stateful import Stateful, StatefulDataLoader

    loader = StatefulDataLoader(Resumable(), batch_size=3, num_workers=workers, snapshot_every_n_steps=2)
    it = iter(loader)
    for _ in range(3):
        next(it)
    tg.save(loader.state_dict(), tmp_path / "x")
    rest = [b.tolist() for b in it]
    again = StatefulDataLoader(Resumable(), 3, num_workers=workers)
    again.load_state_dict({})  # as torchdata's
    again.load_state_dict(tg.load(tmp_path / "x"))
    assert [b.tolist() for b in again] == rest and rest
    assert again.dataset.made == made  # nothing is made to be dropped; in workers their copies count
    assert len(list(again)) == len(list(loader)) and isinstance(again, Stateful)


# ---- memory


def test_packed_lists():
    words = [f"wörd {i}" for i in range(50)] + [""]
    packed = data.PackedList(words)
    assert list(packed) == words
    assert packed == words and packed[-2:] == words[-2:] and packed[3] == words[3] and packed[-1] == ""
    assert "wörd 7" in packed and packed.index("wörd 7") == 7 and packed + ["x"] == [*words, "x"]
    with pytest.raises(IndexError):
        packed[51]
    assert list(data.PackedList([b"a", b"\0b"])) == [b"a", b"\0b"]
    arrays = [np.arange(i, dtype=np.int16) for i in range(4)]
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(data.PackedList(arrays), arrays, strict=True))
    grid = data.PackedList([np.ones((2, 3)), np.zeros((2, 3))])
    assert grid[0].shape == (2, 3) and grid[0].sum() == 6
    assert list(data.PackedList([])) == []
    with pytest.raises(TypeError):
        data.PackedList(["a", 1])
    import pickle

    assert pickle.loads(pickle.dumps(packed)) == words


def test_long_lists_do_not_grow_in_workers():
    dataset = Names([f"/some/folder/of/files/picture-{i:09d}.jpeg" for i in range(200_000)])
    original = dataset.items
    loader = data.DataLoader(data.Subset(dataset, range(200_000)), batch_size=1000, num_workers=1, collate_fn=list)
    grown = [memory for batch in loader for _, memory in batch if memory]
    assert dataset.items is original
    assert len(grown) == 20
    assert max(grown) - grown[0] < 4000, grown  # KiB; as an ordinary list it is 18,000


FULL = """
    import time
    import tapegrad as tg
    from tapegrad.utils import data
    data.worker._PATIENCE_S = 0.5

    class Large(data.Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, i):
            return tg.full((2 << 20,), float(i))

    for batch in data.DataLoader(Large(), num_workers=1, prefetch_factor=8):
        time.sleep(0.05)
        print(int(batch[0, -1].item()), end=" ")
    print()
    try:
        list(data.DataLoader(Large(), num_workers=1))
    except tg.OutOfMemoryError as error:
        print("is full" in str(error), flush=True)
"""


def test_a_worker_whose_memory_is_full_waits():
    probe = subprocess.run(["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this machine lets no user mount a file system of his own")
    command = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=36m tmpfs /mnt && TAPEGRAD_SHARED_DIR=/mnt exec "$@"', "sh",
               sys.executable, "-c", textwrap.dedent(FULL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.split("\n")[0].split() == [str(i) for i in range(12)]
    assert done.stdout.split("\n")[1] == "True"


# ---- signals

PROGRAM = """
    import os, sys, time
    import tapegrad as tg
    from tapegrad.utils import data

    class Long(data.Dataset):
        def __len__(self):
            return 100
        def __getitem__(self, i):
            time.sleep({sleep})
            return i

    loader = iter(data.DataLoader(Long(), num_workers=2))
    print(*loader._worker_pids, flush=True)
    for batch in loader:
        pass
"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("sleep", [0.01, 30])
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_nobody_stays(sleep, blow):
    program = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM.format(sleep=sleep))], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        pids = [int(p) for p in program.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.3)
        begin = time.monotonic()
        if blow == signal.SIGINT:
            os.killpg(program.pid, blow)  # as a terminal does
        else:
            os.kill(program.pid, blow)
        limit = 2 if blow == signal.SIGKILL else 1
        while any(map(alive, pids)) and time.monotonic() - begin < 10:
            time.sleep(0.01)
        took = time.monotonic() - begin
        errors = program.communicate(timeout=20)[1]
        assert took < limit + 0.5 * os.getloadavg()[0]  # the limit is for a machine with nothing else to do
        if blow == signal.SIGINT:
            assert errors.count("Traceback") == 1
            assert "KeyboardInterrupt" in errors
        else:
            assert errors == ""
    finally:
        if program.poll() is None:
            program.kill()


NOTEBOOK = """
import tapegrad as tg
from tapegrad.utils import data
from tapegrad import nn
scale = 3

def twice(x):
    return scale * x

class Base(data.Dataset):
    def __init__(self, n):
        super().__init__()
        self.n = n
    def __len__(self):
        return self.n

class Cells(Base):
    def __init__(self, n):
        super().__init__(n)
        self.net = nn.Linear(1, 1)
    def __getitem__(self, i):
        return twice(i)

for method in ("fork", "spawn", "forkserver"):
    loader = data.DataLoader(Cells(4), num_workers=1, batch_size=2, multiprocessing_context=method, collate_fn=lambda s: tuple(s))
    print(method, [tuple(b) for b in loader])
"""


def test_classes_of_a_notebook_work_with_any_start_method():
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"{m} [(0, 3), (6, 9)]\n" for m in ("fork", "spawn", "forkserver"))


# ---- shards


@pytest.fixture
def shards(tmp_path):
    for i in range(6):
        (tmp_path / f"{i}.txt").write_text("".join(f"{i}-{k}\n" for k in range(i + 3)))
    return sorted(tmp_path.iterdir()), sorted(f"{i}-{k}" for i in range(6) for k in range(i + 3))


def test_many_files_in_parallel(shards):
    paths, want = shards
    plain_order = list(data.ShardDataset(paths, parallel=1))
    assert plain_order == [f"{i}-{k}" for i in range(6) for k in range(i + 3)]
    turns = list(data.ShardDataset(paths, parallel=3))
    assert turns[:6] == ["0-0", "1-0", "2-0", "0-1", "1-1", "2-1"]
    assert turns == list(data.ShardDataset(paths, parallel=3, read_ahead=1))
    assert sorted(turns) == want
    shuffled = data.ShardDataset(paths, shuffle=True, buffer_size=8)
    first = list(shuffled)
    assert first == list(shuffled) and sorted(first) == want and first != turns
    shuffled.set_epoch(1)
    assert list(shuffled) != first
    parts = [list(data.ShardDataset(paths, shuffle=True, num_replicas=2, rank=r)) for r in range(2)]
    assert sorted(parts[0] + parts[1]) == want
    got = [s for b in data.DataLoader(shuffled, batch_size=4, num_workers=2) for s in b]
    assert sorted(got) == want
    own = data.ShardDataset([3, 4], read=range)
    assert list(own) == [0, 0, 1, 1, 2, 2, 3]
    threads = threading.active_count()
    stream = iter(data.ShardDataset(paths, read_ahead=1))
    next(stream)
    stream.close()
    end = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.02)
    assert threading.active_count() <= threads


def test_mistakes_of_shards(shards):
    with pytest.raises(RuntimeError, match="reading '/nowhere' failed: FileNotFoundError"):
        list(data.ShardDataset(["/nowhere"]))
    with pytest.raises(ValueError, match="at least 1"):
        data.ShardDataset([], parallel=0)
    with pytest.raises(ValueError, match="at least one sample"):
        data.ShuffleBuffer([], 0)
    assert sorted(data.ShuffleBuffer(range(10), 4)) == list(range(10))


# ---- PyTorch's names


def test_options_are_checked_as_pytorch_does():
    torch = pytest.importorskip("torch")

    def run(t):
        d = t.utils.data
        s = range(4)
        return [class_or_error(f) for f in (
            lambda: d.DataLoader(s, multiprocessing_context="fork"), lambda: d.DataLoader(s, prefetch_factor=2),
            lambda: d.DataLoader(s, num_workers=1, multiprocessing_context="no"), lambda: d.DataLoader(s, persistent_workers=True),
            lambda: d.DataLoader(s, num_workers=1, multiprocessing_context=3), lambda: d.DataLoader(s, num_workers=1, prefetch_factor=-1))]

    assert run(tg) == run(torch)
    loader = data.DataLoader(range(4), num_workers=2)
    theirs = torch.utils.data.DataLoader(range(4), num_workers=2)
    for name in ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "timeout", "drop_last", "persistent_workers", "in_order"):
        assert getattr(loader, name) == getattr(theirs, name), name
    with pytest.raises(ValueError, match="worker_type"):
        data.DataLoader(range(4), worker_type="elf")


def test_module_paths():
    from tapegrad.utils.data._utils.collate import collate, default_collate, default_collate_fn_map
    from tapegrad.utils.data._utils.pin_memory import pin_memory
    from tapegrad.utils.data._utils.worker import get_worker_info
    from tapegrad.utils.data.dataloader import DataLoader
    from tapegrad.utils.data.dataloader import default_collate as again
    from tapegrad.utils.data.dataset import ConcatDataset, Dataset, IterableDataset, Subset  # noqa: F401
    from tapegrad.utils.data.distributed import DistributedSampler
    from tapegrad.utils.data.sampler import BatchSampler, RandomSampler, Sampler  # noqa: F401

    assert DataLoader is data.DataLoader and default_collate is again is data.default_collate
    assert get_worker_info is data.get_worker_info and DistributedSampler is data.DistributedSampler

    class Box:
        def __init__(self, value):
            self.value = value

    own = {Box: lambda batch, *, collate_fn_map: [b.value for b in batch], **default_collate_fn_map}
    got = collate([{"a": (Box(1), 2)}, {"a": (Box(3), 4)}], collate_fn_map=own)
    assert got["a"][0] == [1, 3] and got["a"][1].tolist() == [2, 4]
    with pytest.raises(TypeError, match="found"):
        collate([Box(1)], collate_fn_map=default_collate_fn_map)
    assert pin_memory({"a": [tg.ones(1), "x"]})["a"][1] == "x"


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_a_forked_copy_of_a_persistent_pass_takes_nothing(worker_type):
    it = iter(data.DataLoader(range(40), batch_size=2, num_workers=2, persistent_workers=True, worker_type=worker_type))
    next(it)
    child = os.fork()
    if child == 0:
        it.__del__()
        os._exit(0)
    for _ in range(500):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked copy waits for batches")
    assert status == 0 and len(list(it)) == 19
