"""Products, convolutions and attention of 16-bit numbers against float64: sums are added up in float and rounded once, for every layout and on both sides
of each border where another library or another way takes over."""

import textwrap

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.nn.functional as F
from interpreter.programs import run

HALF = {tg.bfloat16: 2.0**-8, tg.float16: 2.0**-11}
TYPES = pytest.mark.parametrize("dtype", HALF, ids=["bfloat16", "float16"])


def close(got, exact, terms, dtype, rounded=1):
    """`terms`: the sum of the products' sizes. Each of `rounded` roundings errs by half an ulp; sums in float by far less."""
    assert got.dtype == dtype
    exact, terms = exact.detach().numpy(), terms.detach().numpy()
    error = np.abs(got.detach().double().numpy() - exact)
    bound = rounded * HALF[dtype] * np.abs(exact) + 2.0**-20 * terms + 2.0**-24
    assert (error <= bound).all(), f"{(error / bound).max()} times the bound"


def random(dtype, *sizes):
    return tg.randn(*sizes).to(dtype)


# Few rows, one tile, tiles of rows, tiles of columns, transposed products of whole and of filled-up vectors, more terms than one call adds up; sizes that are no multiples of anything.
SIZES = [(1, 70, 300), (5, 64, 512), (6, 64, 512), (16, 100, 300), (33, 65, 67), (64, 64, 64), (64, 768, 768), (300, 257, 129), (600, 40, 33), (8, 260, 515), (9, 300, 1030), (16, 260, 520), (40, 256, 1024), (128, 515, 1100), (17, 16, 140001), (2, 3, 5), (31, 1, 40)]


@TYPES
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("layout", ["plain", "a turned", "b turned", "both turned", "steps of two"])
def test_products(dtype, m, n, k, layout):
    a, b = random(dtype, m, k), random(dtype, k, n)
    exact, terms = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    if layout in ("a turned", "both turned"):
        a = a.T.contiguous().T
    if layout in ("b turned", "both turned"):
        b = b.T.contiguous().T
    if layout == "steps of two":
        a, b = (tg.stack([t, t], -1)[..., 0] for t in (a, b))
        assert a.stride(-1) == b.stride(-1) == 2
    close(a @ b, exact, terms, dtype)
    bias = random(dtype, n)
    close(F.linear(a, b.T, bias), exact + bias.double(), terms, dtype, 2)
    c = random(dtype, m, n)
    close(tg.addmm(c, a, b, beta=-0.5, alpha=2.0), 2 * exact - 0.5 * c.double(), 2 * terms, dtype, 2)
    assert (tg.addmm(c, a, b, beta=0, alpha=0) == 0).all()
    assert tg.addmm(c, a, b, beta=1, alpha=0).equal(c)


@TYPES
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(3, 40, 50, 60), (9, 128, 128, 64), (8, 300, 200, 100), (1, 5, 6, 7), (4, 0, 3, 2), (2, 3, 4, 0)])
def test_batches(dtype, batch, m, n, k):
    a, b = random(dtype, batch, m, k), random(dtype, batch, n, k).transpose(1, 2)
    exact, terms = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    close(tg.bmm(a, b), exact, terms, dtype)
    c = random(dtype, batch, m, n)
    close(tg.baddbmm(c, a, b), exact + c.double(), terms, dtype, 2)


@TYPES
def test_what_is_no_number_stays_where_it_is(dtype):
    a, b = random(dtype, 40, 64), random(dtype, 64, 48)
    a[3, 5], a[7, 0], b[9, 11] = float("nan"), float("inf"), float("-inf")
    got, exact = (a @ b).float(), a.double() @ b.double()
    assert got.isnan().equal(exact.isnan())
    assert got.isposinf().equal(exact.isposinf()) and got.isneginf().equal(exact.isneginf())


CONVOLUTIONS = {  # images, channels, outputs, size, kernel, stride, padding, dilation, groups
    "3 x 3": (2, 16, 24, (14, 13), 3, 1, 1, 1, 1), "1 x 1": (3, 20, 12, (9, 9), 1, 1, 0, 1, 1), "1 x 1 of few places": (2, 70, 40, (5, 5), 1, 1, 0, 1, 1),
    "1 x 1 with a step": (2, 16, 8, (9, 9), 1, 2, 0, 1, 1), "large": (2, 3, 8, (30, 30), 7, 2, 3, 1, 1), "dilated": (1, 8, 8, (12, 12), 3, 1, 2, 2, 1),
    "groups": (2, 8, 12, (8, 8), 3, 1, 1, 1, 4), "each channel a group": (2, 8, 8, (10, 10), 3, 1, 1, 1, 8), "one dimension": (2, 6, 5, (40,), 3, 1, 1, 1, 1),
    "three dimensions": (1, 4, 6, (5, 6, 7), 3, 1, 1, 1, 1), "many images": (40, 4, 4, (6, 6), 3, 1, 1, 1, 1), "many weights": (2, 96, 80, (7, 7), 3, 1, 1, 1, 1),
    "patches": (3, 3, 40, (70, 64), 8, 8, 0, 1, 1), "few patches": (4, 5, 24, (33, 32), 16, 16, 0, 1, 1),
    "ranges of images and of channels": (23, 64, 80, (14, 14), 3, 1, 1, 1, 1), "ranges of channels": (3, 256, 144, (8, 8), 3, 1, 1, 1, 1),
}


