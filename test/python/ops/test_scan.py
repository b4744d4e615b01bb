"""Scans against numpy in double precision: every layout of lines, sizes around the tiles, long lines, special values, threads."""

import itertools
import math

import numpy as np
import pytest
import tapegrad as tg

RNG = np.random.default_rng(11)
SHAPES = [((1,), 0), ((70,), 0), ((1023,), 0), ((5000,), 0), ((200_001,), 0), ((3, 2100), 1), ((16, 64), 1), ((17, 65), 1), ((33, 200), 1), ((33, 200), 0),
          ((4, 50, 3), 1), ((40, 70, 3), 1), ((2, 130, 20), 1), ((2, 130, 70), 1), ((6, 1), 1)]
DTYPES = [tg.float32, tg.float64, tg.bfloat16, tg.float16, tg.int64, tg.int32, tg.uint8]


def sample(shape, dtype, special=False):
    """A tensor of the dtype, and the same values as numpy has them."""
    x = RNG.integers(-3, 4, shape) if not dtype.is_floating_point else RNG.standard_normal(shape)
    if special:
        where = RNG.random(shape)
        x = np.where(where < 0.03, -np.inf, np.where(where > 0.995, np.nan, np.where(where > 0.97, np.inf, x * 100)))
    t = tg.tensor(x).to(dtype)
    return t, numbers(t)


def numbers(t):
    return t.double().numpy() if t.dtype.is_floating_point else t.numpy()


def close(t, expected, error):
    if not t.dtype.is_floating_point:
        np.testing.assert_array_equal(t.numpy(), expected)
    else:
        eps = tg.finfo(t.dtype).eps
        np.testing.assert_allclose(numbers(t), expected, rtol=eps, atol=eps * error)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_sums_and_products(shape, dim, dtype):
    t, x = sample(shape, dtype)
    # Sums of 16-bit numbers are kept in float: one rounding at the end.
    close(t.cumsum(dim, dtype=dtype), x.cumsum(dim, dtype=x.dtype), 1)
    if dtype.is_floating_point:
        t, x = (1 + t / 64), 1 + x / 64
        x = numbers(t)
        factor = 1e-7 * x.shape[dim] / tg.finfo(dtype).eps if dtype != tg.float64 else x.shape[dim]
        expected = x.cumprod(dim)
        np.testing.assert_allclose(numbers(t.cumprod(dim)), expected, rtol=tg.finfo(dtype).eps * (1 + factor), atol=1e-7)
    else:
        np.testing.assert_array_equal(t.cumprod(dim, dtype=dtype).numpy(), x.cumprod(dim, dtype=x.dtype))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_extremes(shape, dim, dtype, special):
    if special and not dtype.is_floating_point:
        special = False
    t, x = sample(shape, dtype, special)
    for scan, fold in ((t.cummax, np.maximum), (t.cummin, np.minimum)):
        values, indices = scan(dim)
        expected = fold.accumulate(x, dim)
        np.testing.assert_array_equal(numbers(values), expected)
        # The last element so far that equals the result.
        steps = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        hit = (x == expected) | np.isnan(x)
        np.testing.assert_array_equal(indices.numpy(), np.maximum.accumulate(np.where(hit, steps, 0), dim))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", [t for t in DTYPES if t.is_floating_point], ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_logcumsumexp(shape, dim, dtype, special):
    t, x = sample(shape, dtype, special)
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.accumulate(x, dim)
    np.testing.assert_allclose(numbers(t.logcumsumexp(dim)), expected, rtol=2 * tg.finfo(dtype).eps, atol=2 * max(tg.finfo(dtype).eps, 1e-12))


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_logcumsumexp_of_complex_numbers(shape, dim):
    x = RNG.standard_normal(shape) * 5 + 1j * RNG.standard_normal(shape)
    expected = np.log(np.add.accumulate(np.exp(x), dim))
    for dtype, tolerance in ((tg.complex128, 1e-12), (tg.complex64, 2e-5)):
        result = tg.tensor(x, dtype=dtype).logcumsumexp(dim)
        np.testing.assert_allclose(np.exp(result.numpy() - expected), np.ones(shape), atol=tolerance)  # equal but for 2 pi i


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("parts", [[0.0, -0.0, 1.0, -1.0, 3.0, 4.0, 25.0, np.inf, -np.inf, np.nan], None])
def test_complex_logarithms_of_sums_have_torch_s_branch(dtype, parts):
    """Imaginary parts go on from that of the largest number and are not brought back into (-pi, pi]; infinities and NaN."""
    torch = pytest.importorskip("torch")
    if parts is None:
        x, y = (RNG.standard_normal(3000) * 3 + 1j * RNG.standard_normal(3000) * 20 for _ in range(2))
    else:
        numbers_of = np.array([complex(a, b) for a in parts for b in parts])
        x, y = (grid.ravel() for grid in np.meshgrid(numbers_of, numbers_of))
    tolerance = 2e-5 if dtype == "complex64" else 1e-12

    def both(library):
        a, b = (library.tensor(v, dtype=getattr(library, dtype)) for v in (x, y))
        return [library.logaddexp(a, b), library.logcumsumexp(library.stack([a, b, a]), 0), library.logcumsumexp(library.stack([a, b, b], 1), 1),
                library.logcumsumexp(a if parts is None else a[:1], 0)]

    for got, expected in zip(both(tg), both(torch)):
        for part in ("real", "imag"):
            np.testing.assert_allclose(getattr(got.numpy(), part), getattr(expected.numpy(), part), rtol=tolerance, atol=tolerance * 60)


