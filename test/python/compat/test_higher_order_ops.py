"""Scans and loops with functions of one's own: values against loops and closed forms, gradients against finite differences."""

import numpy as np
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


def test_cond():
    x = tg.ones(3)
    add, take = lambda x: x + 1, lambda x: x - 1
    for pred, result in [(True, 2), (0, 0), (0.5, 2), (tg.tensor(True), 2), (tg.tensor([[0.0]]), 0), (tg.tensor(float("nan")), 2)]:
        assert cond(pred, add, take, (x,)).equal(tg.full((3,), float(result)))
    assert cond(tg.tensor(False), lambda: 1, lambda: {"a": x})["a"] is x
    nested = cond(tg.tensor(True), lambda tree, y: [tree["a"] * y], lambda tree, y: [y], ({"a": x * 3}, x))
    assert nested[0].equal(x * 3) and tg.cond is cond and tg.while_loop is while_loop
    # Only the function that is chosen runs, and gradients reach its closure alone.
    y, z = tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True)
    cond(tg.tensor(True), lambda x: x * y, lambda x: x * z, (x * 2,)).sum().backward()
    assert y.grad.equal(x * 2) and z.grad is None


def test_cond_under_vmap():
    preds, xs = tg.tensor([True, False]), tg.arange(6.0).view(2, 3)
    both = tg.vmap(lambda p, x: cond(p, lambda x: (x + 1, {"s": x.sum()}), lambda x: (x - 1, {"s": x[0]}), (x,)))(preds, xs)
    assert both[0].equal(tg.tensor([[1.0, 2, 3], [2, 3, 4]])) and both[1]["s"].equal(tg.tensor([3.0, 3.0]))
    assert tg.vmap(lambda x: cond(tg.tensor(True), lambda x: x + 1, lambda x: x - 1, (x,)))(xs).equal(xs + 1)
    # In both levels, and with gradients of each sample's own branch.
    f = tg.func.grad(lambda x: cond(x.sum() > 4, lambda x: (x ** 2).sum(), lambda x: x.sum(), (x,)))
    assert tg.vmap(f)(xs).equal(tg.tensor([[1.0, 1, 1], [6, 8, 10]]))
    for no, text in [(lambda x: (x, x), "Unmatched output spec"), (lambda x: x.long(), "'dtype: "), (lambda x: x[:2], "'shape: "), (lambda x: 3, "type: Tensor vs int")]:
        with pytest.raises(RuntimeError, match=text):
            tg.vmap(lambda p, x, no=no: cond(p, lambda x: x + 1, no, (x,)))(preds, xs)
    with pytest.raises(RuntimeError, match="must be the same in both branches: got 1 and 2"):
        tg.vmap(lambda p, x: cond(p, lambda x: (1, x), lambda x: (2, x), (x,)), out_dims=(None, 0))(preds, xs)


def test_while_loop():
    x = tg.ones(3)
    count, doubled = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (tg.tensor(0), x))
    assert count.item() == 3 and doubled.equal(x * 8)
    assert while_loop(lambda i, x: i < 3, lambda i, x: [i + 1, x * 2], (0, x))[0] == 3
    assert while_loop(lambda i: i < 3, lambda i: i + 1, (tg.tensor(0),)).item() == 3
    tree, = while_loop(lambda d: d["i"] < 3, lambda d: ({"i": d["i"] + 1},), ({"i": tg.tensor(0)},))
    assert tree["i"].item() == 3
    none = while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (tg.tensor(0), x))
    assert none[1].equal(x) and none[1] is not x and none[1].data_ptr() != x.data_ptr()


def test_gradients_of_while_loop():
    a = tg.ones(3, requires_grad=True)
    while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x * 2), (tg.tensor(0), a))[1].sum().backward()
    assert a.grad.equal(tg.full((3,), 1024.0))
    w = tg.tensor(2.0, requires_grad=True)
    while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * w), (tg.tensor(0), tg.ones(())))[1].backward()
    assert w.grad.item() == 12
    assert gradcheck(lambda x: while_loop(lambda x: x.sum() < 20, lambda x: (x * x.cos().exp() + x + 1,), (x,)), (tg.rand(3, dtype=tg.float64, requires_grad=True),))
    none, = while_loop(lambda x: x.sum() < 0, lambda x: (x * 2,), (a,))
    assert tg.autograd.grad(none.sum(), a)[0].equal(tg.ones(3))


def test_scans_under_vmap():
    inits, xs = tg.rand(2, 4), tg.rand(2, 3, 4)
    step = lambda c, a: (c + a, c * a)  # noqa: E731
    carry, ys = tg.vmap(lambda i, x: scan(step, i, x))(inits, xs)
    for k in range(2):
        one = scan(step, inits[k], xs[k])
        assert carry[k].equal(one[0]) and ys[k].equal(one[1])
    assert tg.vmap(lambda x: map(lambda a: a * 2, x))(xs).equal(xs * 2)
    running = tg.vmap(lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"))(xs)
    tg.testing.assert_close(running, xs.cumsum(1))
    sums = tg.vmap(lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + 1), (0, x))[1])(xs)
    assert sums.equal(xs + 1 + 1 + 1)


