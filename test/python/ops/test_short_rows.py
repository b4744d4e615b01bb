"""Operators along many short rows, which go several rows at a time: the values of row by row and of PyTorch."""
import itertools

import numpy as np
import pytest
import tapegrad as tg
import torch

LENGTHS = [1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65]
COUNTS = [2, 15, 16, 17, 63, 64, 65, 130]
FLOATING = ["float32", "float64", "bfloat16", "float16"]


def rows(count, n, dtype, special=True):
    rng = np.random.default_rng(count * 100 + n)
    values = rng.integers(-3, 4, (count, n)).astype(np.float64)
    if special and dtype in FLOATING:
        for number in (np.nan, np.inf, -np.inf, -0.0):
            values[rng.integers(0, count), rng.integers(0, n)] = number
    return torch.tensor(values).to(getattr(torch, dtype))


def both(x):
    return x, tg.tensor(x.double().numpy() if x.is_floating_point() else x.numpy(), dtype=getattr(tg, str(x.dtype)[6:]))


def same(got, want):
    assert np.array_equal(got.double().numpy(), want.double().numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", [*FLOATING, "int64", "int32", "int16", "uint8", "bool"])
def test_extremes(dtype):
    for n in LENGTHS:
        for count in COUNTS if n in (8, 17) else [17, 65]:
            x, y = both(rows(count, n, dtype).abs() if dtype == "uint8" else rows(count, n, dtype))
            for f in ("max", "min"):
                want, got = getattr(torch, f)(x, 1), getattr(tg, f)(y, 1)
                same(got[0], want[0])
                bits = np.nan_to_num(x.double().numpy(), nan=1e300 if f == "max" else -1e300, posinf=1e9, neginf=-1e9) + 0.0
                first = (bits.argmax if f == "max" else bits.argmin)(1)
                assert np.array_equal(got[1].numpy(), first), (f, n, count)
                if dtype != "bool":
                    assert np.array_equal(getattr(tg, "arg" + f)(y, 1).numpy(), first)


@pytest.mark.parametrize("dtype", [*FLOATING, "int64", "int16"])
def test_scans(dtype):
    for n in LENGTHS:
        for count in COUNTS if n in (8, 17) else [17, 65]:
            x, y = both(rows(count, n, dtype))
            for f in ("cumsum", "cumprod"):
                want, got = getattr(torch, f)(x, 1), getattr(tg, f)(y, 1)
                if dtype in ("bfloat16", "float16"):  # of which PyTorch rounds every step
                    want = getattr(torch, f)(x.float(), 1).to(x.dtype)
                same(got, want)
            for a, b, dim in ((x, y, 1), (x.t().contiguous(), y.t().contiguous(), 0)):  # few columns, too
                want, got = torch.cummax(a, dim), tg.cummax(b, dim)
                same(got[0], want[0])
                assert np.array_equal(got[1].numpy(), want[1].numpy())
                same(tg.cumsum(b, dim).t() if dim == 0 else tg.cumsum(b, dim), tg.cumsum(y, 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "complex64"])
def test_flips(dtype):
    for n in LENGTHS[:12]:
        x = torch.arange(17 * n).reshape(17, n).remainder(251).to(getattr(torch, dtype))
        y = tg.arange(17 * n).reshape(17, n).remainder(251).to(getattr(tg, dtype))
        cube, other = x.reshape(1, 17, n).repeat(3, 1, 1), y.reshape(1, 17, n).repeat(3, 1, 1)
        for dims in ([0], [1], [0, 1]):
            assert np.array_equal(y.flip(dims).to(tg.complex64).numpy(), x.flip(dims).to(torch.complex64).numpy())
            assert np.array_equal(other[:, 1:].flip(dims).to(tg.complex64).numpy(), cube[:, 1:].flip(dims).to(torch.complex64).numpy())
            assert np.array_equal(other.transpose(0, 1).flip(dims).to(tg.complex64).numpy(), cube.transpose(0, 1).flip(dims).to(torch.complex64).numpy())


@pytest.mark.parametrize("shape", [(9, 8), (8, 9), (3, 4, 5), (1, 1), ()])
def test_gradients_of_extremes(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for dim in range(max(1, len(shape))):
        for keepdim in (False, True):
            for f in ("max", "min"):
                a, b = x.clone().requires_grad_(), tg.tensor(x.numpy(), requires_grad=True)
                want, got = getattr(torch, f)(a, dim, keepdim)[0], getattr(tg, f)(b, dim, keepdim)[0]
                (want * want).sum().backward()
                (got * got).sum().backward()
                assert np.array_equal(b.grad.numpy(), a.grad.numpy())
                c = tg.tensor(x.numpy(), requires_grad=True)
                assert tg.autograd.gradgradcheck(lambda t, f=f, d=dim, k=keepdim: getattr(tg, f)(t * t, d, k)[0], c)


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("times", [1, 2, 3, 16, 17])
def test_repeated_elements(dtype, times):
    """Of sources of any strides, broadcast ones too, and in parts of several threads."""
    base = torch.arange(7 * 5 * 33).reshape(7, 5, 33).to(getattr(torch, dtype))
    mine = tg.tensor(base.tolist(), dtype=getattr(tg, dtype))
    for part in (lambda x: x, lambda x: x.transpose(0, 2), lambda x: x[:, ::2, ::3], lambda x: x[:, :1].expand(7, 5, 33), lambda x: x[0, 0], lambda x: x[:, 2:2], lambda x: x.repeat(9, 1, 1)):
        want, got = part(base), part(mine)
        for dim in range(want.dim()):
            assert got.repeat_interleave(times, dim).tolist() == want.repeat_interleave(times, dim).tolist()
        wide = tg.empty((*want.shape, 2 * times), dtype=got.dtype)
        wide[..., ::2].copy_(got[..., None].expand(*want.shape, times))  # a target with steps
        assert wide[..., ::2].tolist() == want[..., None].expand(*want.shape, times).tolist()


@pytest.mark.parametrize("dtype", [*FLOATING, "int64", "uint8", "complex64"])
@pytest.mark.parametrize("n, size", [(1, 1), (1, 9), (2, 2), (3, 3), (2, 7), (31, 40), (32, 32), (33, 33)])
def test_places(n, size, dtype):
    """Reads and writes at places of short lines, along them and across; in the order of the index where it names a place twice."""
    kind = getattr(torch, dtype)
    for count, seed in itertools.product((1, 2, 65, 3000 if n < 4 else 130), range(2)):
        rng = np.random.default_rng(seed)
        x = torch.tensor(rng.integers(0, 5, (count, size))).to(kind)
        src = torch.tensor(rng.integers(0, 5, (count, n))).to(kind)
        index = torch.tensor(rng.integers(0, size, (count, n)))
        for dim, turned in ((1, False), (0, False), (1, True), (0, True)):
            a, b, i = (x, src, index) if dim == 1 else (x.t(), src.t(), index.t())
            if not turned:
                a, b, i = a.contiguous(), b.contiguous(), i.contiguous()
            elif dim == 1:
                a = torch.stack([a, a], 2)[:, :, 0]
            ours = [tg.tensor(t.to(torch.complex64 if t.is_complex() else torch.float64 if t.is_floating_point() else t.dtype).numpy().copy(),
                              dtype=getattr(tg, str(t.dtype)[6:])).as_strided(t.shape, t.contiguous().stride()) for t in (a, b, i)]  # fmt: skip
            if turned:
                ours = [t.t().contiguous().t() for t in ours]
            calls = [lambda t, x, i, s: x.gather(dim, i), lambda t, x, i, s: x.scatter(dim, i, s), lambda t, x, i, s: x.scatter_add(dim, i, s),  # noqa: B023
                     lambda t, x, i, s: x.scatter(dim, i, 3), lambda t, x, i, s: x.clone().scatter_(dim, i, s), lambda t, x, i, s: x.clone().scatter_add_(dim, i, s)]  # noqa: B023
            if dtype != "complex64":
                calls += [lambda t, x, i, s, r=r: x.scatter_reduce(dim, i, s, r, include_self=k) for r in ("amax", "prod", "mean") for k in (True, False)]  # noqa: B023
            for call in calls:
                want, got = call(torch, a, i, b), call(tg, ours[0], ours[2], ours[1])
                if want.is_complex():
                    want, got = torch.view_as_real(want), tg.view_as_real(got)
                np.testing.assert_allclose(got.double().numpy(), want.double().numpy(), rtol=1e-2 if dtype in ("bfloat16", "float16") else 1e-6)


@pytest.mark.parametrize("n", [1, 2, 8, 33])
@pytest.mark.parametrize("name", ["max", "min", "median", "cummax", "sort"])
def test_gradients_of_chosen_elements(name, n):
    x = torch.tensor(np.random.default_rng(n).permutation(3000 * n).reshape(3000, n)).float().requires_grad_()
    y = tg.tensor(x.detach().numpy(), requires_grad=True)
    for dim in (0, 1):
        values, mine = getattr(x, name)(dim)[0], getattr(y, name)(dim)[0]
        seed = torch.randn(values.shape)
        values.backward(seed)
        mine.backward(tg.tensor(seed.numpy()))
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradients_of_softmax(name, dtype):
    """Rows and columns that do and do not fill whole lanes."""
    kind, error = getattr(torch, dtype), {"float32": 1e-6, "float64": 1e-12, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    shapes = [((3, n), 1) for n in (1, 31, 32, 33, 63, 64, 65, 97, 1000)] + [((2, 7, w), 1) for w in (1, 4, 31, 32, 33, 64, 65, 1024, 2048)] + [((40, 8), 0)]
    for shape, dim in shapes:
        x, seed = torch.randn(shape).to(kind), torch.randn(shape).to(kind)
        exact = x.double().clone().requires_grad_()
        getattr(exact, name)(dim).backward(seed.double())
        mine, weight = (tg.tensor(t.double().numpy()).to(getattr(tg, dtype)) for t in (x, seed))
        getattr(mine.requires_grad_(), name)(dim).backward(weight)
        np.testing.assert_allclose(mine.grad.double().numpy(), exact.grad.numpy(), rtol=error, atol=error * 4, err_msg=f"{shape}")
