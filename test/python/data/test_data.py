"""Datasets, samplers and the DataLoader; against PyTorch where results do not hang on random numbers."""

import random
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import tapegrad as tg
from pairs import class_or_error, same_as_torch
from tapegrad.utils import data

torch = pytest.importorskip("torch")

Point = namedtuple("Point", ["x", "y"])


class Squares(data.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i, i * i


class Noisy(Squares):
    def __getitem__(self, i):
        return i, random.random(), float(np.random.rand()), tg.rand(()).item()


def plain(value):
    if hasattr(value, "tolist"):
        return (str(getattr(value, "dtype", "")).replace("tapegrad", "torch"), value.tolist())
    if isinstance(value, dict):
        return type(value)((k, plain(v)) for k, v in value.items()) if type(value) is not dict else {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(plain(v) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    return value


@pytest.mark.parametrize("batch", [
    [0, 1, 2], [0.5, 1.5], [True, False], ["a", "b"], [b"a"], [(0, 1.0), (2, 3.0)], [[0, 1], [2, 3]],
    [{"a": 1, "b": [2, 3]}, {"a": 4, "b": [5, 6]}], [OrderedDict(z=1, a=2)], [Point(0, 1.5), Point(2, 3.5)],
    [np.ones(3), np.zeros(3)], [np.float32(1), np.float32(2)], [np.int16(3)], [np.array([1, 2], dtype=np.uint8)],
    [(1, "x", np.ones(2)), (2, "y", np.ones(2))], [[]], [("a", ("b", 1))],
])
def test_collate(batch):
    assert plain(data.default_collate(batch)) == plain(torch.utils.data.default_collate(batch))
    for sample in batch:
        assert plain(data.default_convert(sample)) == plain(torch.utils.data.default_convert(sample))


def test_collate_tensors_and_errors():
    out = data.default_collate([tg.ones(2), tg.zeros(2)])
    assert out.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(TypeError, match="found <class 'object'>"):
        data.default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError):
        data.default_collate([np.array(["a"])])


@pytest.mark.parametrize("options", [
    {}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None},
    {"batch_sampler": [[0, 1], [5]]}, {"sampler": [3, 1, 2], "batch_size": 2}, {"batch_size": 4, "collate_fn": list}])
def test_batches(options):
    def run(t, dataset):
        loader = t.utils.data.DataLoader(dataset, **options)
        return len(loader), [plain(b) for b in loader], [plain(b) for b in loader]

    class Theirs(torch.utils.data.Dataset):
        __len__ = Squares.__len__
        __getitem__ = Squares.__getitem__
        n = 10

    assert run(tg, Squares()) == run(torch, Theirs())


def test_tensor_dataset_is_cut_out_of_tensors():
    x, y = tg.arange(20.0).reshape(10, 2), tg.arange(10)
    dataset = data.TensorDataset(x, y)
    batches = list(data.DataLoader(dataset, batch_size=4))
    assert [b[1].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert isinstance(batches[0], list)
    assert batches[2][0].tolist() == [[16, 17], [18, 19]]
    assert dataset[3][0].tolist() == [6, 7]
    assert len(dataset) == 10
    half = data.Subset(dataset, [9, 1, 5])
    assert [b[1].tolist() for b in data.DataLoader(half, batch_size=2)] == [[9, 1], [5]]
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(x, tg.arange(3))

    class Own(data.TensorDataset):
        def __getitem__(self, i):
            return super().__getitem__(i)[1] + 100

    assert next(iter(data.DataLoader(Own(x, y), batch_size=2))).tolist() == [100, 101]


def test_shuffle_depends_on_the_seed_only():
    def order(seed=None, generator=None):
        if seed is not None:
            tg.manual_seed(seed)
        return [b[0].tolist() for b in data.DataLoader(Squares(30), batch_size=7, shuffle=True, generator=generator)]

    assert order(3) == order(3)
    assert order(3) != order(4)
    g, h = tg.Generator(), tg.Generator()
    g.manual_seed(5)
    h.manual_seed(5)
    first = order(generator=g)
    assert first == order(generator=h)
    assert first != order(generator=h)
    assert sorted(sum(first, [])) == list(range(30))


def test_samples_do_not_hang_on_each_other():
    def samples(batch_size, shuffle_first=False):
        g = tg.Generator()
        g.manual_seed(1)
        order = list(reversed(range(8))) if shuffle_first else list(range(8))
        loader = data.DataLoader(Noisy(8), batch_size=batch_size, sampler=order, generator=g)
        return sorted(tuple(v[k].item() for v in b) for b in loader for k in range(len(b[0])))

    assert samples(1) == samples(3) == samples(8, shuffle_first=True)
    values = samples(4)
    assert len({v[1] for v in values}) == len({v[2] for v in values}) == len({v[3] for v in values}) == 8


def test_the_loader_does_not_disturb_other_random_numbers():
    def draws(with_loader):
        tg.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        g = tg.Generator()
        g.manual_seed(1)
        if with_loader:
            list(data.DataLoader(Noisy(4), generator=g))
        return random.random(), np.random.rand(), tg.rand(()).item()

    assert draws(True) == draws(False)


def test_iterable():
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(7))

    assert [b.tolist() for b in data.DataLoader(Stream(), batch_size=3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [b.tolist() for b in data.DataLoader(Stream(), batch_size=3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    assert list(data.DataLoader(Stream(), batch_size=None)) == list(range(7))
    assert list(Stream() + Stream())[6:9] == [6, 0, 1]
    with pytest.raises(ValueError, match="IterableDataset"):
        data.DataLoader(Stream(), shuffle=True)


def test_stacked_datasets_give_several_samples():
    class Several(Squares):
        def __getitems__(self, indices):
            return [self[i] for i in indices if i < 3]

    stacked, named = data.StackDataset(Several(4), range(4)), data.StackDataset(a=Several(4), b=range(4))
    assert stacked.__getitems__([0, 2]) == [stacked[0], stacked[2]] and named.__getitems__([2, 1]) == [named[2], named[1]]
    for dataset in (stacked, named):
        with pytest.raises(ValueError, match="^Nested dataset's output size mismatch. Expected 2, got 1$"):
            dataset.__getitems__([1, 3])


def test_more_samples_than_an_iterable_said():
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(4))

        def __len__(self):
            return 2

    loader = data.DataLoader(Stream(), batch_size=None)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="but 3 samples have been fetched. For multiprocessing data-loading, this could be caused by"):
        assert list(loader) == [0, 1, 2, 3]


def test_datasets():
    both = Squares(3) + Squares(2)
    assert len(both) == 5
    assert [both[i][0] for i in range(5)] == [0, 1, 2, 0, 1]
    assert both[-1] == (1, 1)
    stacked = data.StackDataset(Squares(3), Squares(3))
    assert stacked[2] == ((2, 4), (2, 4))
    assert data.StackDataset(a=Squares(3))[1] == {"a": (1, 1)}
    with pytest.raises(ValueError, match="absolute value"):
        both[-9]
    with pytest.raises(NotImplementedError):
        data.Dataset()[0]


def test_random_split():
    g = tg.Generator()
    g.manual_seed(0)
    parts = data.random_split(Squares(10), [7, 3], generator=g)
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(s[0] for p in parts for s in p) == list(range(10))
    assert [len(p) for p in data.random_split(Squares(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="does not equal"):
        data.random_split(Squares(10), [7, 4])


def test_samplers():
    assert list(data.SequentialSampler(range(4))) == [0, 1, 2, 3]
    assert sorted(data.RandomSampler(range(5))) == [0, 1, 2, 3, 4]
    assert len(list(data.RandomSampler(range(5), num_samples=12))) == 12
    replaced = list(data.RandomSampler(range(5), replacement=True, num_samples=100))
    assert len(replaced) == 100
    assert set(replaced) == set(range(5))
    assert sorted(data.SubsetRandomSampler([3, 7])) == [3, 7]
    weighted = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000))
    assert 0 not in weighted
    assert 2.4 < weighted.count(2) / weighted.count(1) < 3.8
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, False)
    assert list(batches) == [[0, 1], [2, 3], [4]]
    assert len(batches) == 3
    parts = [list(data.DistributedSampler(range(7), 2, rank, shuffle=False)) for rank in range(2)]
    assert parts == [[0, 2, 4, 6], [1, 3, 5, 0]]
    shuffled = data.DistributedSampler(range(8), 2, 0)
    first = list(shuffled)
    shuffled.set_epoch(1)
    assert first != list(shuffled)


@same_as_torch
def test_mistakes(t):
    d = t.utils.data
    s = range(4)
    return [class_or_error(f) for f in (
        lambda: d.DataLoader(s, batch_size=0), lambda: d.DataLoader(s, shuffle=True, sampler=[1]),
        lambda: d.DataLoader(s, batch_sampler=[[1]], batch_size=3), lambda: d.DataLoader(s, batch_size=None, drop_last=True),
        lambda: d.RandomSampler(s, replacement=3), lambda: d.RandomSampler(s, num_samples=-1),
        lambda: d.BatchSampler(s, 2, 3), lambda: d.WeightedRandomSampler([1.0], 0),
        lambda: d.DataLoader(s, num_workers=-1), lambda: d.DataLoader(s, timeout=-1),
        lambda: d.DistributedSampler(s, 2, 5))]
