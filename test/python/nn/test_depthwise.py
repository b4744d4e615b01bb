"""Convolutions of one channel each, whose kernels work on the planes: all geometries against float64, which has other kernels."""

import itertools

import numpy as np
import pytest
import tapegrad as tg

F = tg.nn.functional


def geometries():
    rng = np.random.default_rng(0)
    fixed = [((1, 1), (3, 3), (1, 1), (1, 1), (1, 1)), ((2, 2), (3, 3), (1, 1), (1, 1), (1, 1)), ((1, 1), (7, 7), (3, 3), (1, 1), (1, 1)),
             ((1, 1), (5, 5), (2, 2), (1, 1), (2, 1)), ((3, 2), (2, 3), (0, 1), (2, 1), (1, 1)), ((1, 1), (1, 16), (0, 9), (1, 1), (1, 1)),
             ((1, 1), (1, 17), (0, 8), (1, 1), (1, 1)), ((1, 9), (3, 3), (1, 1), (1, 1), (1, 1)), ((1, 1), (3, 3), (5, 6), (1, 1), (1, 1))]  # fmt: skip
    drawn = [tuple(tuple(int(v) for v in rng.integers(low, high, 2)) for low, high in ((1, 4), (1, 6), (0, 4), (1, 3))) + ((int(rng.integers(1, 4)), 1),)
             for _ in range(25)]  # fmt: skip
    return fixed + drawn


@pytest.mark.parametrize("stride,kernel,padding,dilation,more", geometries(), ids=str)
def test_every_geometry(stride, kernel, padding, dilation, more):
    multiple, _ = more
    for h, w in ((1, 4), (7, 7), (9, 33), (20, 70), (40, 16)):
        if any(size + 2 * p < d * (k - 1) + 1 for size, p, d, k in zip((h, w), padding, dilation, kernel)):
            continue
        rng = np.random.default_rng(h)
        x = tg.from_numpy(rng.normal(size=(2, 3, h, w)))
        weight, bias = tg.from_numpy(rng.normal(size=(3 * multiple, 1, *kernel))), tg.from_numpy(rng.normal(size=3 * multiple))
        results = []
        for dtype in (tg.float64, tg.float32):
            a, b, c = (t.to(dtype, copy=True).requires_grad_() for t in (x, weight, bias))
            y = F.conv2d(a, b, c, stride, padding, dilation, 3)
            y.backward(tg.linspace(-1, 1, y.numel(), dtype=tg.float64).reshape(y.shape).to(dtype))
            results.append([y, a.grad, b.grad, c.grad])
        for expected, ours in zip(*results):
            assert tg.allclose(ours.double(), expected, rtol=1e-4, atol=1e-4 * (1 + expected.abs().max().item())), (h, w)


@pytest.mark.parametrize(("dtype", "error"), [(tg.bfloat16, 2.0**-8), (tg.float16, 2.0**-11)], ids=str)
def test_every_geometry_in_16_bits(dtype, error):
    """Some planes at a time, the last of them fewer, and bands of large ones: nothing but the result is rounded."""
    for stride, kernel, padding, dilation, (multiple, _) in geometries():
        for n, h, w in ((5, 7, 7), (70, 9, 33), (1, 130, 270)):
            if any(size + 2 * p < d * (k - 1) + 1 for size, p, d, k in zip((h, w), padding, dilation, kernel)):
                continue
            x, weight, bias = tg.randn(n, 3, h, w).to(dtype), tg.randn(3 * multiple, 1, *kernel).to(dtype), tg.randn(3 * multiple).to(dtype)
            results = []
            for wide in (dtype, tg.float64):
                a, b, c = (t.to(wide, copy=True).requires_grad_() for t in (x, weight, bias))
                y = F.conv2d(a, b, c, stride, padding, dilation, 3)
                (grad,) = tg.autograd.grad(y, a, tg.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype).to(wide))
                results.append([y.detach(), grad])
            for ours, expected in zip(*results):
                assert tg.allclose(ours.double(), expected, rtol=error, atol=1e-4), (stride, kernel, padding, dilation, n, h, w)


def test_16_bits_are_not_converted_as_a_whole():
    for dtype in (tg.bfloat16, tg.float16):
        x, weight = tg.randn(2, 8, 40, 40).to(dtype), tg.randn(8, 1, 3, 3).to(dtype)
        tg._C._start_counting_work()
        F.conv2d(x, weight, padding=1, groups=8)
        assert tg._C._stop_counting_work()["copies"] == 1  # the weight


def test_one_dimension_large_planes_and_half_precision():
    rng = np.random.default_rng(1)
    for shape, weight_shape, convolve, padding in (((2, 4, 3000), (4, 1, 9), F.conv1d, 4), ((1, 2, 300, 301), (2, 1, 3, 5), F.conv2d, (1, 2)),
                                                   ((3, 2, 5000), (6, 1, 3), F.conv1d, 1)):  # fmt: skip
        x, w = tg.from_numpy(rng.normal(size=shape)), tg.from_numpy(rng.normal(size=weight_shape))
        expected = convolve(x, w, padding=padding, groups=shape[1])
        assert tg.allclose(convolve(x.float(), w.float(), padding=padding, groups=shape[1]).double(), expected, atol=1e-4)
        ours = convolve(x.bfloat16(), w.bfloat16(), padding=padding, groups=shape[1])
        assert tg.allclose(ours.double(), convolve(x.bfloat16().double(), w.bfloat16().double(), padding=padding, groups=shape[1]), rtol=2e-2, atol=2e-2)


def test_the_same_bits_for_any_number_of_threads():
    x, w = tg.randn(3, 6, 90, 77), tg.randn(6, 1, 3, 3)
    seen = []
    for count in (1, 2, 3, 5):
        tg.set_num_threads(count)
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = F.conv2d(a, b, padding=1, groups=6)
        y.backward(y.detach())
        seen.append((y.detach(), a.grad, b.grad))
    assert all(tg.equal(p, q) for other in seen[1:] for p, q in zip(seen[0], other))


@pytest.mark.parametrize("where,value", itertools.product([(0, 0), (3, 9), (10, 10), (4, 0), (0, 10)], [np.inf, np.nan]))
def test_what_is_no_number_reaches_what_read_it_and_no_more(where, value):
    """At the end of a row vectors read past it."""
    for padding, width in ((0, 11), (1, 11), (0, 19)):
        x = np.ones((1, 2, 11, width), np.float32)
        x[0, 1, where[0], where[1]] = value
        a, w = tg.from_numpy(x).requires_grad_(), tg.ones(2, 1, 3, 3, requires_grad=True)
        y = F.conv2d(a, w, padding=padding, groups=2)
        y.sum().backward()
        grad = w.grad.numpy()
        padded = np.pad(x[0, 1], padding)
        rows, columns = y.shape[2:]
        read = [[not np.isfinite(padded[i : i + rows, j : j + columns]).all() for j in range(3)] for i in range(3)]
        assert (~np.isfinite(grad[1, 0]) == np.array(read)).all() and np.isfinite(grad[0]).all()
        seen = [[not np.isfinite(padded[i : i + 3, j : j + 3]).all() for j in range(columns)] for i in range(rows)]
        assert (~np.isfinite(y.detach().numpy()[0, 1]) == np.array(seen)).all() and np.isfinite(y.detach().numpy()[0, 0]).all()
