"""segment_reduce and vander, which are written in Python."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch", reason="compared with PyTorch")
CASES = [((6,), [1, 0, 5], 0), ((6, 2), [2, 4, 0], 0), ((2, 4, 3), [[1, 3, 0], [2, 2, 0]], 1), ((0,), [0, 0], 0), ((0, 3), [0], 0), ((2, 2, 3), [[2], [2]], -2)]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("shape, lengths, axis", CASES)
@pytest.mark.parametrize("by_offsets", [False, True])
def test_segment_reduce(reduce, initial, shape, lengths, axis, by_offsets):
    data = np.random.default_rng(0).normal(size=shape)
    offsets = np.concatenate([np.zeros((*np.shape(lengths)[:-1], 1), int), np.cumsum(lengths, -1)], -1)
    given = {"offsets": offsets} if by_offsets else {"lengths": np.array(lengths)}
    results = []
    for lib in (tg, torch):
        x = lib.from_numpy(data.copy()).requires_grad_()
        result = lib.segment_reduce(x, reduce, axis=axis, initial=initial, **{k: lib.from_numpy(v) for k, v in given.items()})
        result.nan_to_num(0, 0, 0).sum().backward()
        results.append((result.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("reduce", ["max", "min", "sum", "mean", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segment_reduce_of_nan(reduce, initial):
    data, weight = np.array([1, np.nan, 3, np.nan, 5, 5, np.nan, 4, 4]), np.array([1.0, 2, 3, 4])
    results = []
    for lib in (tg, torch):
        x = lib.from_numpy(data.copy()).requires_grad_()
        result = lib.segment_reduce(x, reduce, lengths=lib.tensor([1, 3, 2, 3]), initial=initial)
        (result * lib.from_numpy(weight)).sum().backward()
        results.append((result.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*results):
        np.testing.assert_array_equal(ours, theirs)


def test_names_of_the_operator():
    x, offsets = tg.tensor([[1.0], [5.0], [-2.0]]), tg.tensor([0, 2, 3])
    assert tg._segment_reduce(x, "amax", offsets=offsets).tolist() == [[5.0], [-2.0]] and tg._segment_reduce(x, "amin", offsets=offsets).tolist() == [[1.0], [-2.0]]


def test_segment_reduce_with_a_rest():
    x, lengths = np.arange(8.0).reshape(2, 4), np.array([[1, 1], [2, 1]])
    ours = tg.segment_reduce(tg.from_numpy(x), "sum", lengths=tg.from_numpy(lengths), axis=1, unsafe=True)
    assert ours.tolist() == [[0, 1], [9, 6]]


@pytest.mark.parametrize("arguments, text", [
    ({"lengths": [3]}, "add up to 6"), ({"lengths": [-1, 7]}, "not negative"), ({}, "expected one of"), ({"lengths": [6], "offsets": [0, 6]}, "expected one of"),
    ({"lengths": [[6]]}, "expected lengths for the dimensions"), ({"lengths": [6.0]}, "int32 or int64"), ({"indices": [0]}, "not supported")])
def test_segment_reduce_refuses(arguments, text):
    with pytest.raises(RuntimeError, match=text):
        tg.segment_reduce(tg.ones(6), "sum", **{name: tg.tensor(value) for name, value in arguments.items()})
    with pytest.raises(RuntimeError, match="expected sum, mean, max, min or prod: got 'median'"):
        tg.segment_reduce(tg.ones(6), "median", lengths=tg.tensor([6]))


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [1, 2, 3], [2.0], []])
@pytest.mark.parametrize("n", [None, 0, 1, 2, 5])
@pytest.mark.parametrize("increasing", [False, True])
def test_vander(values, n, increasing):
    dtype = "float64" if not values or isinstance(values[0], float) else "int64"
    ours, theirs = (lib.vander(lib.tensor(values, dtype=getattr(lib, dtype)), n, increasing) for lib in (tg, torch))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]


def test_vander_refuses():
    with pytest.raises(RuntimeError, match="one-dimensional"):
        tg.vander(tg.ones(2, 2))
    with pytest.raises(RuntimeError, match="non-negative"):
        tg.vander(tg.ones(2), -1)
