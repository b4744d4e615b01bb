"""Products of a few thousand multiplications, which have kernels of their own (aten/linalg/product/small_cpu.cpp)."""

import itertools

import numpy as np
import pytest
import tapegrad as tg

SIZES = [(1, 16, 16), (2, 8, 9), (3, 17, 5), (7, 31, 33), (8, 32, 16), (9, 33, 31), (8, 4, 32), (4, 8, 128), (5, 1, 100), (32, 16, 8), (33, 15, 17), (20, 20, 20),
         (32, 32, 32), (2, 40, 40), (8, 32, 32), (64, 64, 8), (3, 5, 7), (16, 16, 64), (16, 16, 65), (12, 7, 128), (12, 7, 129)]


def _matrix(rows, columns, layout, rng):
    """Of integers, whose products are exact; what lies between rows and columns is NaN."""
    values = rng.integers(-8, 9, (rows, columns)).astype(np.float32)
    t = {"rows": lambda: tg.tensor(values), "columns": lambda: tg.tensor(values.T.copy()).t(),
         "wide rows": lambda: tg.full((rows, columns + 3), float("nan"))[:, 1:columns + 1],
         "wide columns": lambda: tg.full((columns, rows + 5), float("nan"))[:, 2:rows + 2].t(),
         "steps": lambda: tg.full((rows, 2 * columns), float("nan"))[:, ::2]}[layout]()
    return t.copy_(tg.tensor(values)), values


@pytest.mark.parametrize("m, n, k", SIZES)
def test_all_layouts(m, n, k):
    rng = np.random.default_rng(m * 10000 + n * 100 + k)
    layouts = ("rows", "columns", "wide rows", "wide columns", "steps")
    for la, lb in itertools.product(layouts, layouts):
        (a, x), (b, y) = _matrix(m, k, la, rng), _matrix(k, n, lb, rng)
        out = tg.full((m, n), float("nan"))
        assert np.array_equal(tg.mm(a, b, out=out).numpy(), x @ y), (la, lb)
        c = rng.integers(-8, 9, (m, n)).astype(np.float32)
        assert np.array_equal(tg.addmm(tg.tensor(c), a, b).numpy(), x @ y + c), (la, lb)
        assert np.array_equal(tg.addmm(tg.tensor(c), a, b, beta=0.5, alpha=-2).numpy(), -2 * (x @ y) + 0.5 * c), (la, lb)


@pytest.mark.parametrize("columns", [False, True])
def test_an_element_has_the_same_bits_whatever_is_computed_beside_it(columns):
    tg.manual_seed(0)
    a, b = tg.randn(20, 24), tg.randn(30, 24).t() if columns else tg.randn(24, 30)
    whole = a @ b
    for m, n in ((2, 8), (3, 30), (9, 17), (20, 16), (17, 29)):
        assert np.array_equal((a[:m] @ b[:, :n]).numpy().view(np.int32), whole[:m, :n].numpy().view(np.int32)), (m, n)


def test_infinity_and_nan_stay_in_their_rows_and_columns():
    a, b = tg.ones(5, 20), tg.ones(9, 20).t()
    a[2, 3], b[4, 6] = float("inf"), float("nan")
    c = (a @ b).numpy()
    assert np.isnan(c[:, 6]).all() and np.isinf(np.delete(c[2], 6)).all()
    assert (np.delete(np.delete(c, 6, 1), 2, 0) == 20).all()


def test_batches_of_small_products():
    rng = np.random.default_rng(5)
    x, y = rng.integers(-8, 9, (7, 12, 16)).astype(np.float32), rng.integers(-8, 9, (7, 16, 19)).astype(np.float32)
    assert np.array_equal(tg.bmm(tg.tensor(x), tg.tensor(y)).numpy(), x @ y)
    assert np.array_equal(tg.bmm(tg.tensor(x), tg.tensor(y.transpose(0, 2, 1).copy()).transpose(1, 2)).numpy(), x @ y)
