"""x[...] and x[...] = y against PyTorch: every kind of subscript, and random mixtures."""

import numpy as np
import pytest
import tapegrad as tg
from pairs import assert_same, assert_same_outcome, outcome, pair

torch = pytest.importorskip("torch")


def both(index):
    """A subscript with numpy arrays marked as tensors, for each library."""
    if isinstance(index, tuple):
        parts = [both(i) for i in index]
        return tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    if isinstance(index, np.ndarray):
        return pair(index)
    return index, index


def check_get(data, index, strides: bool = True):
    a, b = pair(data)
    i, j = both(index)
    x, y = outcome(lambda: a[i]), outcome(lambda: b[j])
    if isinstance(y, Exception):
        assert isinstance(x, type(y)), f"{index}: expected {y!r}, got {x!r}"
        return
    if isinstance(x, Exception):
        raise AssertionError(f"{index}: expected a result") from x
    assert_same(x, y)
    if y._base is not None and strides and y.numel():
        assert x.stride() == y.stride() and x.storage_offset() == y.storage_offset()
        assert x.data_ptr() == a.data_ptr() + 8 * x.storage_offset()


def check_set(data, index, value):
    a, b = pair(data)
    i, j = both(index)
    v, w = both(value)

    def ours():
        a[i] = v

    def theirs():
        b[j] = w

    assert_same_outcome(ours, theirs)
    assert_same(a, b)


DATA = np.arange(120.0).reshape(4, 5, 6)
MASK = np.arange(4) % 2 == 0
MASK2 = (np.arange(20) % 3 == 0).reshape(4, 5)
T = np.array
SUBSCRIPTS = [
    0, -1, 3, 4, -5, slice(None), slice(1, 3), slice(None, None, 2), slice(10, 20), slice(-2, None), slice(3, 1), slice(0, 4, 3),
    slice(-100, 100), None, Ellipsis, True, False, (), (0, 1), (0, 1, 2), (0, 1, 2, 3), (-1, -1, -1), (slice(None), 2), (Ellipsis, 0),
    (0, Ellipsis), (0, Ellipsis, 1), (None, 0), (0, None), (None, Ellipsis, None), (slice(1, 3), None, 2), (Ellipsis, None),
    (slice(None), slice(None), slice(None, None, 5)), (Ellipsis, slice(1)), (0, slice(2), slice(1, None)),
    [0, 2], [0, -1], [[0, 1], [2, 3]], [True, False, True, False], [], ([0, 1], [1, 2]), ([0, 1], slice(None), [1, 2]),
    (slice(None), [0, 1]), (slice(None), [0, 1], [1, 2]), ([0, 1], 2), (2, [0, 1]), (2, slice(None), [0, 1]), (slice(None), 1, [0, 1]),
    ([0, 1], None, [0, 1]), (None, [0, 1]), (Ellipsis, [0, 1]), ([[0], [1]], [0, 1, 2]), ([0, 1], [0, 1, 2]), [4], [-5],
    T([0, 2]), T([[0, 1], [3, 2]]), T(2), T([], dtype=np.int64), MASK, MASK2, (MASK, 0), (0, T([True, False, True, False, True])),
    (slice(None), T([True, False, True, False, True])), (MASK, slice(None), T([0, 1])), (MASK, T([0, 1])), (T([0, 1]), Ellipsis, T([1, 0])),
    (T([0, 1], dtype=np.int32), 1), T([1], dtype=np.uint8), T(True), (T(True), 0), (None, MASK2), DATA > 50, DATA < 0, (MASK2, 0), (MASK2, T([0])),
    T([True, False]), (T([0, 1]), T([0, 1]), T([0, 1])), (T([[0], [1]]), T([0, 1]), T([[0, 1], [1, 0]])), T([1.0]), 1.0, {},
    (T(1), slice(None)), (slice(None), T(1), T([0, 1])), (T([5]), 0), (slice(0, 4, 0),), slice(None, None, -1), range(2), (range(2), 0), (True, 0), (0, True),
    (slice(T(1).item(), 3),), (None, None, 0, None), ((0, 1),), [(0, 1), (2, 3)], (Ellipsis, T([0, 1]), None), (T([0, 1]), None, slice(1, 2), T([0, 1])),
]


