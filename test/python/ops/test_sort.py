"""Sorting against numpy: order, stability, NaN, zeros, long rows, layouts, threads; selection, unique, quantiles."""

import numpy as np
import pytest
import tapegrad as tg
import torch

RNG = np.random.default_rng(5)
DTYPES = [tg.bool, tg.uint8, tg.int8, tg.int16, tg.int32, tg.int64, tg.float16, tg.bfloat16, tg.float32, tg.float64]
SIZES = [1, 2, 15, 100, 191, 192, 193, 1000, 5000, 65_536, 200_001]


def random(n, dtype):
    """Values with many equal ones among them."""
    if dtype.is_floating_point:
        x = RNG.standard_normal(n) * 10.0 ** RNG.integers(-3, 3, n)
        x[RNG.random(n) < 0.2] = 1.5
        x[RNG.random(n) < 0.05] = -np.inf
        x[RNG.random(n) < 0.05] = 0.0
        x[RNG.random(n) < 0.05] = -0.0
        x[RNG.random(n) < 0.05] = np.nan
    elif dtype == tg.bool:
        x = RNG.integers(0, 2, n).astype(bool)
    else:
        info = tg.iinfo(dtype)
        x = np.where(RNG.random(n) < 0.5, RNG.integers(info.min, info.max, n, endpoint=True), RNG.integers(0, 9, n))
    return tg.tensor(x).to(dtype)


def numbers(t):
    return t.float().numpy() if t.dtype == tg.bfloat16 else t.numpy()


def stable_order(x, descending):
    """Stable, NaN largest."""
    if not descending:
        return np.argsort(x, kind="stable")
    return len(x) - 1 - np.argsort(x[::-1], kind="stable")[::-1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(dtype, descending):
    for n in SIZES:
        t = random(n, dtype)
        x = numbers(t)
        values, indices = tg.sort(t, descending=descending)
        order = stable_order(x, descending)
        assert (indices.numpy() == order).all(), n
        got = numbers(values)
        np.testing.assert_array_equal(got, x[order])
        if dtype.is_floating_point:
            assert (np.signbit(got) == np.signbit(x[order])).all()
        assert tg.equal(t.argsort(descending=descending), indices)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_sort_along_dimensions(dim):
    t = tg.tensor(RNG.standard_normal((13, 17, 19)))
    for layout in (t, t.permute(2, 0, 1), t[::2, :, 1::3]):
        values, indices = layout.sort(dim)
        np.testing.assert_array_equal(values.numpy(), np.sort(layout.numpy(), axis=dim))
        np.testing.assert_array_equal(indices.numpy(), np.argsort(layout.numpy(), axis=dim, kind="stable"))
        assert values.is_contiguous()


def test_same_for_any_number_of_threads():
    t = random(300_000, tg.float32)
    rows = random(300_000, tg.float64).reshape(600, 500)
    results = []
    for n in (1, 2, 3):
        tg.set_num_threads(n)
        results.append([*t.sort(), *rows.sort(0), *t.topk(20), *rows.topk(400), *t.kthvalue(70_000), *rows.median(1)])
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype, largest):
    for n, k in [(1, 1), (7, 3), (150, 2), (128, 8), (129, 9), (1000, 8), (1000, 16), (1000, 17), (150, 150), (1000, 1), (1000, 100), (1000, 900), (5000, 37), (300_000, 5), (300_000, 1000), (300_000, 200_000)]:
        t = random(n, dtype)
        x = numbers(t)
        values, indices = tg.topk(t, k, largest=largest)
        order = stable_order(x, largest)[:k]
        np.testing.assert_array_equal(indices.numpy(), order)
        np.testing.assert_array_equal(numbers(values), x[order])
        unsorted = tg.topk(t, k, largest=largest, sorted=False).indices.numpy()
        assert set(unsorted) == set(order)


def test_topk_where_every_block_improves():
    t = tg.arange(100_000, dtype=tg.float32)
    assert t.topk(3).indices.tolist() == [99_999, 99_998, 99_997]
    assert t.topk(3, largest=False).indices.tolist() == [0, 1, 2]
    assert t.flip(0).topk(2, largest=False).indices.tolist() == [99_999, 99_998]