def test_logcumsumexp_of_distant_complex_numbers():
    inf = np.inf
    result = tg.tensor([complex(-inf, 3), 1e3 + 1j, 1e3 - 1j, complex(inf, 2), complex(np.nan, 0)]).logcumsumexp(0).numpy()
    expected = [complex(-inf, 0), 1e3 + 1j, 1e3 + np.log(2 * np.cos(1.0)), complex(inf, 2), complex(np.nan, np.nan)]
    np.testing.assert_allclose(result, np.array(expected, np.complex64), rtol=1e-6)


def test_logcumsumexp_of_distant_values():
    x = tg.tensor([[-1e4, 0.0, 1e4, 1e4, -np.inf], [-np.inf, -np.inf, -1000.0, 1000.0, 0.0]]).repeat(9, 1)
    expected = np.logaddexp.accumulate(x.double().numpy(), 1)
    np.testing.assert_allclose(x.logcumsumexp(1).numpy(), expected, rtol=1e-6)
    # Nothing of the second term is lost beside the first.
    assert tg.tensor([0.0, -20.0]).logcumsumexp(0)[1].item() == pytest.approx(np.log1p(np.exp(-20.0)), rel=1e-5)


def test_the_same_bits_for_any_number_of_threads():
    x = tg.tensor(RNG.standard_normal(300_001)).float()
    results = []
    for threads in (1, 2, 5):
        tg.set_num_threads(threads)
        results.append([f(0) for f in (x.cumsum, x.bfloat16().cumsum, x.cumprod, x.logcumsumexp)] + [x.cummax(0)[1]])
    for other in results[1:]:
        assert all(tg.equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("dtype", [tg.bfloat16, tg.float16])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_rows_of_sixteen_bits(dtype, name):
    """Lengths and numbers of rows around the tiles that are transposed in pairs; rows at even and odd places of memory."""
    for rows, n in itertools.product((15, 16, 17, 40), (1, 31, 32, 33, 64, 65, 96, 128, 200)):
        for shift in (0, 1):
            x = (tg.randn(rows, n + shift) * 0.2 + 1).to(dtype)[:, shift:]
            if n % 2:
                x[rows // 2, n // 2] = math.nan
            got, wide = getattr(x, name)(1), getattr(x.float(), name)(1)
            if name in ("cummax", "cummin"):
                assert tg.equal(got[1], wide[1])
                got, wide = got[0], wide[0]
            assert got.dtype == dtype
            # one rounding of the result, and of sums and products a few of floats
            assert tg.allclose(got.float(), wide.to(dtype).float(), rtol=2 ** -7 if dtype is tg.bfloat16 else 2 ** -10, equal_nan=True)
