"""Products of few rows: every size about the borders of the kernel's blocks, both layouts of the matrix, any strides of the rows."""

import numpy as np
import pytest
import tapegrad as tg

DTYPES = [tg.float32, tg.float16, tg.bfloat16]


def numbers(rng, *shape):
    return tg.from_numpy(rng.integers(-4, 5, shape).astype(np.float32) / 4)  # sums of these are exact


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17])
def test_exact_products(m, dtype):
    rng = np.random.default_rng(m)
    sizes = [(32, 512), (33, 513), (63, 700), (512, 40), (513, 64), (1100, 65), (1024, 300), (4097, 17), (31, 2100), (100, 2049)]
    if m in (9, 15):  # a weight that the second cache does not hold
        sizes.append((1033, 4096))
    for k, n in sizes:
        a, w, bias = numbers(rng, m, k), numbers(rng, n, k), numbers(rng, n)
        expected = a.double().numpy() @ w.double().numpy().T
        x, y, b = a.to(dtype), w.to(dtype), bias.to(dtype)
        rounded = tg.from_numpy(expected).to(tg.float32).to(dtype)
        assert tg.equal(x @ y.t(), rounded)  # contiguous columns
        assert tg.equal(x @ y.t().contiguous(), rounded)  # contiguous rows
        with_bias = tg.from_numpy(expected + bias.double().numpy()).to(tg.float32).to(dtype)
        assert tg.equal(tg.nn.functional.linear(x, y, b), with_bias)
        assert tg.equal(tg.addmm(b, x, y.t().contiguous()), with_bias)
        wide = tg.zeros(m, 2 * k, dtype=dtype)
        wide[:, ::2] = x
        assert tg.equal(wide[:, ::2] @ y.t(), rounded) and tg.equal(wide[:, ::2] @ y.t().contiguous(), rounded)
        assert tg.equal(x.t().contiguous().t() @ y.t(), rounded)
        assert tg.equal(y @ x[0], rounded[0]) and tg.equal(tg.mv(y.t().contiguous().t(), wide[0, ::2]), rounded[0])
        more = tg.zeros(n, k + 5, dtype=dtype)
        more[:, :k] = y
        assert tg.equal(x @ more[:, :k].t(), rounded)
        scaled = tg.from_numpy(0.5 * expected - 2 * bias.double().numpy()).to(tg.float32).to(dtype)
        assert tg.equal(tg.addmm(b, x, y.t(), beta=-2, alpha=0.5), scaled)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [False, True])
def test_a_row_has_the_same_bits_whatever_stands_beside_it(dtype, rows):
    rng = np.random.default_rng(3)
    k, n = 777, 901
    a, w = (tg.from_numpy(rng.normal(size=s).astype(np.float32)).to(dtype) for s in ((16, k), (k, n)))
    w = w if rows else w.t().contiguous().t()
    most = 4 if rows else 8 if dtype == tg.bfloat16 else 16  # more rows of bfloat16 may be multiplied by instructions of its own
    together = a[:most] @ w
    for m in range(1, most):
        assert tg.equal(a[:m] @ w, together[:m])
    for count in (1, 2, 3, 5):
        tg.set_num_threads(count)
        assert tg.equal(a[:most] @ w, together)


@pytest.mark.parametrize("layout", ["columns", "rows"])
def test_what_is_no_number_stays_in_its_row_and_column(layout):
    w = tg.ones(600, 200)
    w = w.t() if layout == "columns" else w.t().contiguous()
    a = tg.ones(3, 200)
    a[1, 199], a[2, 0] = tg.nan, tg.inf
    w[5, 7] = -tg.inf
    y = a @ w
    assert y[0].isfinite().sum() == 599 and y[0, 7] == -tg.inf and y[1].isnan().all() and y[2, 7].isnan() and (y[2].isinf().sum() == 599)


def test_gradients_batches_and_out():
    a, w = tg.randn(2, 300, dtype=tg.float64).float().requires_grad_(), tg.randn(300, 256).requires_grad_()
    (a @ w).sum().backward()
    assert tg.allclose(a.grad, w.detach().sum(1).expand(2, 300), atol=1e-3) and tg.allclose(w.grad, a.detach().sum(0)[:, None].expand(300, 256), atol=1e-3)
    x, y = tg.randn(3, 2, 300), tg.randn(3, 300, 256)
    assert all(tg.equal(tg.bmm(x, y)[i], x[i] @ y[i]) for i in range(3))
    out = tg.full((2, 256), tg.nan)
    assert tg.mm(a.detach(), w.detach(), out=out) is out and tg.equal(out, (a @ w).detach())
    assert (tg.zeros(0, 300) @ w).shape == (0, 256) and (tg.ones(1, 300) @ tg.empty(300, 0)).shape == (1, 0)