@pytest.mark.parametrize("number", range(len(SUBSCRIPTS)), ids=lambda n: repr(SUBSCRIPTS[n])[:40])
def test_get_and_set(number):
    index = SUBSCRIPTS[number]
    check_get(DATA, index)
    check_set(DATA, index, -1.0)
    check_set(DATA, index, T(-2.0))
    target = outcome(lambda: torch.tensor(DATA)[both(index)[1]])
    if not isinstance(target, Exception):
        shape = tuple(target.shape)
        values = np.random.default_rng(0).standard_normal(shape)
        if not repeats(index):
            check_set(DATA, index, values)
            if shape:
                check_set(DATA, index, values[:1])
        if 0 not in shape:
            check_set(DATA, index, np.zeros((*shape, 7)))


def repeats(index) -> bool:
    """Whether one element may be written twice, with a value that is not defined."""
    count = torch.zeros(DATA.shape, dtype=torch.float64)
    picked = torch.arange(DATA.size).reshape(DATA.shape)[both(index)[1]].reshape(-1)
    count.view(-1).index_add_(0, picked, torch.ones(picked.shape, dtype=torch.float64))
    return bool((count > 1).any())


def random_subscript(rng, shape):
    parts, used_arrays = [], int(rng.integers(0, 3))
    length = int(rng.integers(1, 4))
    dims = list(shape)
    at = 0
    ellipsis = False
    while at < len(dims) and len(parts) < 8:
        n = dims[at]
        kind = rng.integers(0, 9)
        if kind == 0:
            parts.append(int(rng.integers(-n, n)) if n else 0)
        elif kind in (1, 2):
            bounds = [None if rng.random() < 0.3 else int(b) for b in rng.integers(-n - 1, n + 2, 2)]
            parts.append(slice(*bounds, None if rng.random() < 0.5 else int(rng.integers(1, 4))))
        elif kind == 3:
            parts.append(None)
            continue
        elif kind == 4 and not ellipsis:
            parts.append(Ellipsis)
            ellipsis = True
            at += int(rng.integers(0, len(dims) - at + 1))
            continue
        elif kind == 5 and used_arrays and n:
            parts.append(rng.integers(-n, n, length if rng.random() < 0.8 else 1))
            used_arrays -= 1
        elif kind == 6 and used_arrays and n:
            parts.append([int(v) for v in rng.integers(-n, n, length)])
            used_arrays -= 1
        elif kind == 7 and used_arrays:
            mask = np.zeros(n, dtype=bool)
            mask[rng.permutation(n)[:length]] = True
            parts.append(mask)
            used_arrays -= 1
        elif kind == 8 and at + 1 < len(dims) and used_arrays and rng.random() < 0.5:
            parts.append(rng.random((n, dims[at + 1])) < 0.4)
            used_arrays -= 1
            at += 1
        else:
            parts.append(slice(None))
        at += 1
        if rng.random() < 0.25:
            break
    return tuple(parts) if len(parts) != 1 or rng.random() < 0.5 else parts[0]


