"""Scans and loops with functions of one's own: values against loops and closed forms, gradients against finite differences."""

from __future__ import annotations

import pytest
import tapegrad as tg
from tapegrad._higher_order_ops import associative_scan, cond, map, scan, while_loop
from tapegrad._higher_order_ops.associative_scan import associative_scan as by_path
from tapegrad.autograd import gradcheck


def recurrence(left, right):
    """The state of h -> a h + b over two spans."""
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(length, dim, reverse):
    shape = [2, 3]
    shape[dim] = length
    a, b = tg.rand(shape), tg.randn(shape)
    got = associative_scan(recurrence, (a, b), dim=dim, reverse=reverse, combine_mode="generic")
    states, h = [], tg.zeros(())
    steps = list(zip(a.unbind(dim), b.unbind(dim), strict=True))
    for x, y in reversed(steps) if reverse else steps:
        h = x * h + y
        states.append(h)
    tg.testing.assert_close(got[1], tg.stack(states[::-1] if reverse else states, dim))
    assert by_path is associative_scan


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_and_map(dim, reverse):
    x = tg.arange(15.0).view(3, 5)
    carry, ys = scan(lambda c, a: (c + a, {"y": c * a}), tg.zeros(x.shape[1 - dim]), x, dim=dim, reverse=reverse)
    summed = x.flip(dim).cumsum(dim).flip(dim) if reverse else x.cumsum(dim)
    assert carry.equal(x.sum(dim)) and ys["y"].equal((summed - x) * x)
    rows = map(lambda row, k: (row * k, row.sum()), x, 2.0)
    assert rows[0].equal(x * 2) and rows[1].equal(x.sum(1))


def test_gradients():
    a, b = (tg.rand(3, 5, dtype=tg.float64, requires_grad=True) for _ in range(2))
    assert gradcheck(lambda *xs: associative_scan(recurrence, xs, dim=1, combine_mode="generic"), (a, b))
    assert gradcheck(lambda s, x: scan(lambda c, r: (c * r, c + r), s, x), (tg.rand(5, dtype=tg.float64, requires_grad=True), a))


def test_branches_and_loops():
    assert cond(tg.tensor(True), lambda x: x + 1, lambda x: x - 1, (tg.ones(1),)).item() == 2
    assert while_loop(lambda i: i < 5, lambda i: (i + 2,), (tg.tensor(0),))[0].item() == 6


def test_mistakes():
    x = tg.ones(3, 4)
    for call, error, text in [
        (lambda: associative_scan(recurrence, x, dim=5, combine_mode="generic"), IndexError, r"range of \[-2, 1\], but got 5"),
        (lambda: associative_scan(recurrence, x, dim=0), ValueError, "need to be on CUDA"),
        (lambda: associative_scan(3, x, dim=0), ValueError, "must be a callable"),
        (lambda: associative_scan(recurrence, x, dim=0, combine_mode="x"), ValueError, "'pointwise' or 'generic'"),
        (lambda: associative_scan(recurrence, (x, x[:2]), dim=0, combine_mode="generic"), ValueError, "one length above 0 along dimension 0"),
        (lambda: associative_scan(recurrence, x[:0], dim=0, combine_mode="generic"), ValueError, "one length above 0"),
        (lambda: associative_scan(recurrence, (), dim=0, combine_mode="generic"), ValueError, "at least one tensor"),
        (lambda: scan(recurrence, x, [1], dim=0), TypeError, "expected tensors: got int"),
        (lambda: scan(3, x, x), ValueError, "must be a callable"),
    ]:
        with pytest.raises(error, match=text):
            call()
