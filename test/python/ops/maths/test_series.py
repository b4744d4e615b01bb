"""Special functions that are series of a fixed length: errors against PyTorch in float64, special values, every place in a vector."""

import math

import numpy as np
import pytest
import tapegrad as tg
import torch

inf, nan = math.inf, math.nan
FUNCTIONS = {  # least and greatest argument, largest error (of float64, of float32) relative to max(least size, result)
    "bessel_j0": (-300, 300, 1), "bessel_j1": (-300, 300, 1), "i0e": (-600, 600, 0), "i1e": (-600, 600, 0), "i0": (-85, 85, 0), "i1": (-85, 85, 0),
    "erfcx": (-9, 90, 0), "ndtr": (-12, 8, 0), "log_ndtr": (-40, 8, 0)}


def reference(name, x):
    if name == "ndtr":  # PyTorch's own is 0 or one step of 1 left of -8
        return torch.special.erfc(torch.tensor(x) * -math.sqrt(0.5)).numpy() / 2
    if not name.startswith("bessel"):
        return getattr(torch.special, name)(torch.tensor(x)).numpy()
    # Bessel's integral by the trapezoidal rule, since PyTorch's own err by 5e-7 at 5.
    angle = np.arange(1024) * (2 * np.pi / 1024)
    return np.concatenate([np.cos(int(name[-1]) * angle - part[:, None] * np.sin(angle)).mean(1) for part in np.array_split(x, 20)])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype, bound", [("float64", 2e-13), ("float32", 1.3e-7)])
def test_errors(name, dtype, bound):
    low, high, floor = FUNCTIONS[name]
    x = np.linspace(low, high, 20_011).astype(dtype)
    x = np.concatenate([x, np.nextafter(np.float32(8), np.float32([0, 8, 9])).astype(dtype), -np.float32([8, 1e-8, 1e-30]).astype(dtype)])
    exact = reference(name, x.astype(np.float64))
    for start in (0, 5):
        found = getattr(tg.special, name)(tg.tensor(x[start:])).numpy().astype(np.float64)
        assert np.max(np.abs(found - exact[start:]) / np.maximum(np.abs(exact[start:]), floor)[()].clip(1e-300)) < bound


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    x = [0.0, -0.0, inf, -inf, nan, 1e-45, -1e-45] + ([] if name.startswith("bessel") else [3e38])
    for dtype in ("float32", "float64"):
        found = getattr(tg.special, name)(tg.tensor(x, dtype=getattr(tg, dtype))).numpy()
        exact = getattr(torch.special, name)(torch.tensor(x, dtype=torch.float64)).numpy()
        if name.startswith("bessel"):  # PyTorch's are NaN at infinity
            exact[2:4] = 0
        if name in ("i0", "i1"):
            exact[2:4] = inf, inf if name == "i0" else -inf
        np.testing.assert_allclose(found, exact.astype(dtype), rtol=1e-6 if dtype == "float32" else 1e-13, atol=1e-44)
        assert found[0] == exact[0] or name in ("erfcx", "ndtr", "log_ndtr")


@pytest.mark.parametrize("dtype, bound", [("float64", 1e-9), ("float32", 1.3e-7)])  # PyTorch's errs by 5e-10
def test_trigamma(dtype, bound):
    x = np.concatenate([np.linspace(0.01, 30, 3001), np.linspace(-9.97, -0.03, 333) + 1e-3, [4.9999, 5, 9.9999, 10, 1e-5, 1e5]]).astype(dtype)
    x = x[(np.abs(x - np.round(x)) > 0.005) | (x > 0)]  # not next to a pole
    exact = torch.special.polygamma(1, torch.tensor(x.astype(np.float64))).numpy()
    assert np.max(np.abs(tg.polygamma(1, tg.tensor(x)).numpy() - exact) / np.abs(exact)) < bound
    known = tg.polygamma(1, tg.tensor([1, 0.5, 0.25, -0.5], dtype=tg.float64)).numpy()
    np.testing.assert_allclose(known, [np.pi**2 / 6, np.pi**2 / 2, np.pi**2 + 8 * 0.915965594177219015, np.pi**2 / 2 + 4], rtol=2e-15)
    found = tg.polygamma(1, tg.tensor([0.0, -0.0, -3.0, inf, -inf, nan, 1e300], dtype=tg.float64)).numpy()
    np.testing.assert_array_equal(found, [inf, inf, inf, 0, inf, nan, 1e-300])


