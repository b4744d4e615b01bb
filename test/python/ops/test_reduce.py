"""Reductions where the engine's ways of walking meet: lengths around the lanes and blocks, several reduced lines, expanded ones."""

import math

import numpy as np
import pytest
import tapegrad as tg

LENGTHS = (1, 31, 32, 33, 63, 64, 70, 127, 129, 511, 4096, 4097, 200_003)


def _values(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n):
    a = _values(3, n)
    x = tg.tensor(a)
    exact = np.array([math.fsum(map(float, row)) for row in a])
    np.testing.assert_allclose(x.sum(1).numpy(), exact, rtol=1e-6, atol=1e-7 * math.sqrt(n))
    np.testing.assert_allclose(x.t().contiguous().sum(0).numpy(), exact, rtol=1e-6, atol=1e-7 * math.sqrt(n))
    np.testing.assert_array_equal(x.amax(1).numpy(), a.max(1))
    np.testing.assert_array_equal(x.t().contiguous().amin(0).numpy(), a.min(1))
    np.testing.assert_allclose(tg.linalg.vector_norm(x, dim=1).numpy(), np.sqrt((a.astype(np.float64) ** 2).sum(1)), rtol=1e-6)


@pytest.mark.parametrize("n", LENGTHS)
def test_nan_and_infinity_anywhere(n):
    for at in {0, n // 2, n - 1}:
        x = tg.zeros(2, n)
        x[0, at] = math.nan
        for result in (x.amax(1), x.amin(1), x.sum(1), x.t().contiguous().amax(0)):
            assert result.isnan().tolist() == [True, False]
        assert x.nansum(1).tolist() == [0, 0]
    if n > 1:
        x = tg.zeros(2, n)
        x[0, 0], x[0, n - 1] = math.inf, -math.inf
        assert x.nansum(1).isnan().tolist() == [True, False]


@pytest.mark.parametrize("shape, dims", [((4, 6, 64), (0, 2)), ((3, 4, 5, 70), (1, 3)), ((2, 600, 33), (0, 2)), ((5, 3, 8), (0, 2))])
@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.int32])
def test_several_lines_for_each_result(shape, dims, dtype):
    x = tg.tensor(np.random.default_rng(1).integers(-8, 9, shape)).to(dtype)
    expected = x.to(tg.int64).numpy()
    np.testing.assert_array_equal(x.sum(dims, dtype=tg.int64 if dtype == tg.int32 else tg.float32).numpy(), expected.sum(dims))
    np.testing.assert_array_equal(x.amax(dims).to(tg.int64).numpy(), expected.max(dims))


def test_expanded_lines():
    x = tg.arange(40).float().reshape(1, 1, 40).expand(3, 2, 40)
    assert x.sum((0, 2)).tolist() == [3 * 780] * 2
    assert x.flip(2)[:, :, ::2].sum((0, 2)).tolist() == [3 * 400] * 2


@pytest.mark.parametrize("n", LENGTHS)
def test_places_of_extremes(n):
    a = np.random.default_rng(2).integers(-20, 21, (3, n)).astype(np.float32)  # equal ones: the first counts
    for dtype in (tg.float32, tg.bfloat16, tg.float64, tg.int64, tg.int8):
        x = tg.tensor(a).to(dtype)
        np.testing.assert_array_equal(x.argmax(1).numpy(), a.argmax(1))
        np.testing.assert_array_equal(x.min(1).indices.numpy(), a.argmin(1))
        np.testing.assert_array_equal(x.min(1).values.to(tg.float32).numpy(), a.min(1))
    for at in {0, n // 2, n - 1}:
        x = tg.tensor(a)
        x[1, at:] = math.nan
        assert x.argmax(1).tolist() == [a[0].argmax(), at, a[2].argmax()]
        assert x.argmin(1)[1].item() == at


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "bfloat16", "float16"])
def test_logsumexp_beside_infinities_is_torch_s(dtype):
    """What is finite has no part in an infinite sum and so no gradient, however large it is."""
    torch = pytest.importorskip("torch")
    values = [1000.0, 0.0, -1000.0, math.inf, -math.inf, math.nan]
    for row in [[a, b] for a in values for b in values if not (math.isfinite(a) and math.isfinite(b))] + [[a] for a in values]:
        def look(library, row=row):
            x = library.tensor(row).to(getattr(library, dtype)).requires_grad_()
            y = library.logsumexp(x, 0)
            y.backward(library.ones_like(y) * 2)
            return y.detach(), x.grad

        for got, expected in zip(look(tg), look(torch)):
            got, expected = (t.to(library.complex128).numpy() for t, library in ((got, tg), (expected, torch)))
            for part in ("real", "imag"):
                np.testing.assert_allclose(getattr(got, part), getattr(expected, part), rtol=1e-6, err_msg=str(row))