@pytest.mark.parametrize("seed", range(40))
def test_random_mixtures(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        shape = tuple(int(v) for v in rng.integers(0 if rng.random() < 0.1 else 1, 6, rng.integers(1, 5)))
        data = np.arange(float(np.prod(shape))).reshape(shape)
        index = random_subscript(rng, shape)
        check_get(data, index)
        check_set(data, index, float(rng.standard_normal()))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64", "uint8", "bool", "complex64"])
def test_dtypes(dtype):
    a, b = pair(np.arange(12).reshape(3, 4), dtype)
    index, other = pair([2, 0])
    for i, j in [(1, 1), (index, other), (slice(1), slice(1)), ((slice(None), index), (slice(None), other)), (a == 1, b == 1)]:
        assert_same(a[i], b[j])
        for value in (1, True, 0):
            a[i] = value
            b[j] = value
            assert_same(a, b)
    assert_same_outcome(lambda: a.__setitem__(0, 2.5), lambda: b.__setitem__(0, 2.5))
    assert_same(a, b)
    assert_same_outcome(lambda: a.__setitem__(0, 1 + 1j), lambda: b.__setitem__(0, 1 + 1j))
    a[1:] = tg.ones(2, 4, dtype=tg.float64)
    b[1:] = torch.ones(2, 4, dtype=torch.float64)
    assert_same(a, b)


def test_views_write_through():
    x = tg.zeros(3, 4)
    x[1][2] = 5
    assert x[1, 2] == 5
    x[:, 0] += 1
    assert x[:, 0].tolist() == [1, 1, 1]
    x[x > 0] *= 10
    assert x.sum() == 80
    x[[0, 1]] += 1
    assert x.sum() == 88
    x.t()[0] = 0
    assert x[:, 0].sum() == 0


def test_overlap_and_self_assignment():
    x, y = pair(np.arange(6.0))
    x[1:] = x[:-1].clone()
    y[1:] = y[:-1].clone()
    assert_same(x, y)
    x[...] = x.flip(0)
    y[...] = y.flip(0)
    assert_same(x, y)
    x[:] = x
    assert_same(x, y)


def test_values():
    a = tg.zeros(2, 3)
    a[0] = [1, 2, 3]
    a[1] = np.array([4.0, 5.0, 6.0])
    assert a.tolist() == [[1, 2, 3], [4, 5, 6]]
    a[:, 0] = np.float64(9)
    a[0, 0] = tg.tensor([[7.0]])
    assert a[:, 0].tolist() == [7, 9]
    for bad in ("x", None, object(), [[1, 2], [3]], ["a"]):
        with pytest.raises((TypeError, ValueError)):
            a[0] = bad
    with pytest.raises(TypeError):
        del a[0]
    with pytest.raises(RuntimeError, match="shape|size"):
        a[0] = tg.zeros(4)


def test_gradients():
    rng = np.random.default_rng(0)
    for seed in range(60):
        local = np.random.default_rng(seed)
        index = random_subscript(local, DATA.shape)
        i, j = both(index)
        a, b = pair(rng.standard_normal(DATA.shape), requires_grad=True)
        (a[i] ** 2).sum().backward()
        (b[j] ** 2).sum().backward()
        assert_same(a.grad, b.grad, rtol=1e-12)
        value, other = pair(1.5, "float64", requires_grad=True)
        (c := a * 1)[i] = value
        (d := b * 1)[j] = other
        (c ** 2).sum().backward()
        (d ** 2).sum().backward()
        assert_same(a.grad, b.grad, rtol=1e-12)
        if other.grad is not None:
            assert_same(value.grad, other.grad, rtol=1e-12)


def test_errors_say_what_to_do():
    x = tg.zeros(3, 4)
    with pytest.raises(IndexError, match="3"):
        x[3]
    with pytest.raises(IndexError, match="dimension"):
        x[0, 0, 0]
    with pytest.raises(IndexError):
        x[tg.tensor([3])]
    with pytest.raises(IndexError):
        x[tg.tensor([True, False])]
    with pytest.raises(ValueError, match="step"):
        x[::-1]
    with pytest.raises(IndexError):
        x[1.0]
    for bad in ("a", [1.5], (..., ...), object(), {}, b"a"):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(IndexError):
        tg.tensor(1.0)[0]
    with pytest.raises((IndexError, OverflowError)):
        x[2**70]
    assert x[:2**70].shape == (3, 4) and x[-(2**70):].shape == (3, 4)


def test_many_dimensions():
    x, y = pair(np.arange(64.0).reshape((2,) * 6))
    for index in [(0,) * 6, (slice(None),) * 6, (None,) * 10, (0, Ellipsis, 1, None), (Ellipsis, [0, 1], 0, [1, 0])]:
        assert_same_outcome(lambda: x[index], lambda: y[index])
    with pytest.raises((IndexError, RuntimeError, ValueError)):
        x[(None,) * 100]


def assigned(t, shape, dtype, subscript, value):
    x = t.zeros(shape, dtype=getattr(t, dtype))
    x[eval(subscript, {"t": t})] = eval(value, {"t": t})
    return x.tolist()


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool", "complex64"])
@pytest.mark.parametrize("value", ["1.5", "t.tensor(1.5)", "t.tensor([1.5])", "t.tensor([1.5, 2.5])", "t.tensor([1, 2])", "t.tensor([1, 2], dtype=t.int32)",
                                   "t.tensor([1.5, 2.5], dtype=t.float64)", "t.tensor([True, False])", "t.tensor(3)", "t.tensor([[1.5, 2.5]])",
                                   "t.tensor([[1.5]], dtype=t.float64)"])
@pytest.mark.parametrize("subscript", ["t.tensor([0, 1])", "[0, 1]", "t.tensor([True, False, True, False])", "t.tensor(0)", "slice(0, 2)", "(Ellipsis, [0, 1])",
                                       "t.tensor([True, False, True, False], dtype=t.uint8)", "[t.tensor([0, 1])]"])
@pytest.mark.filterwarnings("ignore")
def test_values_through_an_index_have_the_dtype_of_the_tensor(subscript, value, dtype):
    assert_same_outcome(lambda: assigned(tg, (4,), dtype, subscript, value), lambda: assigned(torch, (4,), dtype, subscript, value), kinds=True,
                        more="uint8" in subscript)  # PyTorch fills through masks of bool only


def test_a_value_of_another_dtype_is_refused_before_anything_is_written():
    x = tg.zeros(3, dtype=tg.int64)
    with pytest.raises(RuntimeError, match="^index: values written through an index must have the dtype of the tensor, int64: got float32$"):
        x[[0, 1]] = tg.tensor([1.5, 2.5])
    for given in ([1.5, 2.5], np.array([1.5, 2.5])):
        with pytest.raises((RuntimeError, TypeError)):
            x[[0, 1]] = given
    assert x.tolist() == [0, 0, 0] and x._version == 0
    y = tg.zeros(3)
    y[[0, 1]] = np.array([1.5, 2.5])  # arrays and lists are no tensors: they are brought to the tensor's dtype where that loses no fraction
    y[[2]] = [3]
    assert y.tolist() == [1.5, 2.5, 3.0]


@pytest.mark.parametrize("subscript", ["[0, 1, 2, 3]", "t.tensor([True, True, False, False])", "slice(0, 2)", "0", "[0]", "t.tensor(0)", "(slice(None),)",
                                       "t.tensor([True] * 4)", "[1, 1]"])
@pytest.mark.parametrize("value", [(1, 4), (1, 1, 4), (2, 4), (1, 2), (1,), (1, 1), (1, 1, 1), (4, 1), (0,), (1, 0)], ids=str)
def test_leading_dimensions_of_one_element_do_not_count_in_an_assigned_value(subscript, value):
    ours, theirs = (lambda t=t: assigned(t, (4,), "float32", subscript, f"t.ones({value})") for t in (tg, torch))
    assert_same_outcome(ours, theirs, kinds=True)


LISTS = ["[t.tensor(0)]", "[t.tensor(0), t.tensor(1)]", "[t.tensor(0), 1]", "(t.tensor(0),)", "[[t.tensor(0)]]", "[t.tensor([0]), t.tensor([1])]", "[0, 1]",
         "[0]", "[slice(0, 1)]", "[None]", "[True, False, True]", "[[0, 1], [1, 2]]", "[t.tensor(True)]", "[t.tensor([True, False, True])]",
         "[t.tensor([0, 2])]", "[t.tensor(0), [1]]", "[Ellipsis]", "([[0, 1]],)", "[(0, 1)]", "([[t.tensor(0), 1]],)", "([t.tensor(0)],)", "([t.tensor(0)], 0)",
         "(0, [t.tensor(0)])", "[0, None]", "[slice(0, 1), 1]", "[np.array([0, 1])]", "range(2)", "[range(2)]", "[]", "[[]]", "np.array([[0, 1], [1, 2]])",
         "[[0] * 3] * 3", "[0] * 40", "[[0]] * 40", "[[True, False, True], [0]]", "[True]", "['a']", "'ab'", "[np.int64(0), 1]"]


@pytest.mark.parametrize("subscript", LISTS)
@pytest.mark.filterwarnings("ignore")
def test_lists_stand_for_tuples_where_they_do_in_torch(subscript):
    def get(t):
        return t.arange(9).reshape(3, 3)[eval(subscript, {"t": t, "np": np})].tolist()

    def put(t):
        x = t.zeros(3, 3)
        x[eval(subscript, {"t": t, "np": np})] = 1
        return x.tolist()

    for run in (get, put):
        assert_same_outcome(lambda run=run: run(tg), lambda run=run: run(torch))


def test_a_list_that_stands_for_a_tuple_warns():
    with pytest.warns(UserWarning, match=r"index: a list of subscripts stands for a tuple: write x\[tuple\(list\)\]"):
        assert tg.arange(9).reshape(3, 3)[[tg.tensor(0)]].tolist() == [0, 1, 2]


def test_a_subscript_that_is_a_broken_sequence():
    class Broken:
        def __init__(self, error, where):
            self.error, self.where = error, where

        def __len__(self):
            return self.answer("len", 2)

        def __getitem__(self, i):
            return self.answer("item", 0)

        def answer(self, where, value):
            if where == self.where:
                raise self.error("from inside")
            return value

    x = tg.arange(9).reshape(3, 3)
    for where in ("len", "item"):
        for error in (KeyboardInterrupt, SystemExit, GeneratorExit):
            with pytest.raises(error):
                x[Broken(error, where)]
            with pytest.raises(error):
                x[Broken(error, where)] = 1
        with pytest.raises((LookupError, TypeError)):
            x[Broken(LookupError, where)]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