@pytest.mark.parametrize("dtype", DTYPES)
def test_kthvalue(dtype):
    for n in (1, 9, 1000, 4096, 10_000, 300_000):
        t = random(n, dtype)
        x = numbers(t)
        order = np.argsort(x, kind="stable")
        for k in {1, (n + 1) // 2, n}:
            value, index = tg.kthvalue(t, k)
            assert index.item() == order[k - 1]
            np.testing.assert_array_equal(numbers(value), x[order[k - 1]])


def test_median_and_nan():
    x = tg.tensor([3.0, float("nan"), 1.0, 2.0])
    assert np.isnan(x.median().item()) and x.median(0).indices.item() == 1
    assert x.nanmedian().item() == 2 and x.nanmedian(0).indices.item() == 3
    assert np.isnan(tg.full((3,), float("nan")).nanmedian().item())
    assert np.isnan(tg.empty(0).median().item())
    assert tg.tensor([4, 1, 3, 2]).median().item() == 2
    r = RNG.standard_normal((40, 5001))
    np.testing.assert_array_equal(tg.tensor(r).median(1).values.numpy(), np.median(r, axis=1))
    np.testing.assert_array_equal(tg.tensor(r).median(0).values.numpy(), np.sort(r, axis=0)[19])


def test_mode():
    values, indices = tg.tensor([[3, 1, 3, 1, 2], [5, 5, 4, 4, 4]]).mode()
    assert values.tolist() == [1, 4] and indices.tolist() == [3, 4]
    assert tg.tensor([float("nan"), float("nan"), 7.0]).mode().values.item() == 7
    x = RNG.integers(0, 50, 2000)
    assert tg.tensor(x).mode().values.item() == np.bincount(x).argmax()


def test_gradients_go_to_the_chosen():
    x = tg.tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, indices = x.sort()
    assert values.requires_grad and not indices.requires_grad
    (values * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100, 1, 10]
    for f, expected in [(lambda t: t.topk(2).values.sum(), [1, 0, 1]), (lambda t: t.kthvalue(1).values, [0, 1, 0]),
                        (lambda t: t.median(), [0, 0, 1]), (lambda t: t.median(0, True).values, [0, 0, 1]),
                        (lambda t: tg.msort(t)[0], [0, 1, 0])]:
        (g,) = tg.autograd.grad(f(x), x)
        assert g.tolist() == expected
    y = tg.tensor([1.0, 1.0, 0.0, 2.0], requires_grad=True)
    (g,) = tg.autograd.grad(y.median(), y)
    assert g.tolist() == [0.5, 0.5, 0, 0]


def test_forms():
    x = tg.tensor([[2.0, 1.0], [4.0, 3.0]])
    values, indices = tg.empty(0), tg.empty(0, dtype=tg.int64)
    result = tg.sort(x, out=(values, indices))
    assert result.values is values and values.tolist() == [[1, 2], [3, 4]] and indices.tolist() == [[1, 0], [1, 0]]
    s = x.sort(dim=0, descending=True, stable=True)
    assert s.values.tolist() == [[4, 3], [2, 1]] and s.indices.tolist() == [[1, 1], [0, 0]]
    assert tg.sort(x.to("meta")).indices.shape == (2, 2)
    assert tg.topk(x.to("meta"), 1, dim=0).values.shape == (1, 2)
    assert tg.sort(tg.tensor(5.0)).indices.item() == 0 and tg.tensor(5).topk(1).values.shape == ()
    assert tg.empty(0, 3).sort(0).values.shape == (0, 3) and tg.empty(2, 0).sort().indices.shape == (2, 0)
    assert tg.empty(0, 3).median(1).values.shape == (0,)


@pytest.mark.parametrize("call, error", [
    (lambda: tg.ones(3).sort(1), IndexError),
    (lambda: tg.ones(3, dtype=tg.complex64).sort(), RuntimeError),
    (lambda: tg.ones(3).topk(4), RuntimeError),
    (lambda: tg.ones(3).topk(-1), RuntimeError),
    (lambda: tg.ones(3).kthvalue(0), RuntimeError),
    (lambda: tg.ones(3).kthvalue(4), RuntimeError),
    (lambda: tg.ones(2, 0).kthvalue(1), IndexError),
    (lambda: tg.ones(2, 0).median(1), IndexError),
    (lambda: tg.ones(2, 0).mode(), IndexError),
    (lambda: tg.ones(3).quantile(1.5), (ValueError, RuntimeError)),
    (lambda: tg.ones(3).quantile(0.5, interpolation="cubic"), RuntimeError),
    (lambda: tg.ones(3, dtype=tg.int64).quantile(0.5), RuntimeError),
    (lambda: tg.ones(3).topk("a"), TypeError),
])
def test_bad_arguments(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantile(method):
    x = RNG.standard_normal((6, 11))
    q = [0.0, 0.13, 0.5, 0.77, 1.0]
    for dim in (None, 0, 1):
        got = tg.quantile(tg.tensor(x), tg.tensor(q, dtype=tg.float64), dim, interpolation=method).numpy()
        np.testing.assert_allclose(got, np.quantile(x, q, axis=dim, method=method), rtol=1e-12)
    x[2, 3] = np.nan
    got = tg.tensor(x).quantile(0.4, 1).numpy()
    assert np.isnan(got).tolist() == [False, False, True, False, False, False]
    np.testing.assert_allclose(tg.tensor(x).nanquantile(0.4, 1).numpy(), np.nanquantile(x, 0.4, axis=1), rtol=1e-12)


def test_unique():
    x = RNG.integers(0, 20, 500)
    values, inverse, counts = tg.unique(tg.tensor(x), return_inverse=True, return_counts=True)
    expected = np.unique(x, return_inverse=True, return_counts=True)
    for got, want in zip((values, inverse, counts), expected):
        np.testing.assert_array_equal(got.numpy(), want)
    assert tg.tensor([3, 1, 3]).unique().tolist() == [1, 3]
    rows = tg.tensor([[1, 2], [0, 5], [1, 2]])
    assert rows.unique(dim=0).tolist() == [[0, 5], [1, 2]]
    run, where, many = tg.tensor([1, 1, 2, 1]).unique_consecutive(return_inverse=True, return_counts=True)
    assert (run.tolist(), where.tolist(), many.tolist()) == ([1, 2, 1], [0, 0, 1, 2], [2, 1, 1])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 2, 17, 5000])
