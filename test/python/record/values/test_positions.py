"""Writing at a position that is a tensor of no dimensions, as caches of keys and values do: a replay reads where."""

from __future__ import annotations

import pytest
import tapegrad as tg

WRITES = {
    "a column": lambda c, k, p: c.__setitem__((slice(None), p), k),
    "a row": lambda c, k, p: c.__setitem__(p, k),
    "behind an ellipsis": lambda c, k, p: c.__setitem__((..., p, slice(None)), k),
    "in a slice": lambda c, k, p: c[:, 1:].__setitem__((slice(None), p - 1, slice(1, 3)), k[:, 1:3]),
    "beside a slice": lambda c, k, p: c.__setitem__((slice(0, 2), p, slice(1, None)), k[:, 1:]),
    "with a new dimension": lambda c, k, p: c.__setitem__((slice(None), p, None), k[:, None]),
    "beside a number": lambda c, k, p: c.__setitem__((1, p), k[0]),
    "two positions": lambda c, k, p: c.__setitem__((p % 2, p, p % 3), k[0, 0]),
    "from behind": lambda c, k, p: c.__setitem__((slice(None), p - 8), k),
    "int32": lambda c, k, p: c.__setitem__((slice(None), p.int()), k),
    "a number": lambda c, k, p: c.__setitem__((slice(None), p), 2),
    "a tensor of no dimensions": lambda c, k, p: c.__setitem__((slice(None), p), k.sum()),
    "another dtype": lambda c, k, p: c.__setitem__((slice(None), p % 2), k.double()),
    "transposed": lambda c, k, p: c.transpose(0, 1).__setitem__(p, k),
    "broadcast": lambda c, k, p: c.__setitem__((slice(None), p), k[:1]),
    "from itself": lambda c, k, p: c.__setitem__((slice(None), p % 2), c[:, 3]),
    "with indices": lambda c, k, p: c.__setitem__((p % 2, slice(None), tg.tensor([0, 2])), k[0, :2]),
    "with a mask": lambda c, k, p: c.__setitem__((p % 2 == 0, slice(None), p % 2), k[0, 0]),
    "+=": lambda c, k, p: c.index_add_(1, p.reshape(1), k[:, None]),
}
BY_VALUE = {"another dtype", "from itself", "with indices", "with a mask"}


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.int64])
@pytest.mark.parametrize("name", WRITES)
def test_positions(name, dtype):
    def function(c, k, p):
        WRITES[name](c, k, p)
        return (c * 2).sum(0)

    step = tg.record(function)
    for i in range(40):
        shape = (8, 2, 3) if name == "a row" else (2, 8, 3)
        c, k, p = (tg.randn(shape) * 9).to(dtype), (tg.randn(2, 3) * 9).to(dtype), tg.tensor(i * 5 % 7 + 1)
        other = c.clone()
        assert step(c, k, p).equal(function(other, k, p)) and c.equal(other), i
    if name not in BY_VALUE:
        assert step._replays.count >= 30, step.summary()


def test_a_cache_of_the_program():
    """A counter that the step moves on, several caches, another batch at the end; the same as eagerly."""
    def made():
        cache, at = tg.zeros(4, 40, 3), tg.tensor(0)

        def step(x):
            cache[: x.size(0), at] = x
            seen = tg.arange(40) <= at
            scores = (cache[: x.size(0)] @ x[:, :, None])[..., 0].masked_fill(~seen, -tg.inf)
            at.add_(1)
            return (scores.softmax(-1)[:, None] @ cache[: x.size(0)])[:, 0]

        return step

    step, eager = tg.record(made()), made()
    for i in range(36):
        x = tg.randn(2 if i > 30 else 4, 3)
        assert step(x).equal(eager(x)), i
    assert step._replays.count >= 28 and step._replays.made == 1, step.summary()


def test_positions_that_are_not_there():
    step = tg.record(lambda c, k, p: c.mul_(2).__setitem__((slice(None), p), k))
    for i in range(8):
        step(tg.zeros(2, 8), tg.ones(2), tg.tensor(i))
    c = tg.ones(2, 8)
    with pytest.raises(IndexError, match="index 8 is out of bounds for dimension 1 with size 8"):
        step(c, tg.zeros(2), tg.tensor(8))
    assert c.tolist() == [[2.0] * 8] * 2
    step(c, tg.zeros(2), tg.tensor(7))
    assert c.tolist() == [[4.0] * 7 + [0.0]] * 2


def test_where_gradients_flow():
    """The tape keeps the view: the position counts as a value."""
    def function(k, p):
        w = k.detach().requires_grad_()
        c = tg.zeros(2, 4)
        c[:, p] = w * 2
        (c * tg.arange(4.0)).sum().backward()
        return w.grad

    step = tg.record(function)
    for i in range(12):
        k, p = tg.randn(2), tg.tensor(i // 3)
        assert step(k, p).equal(function(k, p)), i


def test_what_is_read_is_a_view():
    """A subscript gives a view of the place, which may be written to: the position counts as a value."""
    def function(c, p):
        row = c[p]
        row.add_(1)
        return c * 2

    step = tg.record(function)
    for i in range(12):
        c, p = tg.randn(4, 2), tg.tensor(i // 3)
        other = c.clone()
        assert step(c, p).equal(function(other, p)) and c.equal(other)


def test_expanded_memory():
    def function(p):
        c = tg.zeros(1, 4).expand(2, 4)
        c[:, p] = tg.ones(2)
        return c * 1

    for p in (0, 1):
        with pytest.raises(RuntimeError) as eager:
            function(tg.tensor(p))
        with pytest.raises(RuntimeError) as recorded:
            tg.record(function)(tg.tensor(p))
        assert str(eager.value) == str(recorded.value)
