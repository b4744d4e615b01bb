"""The float32 functions that are our own: errors in units of the last place against float64, special values, every place in a vector."""

import math

import numpy as np
import pytest
import tapegrad as tg
import torch

inf, nan = math.inf, math.nan


def _ulps(got, exact):
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.max(np.abs(got.astype(np.float64) - exact) / unit)


def equal_to_the_sign(found, expected):
    """All are equal, and so are the signs of those that are not NaN."""
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(found)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("name, bound, low, high",
                         [("exp", 1.2, -87, 88), ("exp", 1.2, -1, 1), ("log", 1.1, 1e-38, 3e38), ("log", 1.1, 0.3, 3), ("log", 1.1, 1e-45, 2e-38), ("erf", 1.6, -5, 5), ("erf", 1.6, -0.3, 0.3), ("tanh", 1.5, -11, 11), ("tanh", 1.5, -0.7, 0.7), ("expm1", 1.2, -17.5, 88.7), ("expm1", 1.1, -1, 1), ("expm1", 0.6, -1e-3, 1e-3)])
def test_errors(name, bound, low, high):
    x = tg.linspace(low, high, 200_003)
    assert _ulps(getattr(tg, name)(x).numpy(), getattr(tg, name)(x.double()).numpy()) < bound


def test_error_of_pow():
    x = tg.linspace(0.01, 8, 100_003)
    for y in (1.7, -3.3, 0.01, 20.5, 40.0):
        exact = x.double() ** float(np.float32(y))
        assert _ulps((x**y).numpy(), exact.numpy()) < 1.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype):
    """Quotients to 2^28 by one division in double, of doubles to 2^52, others on their own: whole ones, those next to a whole number, subnormal and infinite operands, any place in a vector."""
    draw = np.random.default_rng(0)
    wide = 1 if dtype == np.float32 else 2
    a = draw.normal(size=100_003) * 2.0 ** (wide * draw.integers(-30, 30, 100_003))
    b = draw.normal(size=100_003) * 2.0 ** draw.integers(-20, 20, 100_003)
    a, b = a.astype(dtype), b.astype(dtype)
    whole = (b[:5000] * np.round(np.abs(a[:5000]) % 5000)).astype(dtype)
    special = np.array([0, -0.0, 1, -1, inf, -inf, nan, 1e-45, -1e-45, 3e38, 7e-39, 2**24, 2**24 - 1, 2.0**28, 2.0**29 - 16, -0.3, 2.0**52 - 0.5, 2.0**52, 2.0**53 - 1, 3 * 2.0**60], dtype=dtype)
    special = np.append(special, [] if dtype == np.float32 else [5e-324, 1.5e-308, 1.7e308, -1.7e308]).astype(dtype)
    pairs = [(a, b), (whole, b[:5000]), (np.nextafter(whole, dtype(inf)), b[:5000]), (np.nextafter(whole, dtype(-inf)), b[:5000]),
             (np.repeat(special, len(special)), np.tile(special, len(special)))]
    for x, y in pairs:
        with np.errstate(all="ignore"):
            expected = np.fmod(x, y)
        for start in (0, 1, 7):
            found = tg.fmod(tg.tensor(x[start:]), tg.tensor(y[start:])).numpy()
            equal_to_the_sign(found, expected[start:])
            # PyTorch's remainders are NaN where the quotient is beyond 2^128.
            with np.errstate(all="ignore"):
                rest = np.remainder(x, y)[start:]
            np.testing.assert_array_equal(tg.remainder(tg.tensor(x[start:]), tg.tensor(y[start:])).numpy(), rest)
            quotient = torch.floor_divide(torch.tensor(x[start:]), torch.tensor(y[start:])).numpy()
            np.testing.assert_array_equal(tg.floor_divide(tg.tensor(x[start:]), tg.tensor(y[start:])).numpy(), quotient)
        for divisor in (0.3, -7.0):
            np.testing.assert_array_equal(tg.fmod(tg.tensor(x), divisor).numpy(), np.fmod(x, dtype(divisor)))


def test_errors_of_gelu():
    x = tg.linspace(-7, 7, 100_003)
    gelu = tg.nn.functional.gelu
    assert ((gelu(x).double() - gelu(x.double())).abs() / (1 + x.abs())).max() < 1e-7
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    gelu(a).sum().backward()
    gelu(b).sum().backward()
    assert (a.grad.double() - b.grad).abs().max() < 2e-7


@pytest.mark.parametrize("name, values", [
    ("exp", {0.0: 1, -inf: 0, inf: inf, 89.0: inf, 1e30: inf, -104.0: 0, -1e30: 0, -103.0: 1.401298464324817e-45}),
    ("log", {0.0: -inf, 1.0: 0, inf: inf, 1.401298464324817e-45: -103.2789306640625, 2.0: 0.6931471824645996}),
    ("erf", {0.0: 0, inf: 1, -inf: -1, 4.2: 1, -3e38: -1}),
    ("tanh", {0.0: 0, inf: 1, -inf: -1, 12.0: 1, -3e38: -1}),
])
def test_special_values(name, values):
    for place in range(0, 33, 4):
        x = tg.full((33,), nan)
        for i, v in enumerate(values):
            x[(place + i) % 33] = v
        y = getattr(tg, name)(x).tolist()
        for i, v in enumerate(values.values()):
            assert y[(place + i) % 33] == v
        assert sum(math.isnan(v) for v in y) == 33 - len(values)
    if name == "log":
        assert tg.tensor([-1.0, -0.0, -inf, -1e-45] * 8).log().isnan().tolist() == [True, False, True, True] * 8
    elif name != "exp":
        assert math.copysign(1, getattr(tg, name)(tg.tensor([-0.0] * 16))[3].item()) == -1