def test_runs_of_equal_elements(n, dtype):
    x = np.random.default_rng(n).integers(0, 3, n) * 1.0
    if n > 2 and dtype.startswith(("float", "bfloat")):
        x[:3], x[n // 2 : n // 2 + 2] = [-0.0, 0.0, 0.0], np.nan
    theirs, ours = torch.tensor(x).to(getattr(torch, dtype)), tg.tensor(x).to(getattr(tg, dtype))
    for a, b in ((theirs, ours), (theirs[: n // 2 * 2].reshape(-1, 2).t(), ours[: n // 2 * 2].reshape(-1, 2).t())):
        want = torch.unique_consecutive(a, return_inverse=True, return_counts=True)
        values, counts = tg.unique_consecutive(b, return_counts=True)
        for got in (tg.unique_consecutive(b, return_inverse=True, return_counts=True), [tg.unique_consecutive(b)], [values, want[1], counts]):
            for g, w in zip(got, want):
                np.testing.assert_array_equal(g.double().numpy(), w.double().numpy())


@pytest.mark.parametrize("width", [1, 2, 5])
def test_unique_slices_with_nan(width):
    """NaN equals nothing and comes last, so the slices are in order. PyTorch's sort takes NaN for equal to all, and its order depends on that of
    the input; the slices and how often they occur are the same."""
    x = np.random.default_rng(width).choice([np.nan, 0.0, -0.0, 1.0, np.inf], (40, width))
    values, inverse, counts = tg.tensor(x).unique(dim=0, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(values.numpy()[inverse.numpy()], x)
    assert counts.tolist() == np.bincount(inverse.numpy()).tolist()
    keys = [[(v != v, 0 if v != v else v) for v in row] for row in values.tolist()]
    assert keys == sorted(keys)
    whole = ~np.isnan(x).any(1)
    assert len(values) == len(np.unique(x[whole] + 0.0, axis=0)) + int((~whole).sum())
    if width == 1:
        np.testing.assert_array_equal(values.numpy()[:, 0], tg.tensor(x).unique().numpy())


@pytest.mark.parametrize("dim", [None, 0])
def test_unique_of_complex_numbers_with_nan(dim):
    rng = np.random.default_rng(0)
    x = rng.choice([np.nan, 0.0, 1.0, 2.0], 300) + 1j * rng.choice([0.0, 1.0, np.nan], 300)
    values, inverse, counts = tg.tensor(x).unique(dim=dim, return_inverse=True, return_counts=True)
    whole = ~np.isnan(x)
    assert len(values) == len(np.unique(x[whole])) + int((~whole).sum())
    np.testing.assert_array_equal(values.numpy()[inverse.numpy()], x)
    np.testing.assert_array_equal(np.unique(x[whole]), values.numpy()[~np.isnan(values.numpy())])
    assert counts.sum() == 300 and (counts[values.isnan()] == 1).all()


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 40, 300])
def test_the_mode_s_place_is_the_last_of_equals(n):
    """And its gradient goes there. So are PyTorch's up to 16 elements; in longer rows its sort leaves equals in no order, and any of them is
    the place, which is not followed."""
    torch = pytest.importorskip("torch")
    for seed in range(20):
        a = np.random.default_rng(seed).integers(0, 3, (2, n)).astype(np.float64)

        def look(library, a=a):
            x = library.tensor(a.tolist(), requires_grad=True)
            values, places = x.mode(1)
            (grad,) = library.autograd.grad(values, x, library.tensor([2.0, 3.0]))
            return values.tolist(), places.tolist(), grad.tolist()

        values, places, grad = look(tg)
        assert places == [n - 1 - int((row[::-1] == v).argmax()) for row, v in zip(a, values)]
        assert grad == [[g if i == place else 0.0 for i in range(n)] for g, place in zip((2.0, 3.0), places)]
        if n <= 16:
            assert (values, places, grad) == look(torch)
        else:
            assert values == look(torch)[0]