@TYPES
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(dtype, name):
    images, channels, outputs, size, kernel, stride, padding, dilation, groups = CONVOLUTIONS[name]
    conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(size)]
    x, w = random(dtype, images, channels, *size), random(dtype, outputs, channels // groups, *[kernel] * len(size))
    bias = random(dtype, outputs)

    def run(x, w, b, grad=None):
        x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
        y = conv(x, w, b, stride, padding, dilation, groups)
        grad = tg.ones_like(y) if grad is None else grad
        return y, *tg.autograd.grad(y, (x, w, b), grad)

    got = run(x, w, bias)
    grad = random(dtype, *got[0].shape)
    got = run(x, w, bias, grad)
    exact = run(x.double(), w.double(), bias.double(), grad.double())
    terms = run(x.double().abs(), w.double().abs(), bias.double().abs(), grad.double().abs())
    for a, b, c in zip(got, exact, terms):
        close(a, b, c, dtype, 2)


@TYPES
@pytest.mark.parametrize(("rows", "keys", "width", "causal", "shared"), [(1, 300, 64, False, 1), (20, 20, 8, True, 1), (70, 300, 64, False, 2), (130, 130, 40, True, 1), (64, 513, 33, False, 4)])
def test_attention(dtype, rows, keys, width, causal, shared):
    q, k, v = random(dtype, 2, 4, rows, width), random(dtype, 2, 4 // shared, keys, width), random(dtype, 2, 4 // shared, keys, width)

    def run(*tensors):
        tensors = [t.detach().requires_grad_() for t in tensors]
        y = F.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=shared > 1)
        return y, *tg.autograd.grad((y * y).sum(), tensors)

    for got, exact in zip(run(q, k, v), run(q.double(), k.double(), v.double())):
        # Weights and their slopes are rounded, too: errors of many terms add up by chance.
        error, size = (got.double() - exact).abs().max().item(), exact.abs().max().item()
        assert error <= 6 * HALF[dtype] * size


@TYPES
def test_the_same_bits_for_any_number_of_threads(dtype):
    a, b, w = random(dtype, 300, 200), random(dtype, 200, 500), random(dtype, 500, 200)
    x, kernel, point = random(dtype, 5, 32, 20, 20), random(dtype, 48, 32, 3, 3), random(dtype, 16, 32, 1, 1)
    patch = random(dtype, 24, 32, 8, 8)

    def results():
        leaves = [t.detach().requires_grad_() for t in (a, b, w, x, kernel, point, patch)]
        p, q, r, image, wide, narrow, cut = leaves
        loss = (p @ q).float().square().sum() + F.linear(p, r).float().square().sum()
        loss = loss + F.conv2d(image, wide).float().square().sum() + F.conv2d(image, narrow).float().square().sum()
        loss = loss + F.conv2d(image, cut, stride=8).float().square().sum()
        loss = loss + F.scaled_dot_product_attention(p, p, p).float().square().sum()
        return [loss, *tg.autograd.grad(loss, leaves)]

    threads = tg.get_num_threads()
    try:
        of = []
        for n in (1, 2, 3, 5):
            tg.set_num_threads(n)
            of.append(results())
    finally:
        tg.set_num_threads(threads)
    for other in of[1:]:
        assert all(x.equal(y) for x, y in zip(of[0], other))


def test_from_many_threads_and_in_a_child_of_fork():
    program = textwrap.dedent("""
        import os, threading
        import tapegrad as tg
        a, b, x, w = tg.randn(200, 100).bfloat16(), tg.randn(100, 70).bfloat16(), tg.randn(2, 8, 12, 12).bfloat16(), tg.randn(8, 8, 3, 3).bfloat16()
        expected = (a @ b, tg.nn.functional.conv2d(x, w))
        wrong = []
        def work(rows):
            for n in range(30):
                m = 6 + (rows * 7 + n) % 150
                ok = (a[:m] @ b).shape == (m, 70) and tg.nn.functional.conv2d(x, w).equal(expected[1]) and (a @ b).equal(expected[0])
                wrong.extend([] if ok else [m])
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for t in threads: t.start()
        for t in threads: t.join()
        child = os.fork()
        if not child:
            os._exit(0 if (a @ b).equal(expected[0]) and tg.nn.functional.conv2d(x, w).equal(expected[1]) else 1)
        print(wrong, os.waitpid(child, 0)[1])
    """)
    assert run(program, timeout=120) == "[] 0\n"