def y(order, x):
    """Bessel's integrals (DLMF 10.9.7) by the rules of Gauss and Legendre, that of the exponential on pieces."""
    node, weight = np.polynomial.legendre.leggauss(400)
    angle, half = (node + 1) * (np.pi / 2), weight * np.pi / 2
    wave = np.array([half @ np.sin(v * np.sin(angle) - order * angle) for v in x])
    edges = np.linspace(0, 1, 41)
    t = (edges[:-1, None] + (node + 1) / 80).ravel()
    end = np.arcsinh(45 / x)
    decay = np.array([end_ / 80 * np.tile(weight, 40) @ ((np.exp(order * end_ * t) + (-1) ** order * np.exp(-order * end_ * t)) * np.exp(-v * np.sinh(end_ * t)))
                      for v, end_ in zip(x, end)])
    return (wave - decay) / np.pi


def scaled_k(order, x):
    """e^x K as an integral (DLMF 10.32.9), by the trapezoidal rule, which converges exponentially here."""
    h = 1 / 64
    t = np.arange(0, 1400) * h
    with np.errstate(over="ignore"):
        terms = np.exp(-2 * x[:, None] * np.sinh(t / 2) ** 2) * np.cosh(order * t)
    terms[:, 0] /= 2
    return terms.sum(1) * h


@pytest.mark.parametrize("dtype, bound", [("float64", 3e-14), ("float32", 1.3e-7)])
@pytest.mark.parametrize("order", [0, 1])
def test_second_kinds(order, dtype, bound):
    x = np.concatenate([np.linspace(0.05, 60, 500), np.geomspace(1e-4, 0.05, 50), [2, 8, np.nextafter(2, 3), np.nextafter(8, 9)]]).astype(dtype)
    wide = x.astype(np.float64)
    for start in (0, 5):
        found = getattr(tg.special, f"bessel_y{order}")(tg.tensor(x[start:])).numpy()
        exact = y(order, wide)[start:]
        assert np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 1)) < bound
        scaled, plain = (getattr(tg.special, f"{f}modified_bessel_k{order}")(tg.tensor(x[start:])).numpy() for f in ("scaled_", ""))
        exact = scaled_k(order, wide)[start:]
        assert np.max(np.abs(scaled / exact - 1)) < bound
        assert np.max(np.abs(plain / (exact * np.exp(-wide[start:])) - 1)) < bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_of_second_kinds(dtype):
    x = tg.tensor([0.0, -0.0, -1.0, -inf, inf, nan, 3e38], dtype=getattr(tg, dtype))
    for order in (0, 1):
        found = getattr(tg.special, f"bessel_y{order}")(x).numpy()
        np.testing.assert_array_equal(found[:6], [-inf, -inf, nan, nan, 0, nan])
        assert abs(found[6]) < 1e-18
        for name in ("modified_bessel_k", "scaled_modified_bessel_k"):
            found = getattr(tg.special, f"{name}{order}")(x).numpy()
            np.testing.assert_array_equal(found[:6], [inf, inf, nan, nan, 0, nan])
            np.testing.assert_allclose(found[6], 0 if name[0] == "m" else math.sqrt(math.pi / 6e38), rtol=1e-6)


@pytest.mark.parametrize("name, low, high", [("erfcx", -5, 40), ("erfcx", 900, 1100), ("log_ndtr", -40, 8)])
def test_gradients(name, low, high):
    """float32's are those of float64: terms that cancel are taken in double. Far out, too; and those that are differentiated again."""
    x = np.linspace(low, high, 501).astype(np.float32)
    found = {}
    for again in (False, True):
        for dtype in (tg.float32, tg.float64):
            leaf = tg.tensor(x).to(dtype).requires_grad_()
            found[again, dtype], = tg.autograd.grad(getattr(tg.special, name)(leaf).sum(), leaf, create_graph=again)
    exact = found[False, tg.float64].numpy()
    assert np.max(np.abs(found[False, tg.float32].numpy() / exact - 1)) < 1.3e-7
    assert np.max(np.abs(found[True, tg.float32].detach().numpy() / exact - 1)) < 1e-4
    for dtype in (tg.float32, tg.bfloat16):
        leaf = tg.tensor([-inf, inf, nan], dtype=dtype, requires_grad=True)
        grad, = tg.autograd.grad(getattr(tg.special, name)(leaf).sum(), leaf)
        np.testing.assert_array_equal(grad.float().numpy(), [-inf, 0, nan] if name == "erfcx" else [inf, 0, nan])