def test_special_values_of_pow():
    bases = np.array([0.0, -0.0, 1, -1, 2, -2, inf, -inf, nan, 1e-45, 3e38, -0.5], np.float32)
    powers = np.array([0.0, -0.0, 1, -1, 2, 3, -3, 0.5, inf, -inf, nan, 1e30, 3e9, 200, -200], np.float32)
    x, y = (tg.tensor(a.ravel()) for a in np.meshgrid(bases, powers))
    with np.errstate(over="ignore"):
        expected = (x.double() ** y.double()).numpy().astype(np.float32)
    np.testing.assert_allclose((x**y).numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit((x**y).numpy()[expected == 0]), np.signbit(expected[expected == 0]))


def test_clamp_lets_nan_win():
    x = tg.tensor([nan, -1.0, 0.5, 2.0] * 8)
    assert x.clamp(0, 1).nan_to_num(7).tolist() == [7, 0, 0.5, 1] * 8
    assert x.clamp(tg.full((32,), nan), tg.full((32,), 1.0)).isnan().all()
    assert x.clamp(tg.full((32,), 0.0), tg.full((32,), nan)).isnan().all()
    assert x.clamp(2, 1)[1:4].tolist() == [1, 1, 1]
    assert tg.nn.functional.hardtanh(x)[:4].nan_to_num(7).tolist() == [7, -1, 0.5, 1]
    assert tg.nn.functional.hardswish(x)[0].isnan()


def test_special_values_of_expm1():
    x = [0.0, -0.0, 1e-45, -1e-45, 1e-38, inf, -inf, nan, 88.7, 88.73, -104.0, -17.4, -25.0, 3e38, -3e38]
    exact = np.expm1(np.array(x, dtype=np.float32).astype(np.float64))
    found = tg.expm1(tg.tensor(x)).numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, exact.astype(np.float32), rtol=2e-7, atol=0)
    np.testing.assert_array_equal(np.signbit(found[:5]), [False, True, False, True, False])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbours(dtype):
    """Every pair of special values, in any place of a vector, and steps across powers of two."""
    info = np.finfo(dtype)
    special = np.array([0, -0.0, 1, -1, inf, -inf, nan, info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal, 1 - info.eps / 2, 2, 0.1], dtype=dtype)
    a, b = np.repeat(special, 16), np.tile(special, 16)
    with np.errstate(all="ignore"):
        expected = np.nextafter(a, b)
    for start in (0, 1, 7):
        found = tg.nextafter(tg.tensor(a[start:]), tg.tensor(b[start:])).numpy()
        equal_to_the_sign(found, expected[start:])


def test_digamma_and_erfinv_of_float32():
    """Without branches, to the last place of float64's results; poles, ends and NaN."""
    x = np.concatenate([np.geomspace(1e-30, 1e30, 2001), np.linspace(-9.97, -0.03, 333) + 1e-3, np.linspace(0.5, 8, 999)]).astype(np.float32)
    exact = tg.digamma(tg.tensor(x.astype(np.float64))).numpy()
    found = tg.digamma(tg.tensor(x)).numpy()
    assert np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 1)) < 1e-7
    found = tg.digamma(tg.tensor([0.0, -0.0, -3.0, inf, -inf, nan, 3e38])).numpy()
    np.testing.assert_array_equal(found, np.array([-inf, inf, nan, inf, nan, nan, np.log(3e38)], dtype=np.float32))
    x = np.concatenate([np.linspace(-1, 1, 4001)[1:-1], 1 - np.geomspace(6e-8, 0.2, 500), np.geomspace(1e-40, 1e-3, 300)]).astype(np.float32)
    x = x[np.abs(x) < 1]
    assert _ulps(tg.erfinv(tg.tensor(x)).numpy(), tg.erfinv(tg.tensor(x.astype(np.float64))).numpy()) < 0.6
    found = tg.erfinv(tg.tensor([0.0, -0.0, 1, -1, 1.0000001, -2, nan, inf])).numpy()
    np.testing.assert_array_equal(found, [0, 0, inf, -inf, nan, nan, nan, nan])
    assert np.signbit(found[1]) and not np.signbit(found[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_bounds_keep_nan_and_the_sign_of_zero(dtype):
    """Every triple of special values in any place of a vector: PyTorch's result, where bounds are numbers to the sign of 0, which PyTorch itself takes from either where they are tensors."""
    special = torch.tensor([0, -0.0, 1, -1, 2.5, inf, -inf, nan], dtype=getattr(torch, dtype))
    x = special.repeat(9)

    def same(found, expected, sign=True):
        np.testing.assert_array_equal(found.double().numpy(), expected.double().numpy())
        number = ~torch.isnan(expected)
        assert not sign or (torch.signbit(expected)[number] == torch.tensor(tg.signbit(found).numpy())[number]).all()

    mine = tg.tensor(x.double().numpy(), dtype=getattr(tg, dtype))
    for low in special:
        for high in special:
            for start in (0, 5):
                expected = torch.clamp(x[start:], low.item(), high.item())
                same(tg.clamp(mine[start:], low.item(), high.item()), expected)
                lows, highs = (t.expand(x[start:].shape).clone() for t in (low, high))
                got = tg.clamp(mine[start:], *(tg.tensor(t.double().numpy(), dtype=getattr(tg, dtype)) for t in (lows, highs)))
                same(got, torch.clamp(x[start:], lows, highs), sign=False)
    for f in ("maximum", "minimum"):
        a, b = torch.meshgrid(special, special, indexing="ij")
        got = getattr(tg, f)(*(tg.tensor(t.double().contiguous().numpy(), dtype=getattr(tg, dtype)) for t in (a, b)))
        np.testing.assert_array_equal(got.double().numpy(), getattr(torch, f)(a, b).double().numpy())