def test_results_of_scan():
    x = tg.arange(12.0).view(3, 4)
    assert scan(lambda c, a: (c + a, c), tg.zeros(4), [])[1] == []
    assert scan(lambda c, a: (c + a, (c * a).sum()), tg.zeros(3), x, dim=1)[1].shape == (4,)
    assert scan(lambda c, a: (c + a, c * a), tg.zeros(3), x, dim=-1)[1].shape == (3, 4)
    carry, ys = scan(lambda c, a: ({"s": c["s"] + a["x"]}, [a["x"] * 2, c["s"]]), {"s": tg.zeros(4)}, {"x": x})
    assert carry["s"].equal(x.sum(0)) and ys[0].equal(x * 2) and ys[1][2].equal(x[0] + x[1])


X = tg.ones(3, 4)


def add_and_multiply(c, a):
    return c + a, c * a


MISTAKES = {
    "cond": [
        (lambda: cond(tg.tensor([True, False]), add_and_multiply, add_and_multiply, (X,)), RuntimeError, "Expected pred to be bool or single-element tensor, but got tensor"),
        (lambda: cond("yes", add_and_multiply, add_and_multiply, (X,)), RuntimeError, "Expected pred to be bool or tensor, but got yes."),
        (lambda: cond(tg.tensor(True), 3, add_and_multiply, (X,)), RuntimeError, "Expect both branches to be callable."),
        (lambda: cond(tg.tensor(True), add_and_multiply, add_and_multiply, (3,)), RuntimeError, r"only consists of tensor leaves, but got \(3,\)"),
        (lambda: cond(tg.tensor(True), add_and_multiply, add_and_multiply, X), RuntimeError, "Expect operands to be a tuple of possibly nested"),
    ],
    "while_loop": [
        (lambda: while_loop(1, add_and_multiply, (X,)), RuntimeError, "Expect cond_fn and body_fn to be callable."),
        (lambda: while_loop(add_and_multiply, add_and_multiply, X), RuntimeError, "carried_inputs must be a tuple or list, got <class 'tapegrad.Tensor'>"),
        (lambda: while_loop(add_and_multiply, add_and_multiply, (1.5,)), RuntimeError, r"consists of tensor or int leaves, but got \(1.5,\)"),
        (lambda: while_loop(lambda x: x > 0, lambda x: (x,), (X,)), RuntimeError, "cond_fn must return a boolean scalar tensor or a boolean but got .*float32|bool"),
        (lambda: while_loop(lambda x: x.sum(), lambda x: (x,), (X,)), RuntimeError, r"cond_fn must return .* got .*float32\[\]"),
        (lambda: while_loop(lambda x, y: x.sum() > 0, lambda x, y: (x,), (X, X)), RuntimeError, "body_fn_output and carried_inputs to have same number of outputs"),
        (lambda: while_loop(lambda x: x.sum() > 0, lambda x: (x[:1],), (X,)), RuntimeError, r"same metadata but found:\npair\[0\] differ in 'shape: .*1, 4.* vs .*3, 4"),
        (lambda: while_loop(lambda x: x.sum() > 0, lambda x: (x.double(),), (X,)), RuntimeError, "'dtype: .*float64 vs .*float32'"),
        (lambda: while_loop(lambda x: x.sum() > 0, lambda x: (3,), (X,)), RuntimeError, "type: int vs Tensor"),
    ],
    "scan": [
        (lambda: scan(3, X[0], X), RuntimeError, "Combine_fn must be a callable, but got 3"),
        (lambda: scan(add_and_multiply, X[0], X, dim="a"), RuntimeError, "Dim must be an int, but got <class 'str'>"),
        (lambda: scan(add_and_multiply, X[0], X, dim=3), IndexError, r"range of \[-2, 1\], but got 3"),
        (lambda: scan(add_and_multiply, X[0], X, reverse=1), RuntimeError, "Reverse must be a bool, but got <class 'int'>"),
        (lambda: scan(add_and_multiply, (), X), RuntimeError, "requires init leaves"),
        (lambda: scan(add_and_multiply, 3, X), RuntimeError, "All init leaves must be a Tensor but got 3"),
        (lambda: scan(add_and_multiply, X[0], [1]), RuntimeError, "All xs leaves must be a Tensor but got 1"),
        (lambda: scan(add_and_multiply, X[0], X[:0]), RuntimeError, "scan dimension > 0"),
        (lambda: scan(add_and_multiply, X[0], (X, X[:2])), RuntimeError, "must have one length along dimension 0"),
        (lambda: scan(lambda c, a: (c.double(), a), X[0], X), RuntimeError, "Expected init and carry to have same metadata"),
        (lambda: scan(lambda c, a: ((c, c), a), X[0], X), RuntimeError, "Expected init and carry to have same number of outputs"),
        (lambda: scan(lambda c, a: c, X[0], X), RuntimeError, r"tuple \(next_carry, y\) but got Tensor"),
        (lambda: scan(lambda c, a: (c, a, a), X[0], X), RuntimeError, "but got tuple of 3"),
        (lambda: scan(lambda c, a: (c, a[: int(a[0].item())]), X[0], tg.tensor([[1.0, 1, 1, 1], [2, 2, 2, 2]])), RuntimeError, "same metadata"),
    ],
    "map": [
        (lambda: map(3, X), RuntimeError, "expected a function: got 3"),
        (lambda: map(add_and_multiply, [1]), RuntimeError, r"Mapped xs can only consist of tensors. Got xs \[1\]."),
        (lambda: map(add_and_multiply, []), RuntimeError, "Mapped xs can only consist of tensors"),
        (lambda: map(add_and_multiply, (X, X[:2])), RuntimeError, "Leading dimensions of mapped xs must be consistent"),
        (lambda: map(add_and_multiply, X[:0]), RuntimeError, "Leading dimensions of mapped xs cannot be 0."),
        (lambda: map(add_and_multiply, tg.tensor(1.0)), RuntimeError, "must be consistent"),
    ],
    "associative_scan": [
        (lambda: associative_scan(recurrence, X, dim=5, combine_mode="generic"), IndexError, r"range of \[-2, 1\], but got 5"),
        (lambda: associative_scan(recurrence, X, dim=0), ValueError, "need to be on CUDA"),
        (lambda: associative_scan(3, X, dim=0), ValueError, "must be a callable"),
        (lambda: associative_scan(recurrence, X, dim="a", combine_mode="generic"), ValueError, "Dim must be an int"),
        (lambda: associative_scan(recurrence, X, dim=0, reverse=1, combine_mode="generic"), RuntimeError, "Reverse must be a bool"),
        (lambda: associative_scan(recurrence, X, dim=0, combine_mode="x"), ValueError, "'pointwise' or 'generic'"),
        (lambda: associative_scan(recurrence, (X, X[:2]), dim=0, combine_mode="generic"), ValueError, "one length along dimension 0"),
        (lambda: associative_scan(recurrence, X[:0], dim=0, combine_mode="generic"), ValueError, "scan dimension > 0"),
        (lambda: associative_scan(recurrence, (), dim=0, combine_mode="generic"), ValueError, "at least 1 xs leaf"),
        (lambda: associative_scan(recurrence, (3,), dim=0, combine_mode="generic"), ValueError, "xs leaves must be a Tensor"),
        (lambda: associative_scan(lambda a, b: (a, b), X, dim=0, combine_mode="generic"), RuntimeError, "structure of combine_fn's result"),
        (lambda: associative_scan(lambda a, b: a.sum(), X, dim=0, combine_mode="generic"), RuntimeError, r"expected \(4,\), got \(\)"),
    ],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    for call, error, text in MISTAKES[name]:
        with pytest.raises(error, match=text):
            call()


def test_same_as_pytorch(monkeypatch):
    """Values, gradients and structures of results, beside PyTorch's."""
    torch = pytest.importorskip("torch")
    distribution = torch.distributions.Distribution
    monkeypatch.setattr(distribution, "_validate_args", distribution._validate_args)  # torch.cond switches it off for good
    from torch._higher_order_ops.associative_scan import associative_scan as torch_associative_scan
    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan as torch_scan

    start = np.random.default_rng(0).random((3, 4), dtype=np.float32)
    results = []
    for lib, scans, maps, running in ((tg, scan, map, associative_scan), (torch, torch_scan, torch_map, torch_associative_scan)):
        x = lib.tensor(start, requires_grad=True)
        w = lib.tensor(start[0], requires_grad=True)
        found = [*scans(lambda c, a: (c * a + 1, c + a), x[0] * 2, x, dim=0, reverse=True), *scans(lambda c, a: (c + a, (c * a).sum()), x[:, 0] * 2, x, dim=1),
                 *maps(lambda a, b: (a * b, a.sum()), x, w), running(lambda a, b: a * b, x, 1, reverse=True, combine_mode="generic"),
                 lib.cond(x.sum() > 3, lambda x: x * w, lambda x: x - w, (x * 1,)), lib.cond(x.sum() < 3, lambda x: x * w, lambda x: x - w, (x * 1,))]
        count, last = lib.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * w + 1), (lib.tensor(0), x * 1))
        found += [count, last]
        lib.stack([f.float().sum() for f in found]).sum().backward()
        results.append([t.detach().numpy() for t in (*found, x.grad, w.grad)])
    assert len(results[0]) == len(results[1])
    for mine, theirs in zip(*results, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=2e-6)
