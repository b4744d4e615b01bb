"""Whatever a dataset, a collate function or a start function raises in a worker reaches the loader, and nobody waits for ever."""

import ctypes
import sys
import threading
from pathlib import Path

import pytest
from tapegrad.utils import data
from tapegrad.utils.data.shards import ShardDataset

sys.path.insert(0, str(Path(__file__).parent))
from loaded import ERRORS, Exploding, Raising, RaisingStream  # noqa: E402

pytestmark = pytest.mark.timeout(60)
KINDS = [{"worker_type": "thread"}, {"worker_type": "thread", "persistent_workers": True}, {"worker_type": "process"},
         {"worker_type": "process", "persistent_workers": True, "in_order": False}]


def loader(dataset, kind, **options):
    return data.DataLoader(dataset, batch_size=2, num_workers=2, collate_fn=dataset.collate, worker_init_fn=dataset.init, **kind, **options)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("where", ["sample", "collate", "init", "stream"])
@pytest.mark.parametrize("error", ERRORS)
def test_every_error_arrives(error, where, kind):
    batches = loader((RaisingStream if where == "stream" else Raising)(error, where), kind)
    name = type(ERRORS[error]).__name__
    for _ in range(2 if kind.get("persistent_workers") else 1):
        raised, got = [], []
        it = iter(batches)
        for _ in range(20):
            try:
                got.append(next(it))
            except StopIteration:
                break
            except Exception as e:  # never what ends the program or a generator
                raised.append(e)
        else:
            raise AssertionError("the pass does not end")
        assert raised
        assert all(f"Caught {name} in DataLoader worker" in str(e) for e in raised), raised
        if where in ("sample", "collate"):  # the other batches come
            assert len(raised) == 1
            assert sorted(sum(got, [])) == [0, 1, 2, 3, 6, 7]


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_a_batch_that_cannot_be_made_again(worker_type):
    batches = data.DataLoader(range(6), batch_size=2, num_workers=1, worker_type=worker_type,
                              collate_fn=lambda b: Exploding() if 2 in b else b)
    it = iter(batches)
    assert next(it) == [0, 1]
    if worker_type == "process":
        with pytest.raises(ValueError, match="(?s)Caught ValueError in DataLoader worker process 0.*not made again"):
            next(it)
    else:
        assert isinstance(next(it), Exploding)
    assert next(it) == [4, 5]
    assert list(it) == []


def test_a_thread_that_is_ended_from_outside():
    gate = threading.Event()

    class Waiting(Raising):
        def __getitem__(self, i):
            gate.set()
            for thread in threading.enumerate():
                if thread.name.startswith("DataLoader-"):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
            gate.set()
            return i

    batches = loader(Waiting("BaseException", "nowhere"), {"worker_type": "thread"})
    with pytest.raises(RuntimeError, match="SystemExit"):
        for _ in batches:
            pass
    assert gate.is_set()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_shards(error):
    def read(shard):
        yield 1
        raise error

    with pytest.raises(RuntimeError, match=f"reading 'a' failed: {error.__name__}"):
        list(ShardDataset(["a"], read))


def test_sampler():
    def indices():
        yield 0
        raise SystemExit(3)

    for kind in KINDS:
        if not kind.get("persistent_workers"):
            with pytest.raises(SystemExit):
                list(data.DataLoader(range(9), sampler=indices(), num_workers=2, **kind))
