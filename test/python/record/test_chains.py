"""Chains of pointwise calls in pieces: eager's bits, whatever is in place, shared, shown elsewhere or of another dtype."""

import pytest
import tapegrad as tg
from recorded import replays


def chained(step):
    """Whether a plan has fewer calls than the recording had: some run as a chain."""
    return min(calls for calls, _, _ in step._replays.plans())


def bits(t):
    return t.detach().contiguous().view(tg.uint8).numpy().tobytes()


def same(function, make, calls=None, n=5):
    step = tg.record(function)
    for seed in range(n):
        tg.manual_seed(seed)
        args = make()
        again = [a.clone() for a in args]
        step._replays.scribble()
        tg.manual_seed(seed)
        expected = function(*again)
        tg.manual_seed(seed)
        got = step(*args)
        expected, got = ([r] if isinstance(r, tg.Tensor) else list(r) for r in (expected, got))
        for a, b in zip([*expected, *again], [*got, *args], strict=True):
            assert a.dtype == b.dtype and (tg.equal(a, b) or bits(a) == bits(b)), f"seed {seed}: {step.summary()}"
    assert replays(step) > 0, step.summary()
    if calls is not None:
        assert chained(step) == calls, step.summary()
    return step


def chain(x):
    for _ in range(4):
        x = (x * 1.5 + 0.25).sin().abs() - 0.5
    return x


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [8192, 8193, 16384, 100_001, 1_000_003])
def test_sizes_and_threads(size, threads):
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        step = same(chain, lambda: [tg.randn(size)], calls=2)  # the result's memory, and the chain
        assert step._replays.plans()[0][1] == 0  # no memory but the pieces'
        tg.set_num_threads(4)  # more than when it was planned
        x = tg.randn(size)
        assert tg.equal(step(x), chain(x))
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize("dtype", [tg.float64, tg.float16, tg.bfloat16, tg.complex64, tg.float32])
def test_dtypes(dtype):
    same(lambda x: ((x * 2 + x).exp() * x - 1) / (x * x + 1), lambda: [tg.randn(20_000).to(dtype)])


def test_integers_and_comparisons():
    same(lambda x: tg.where((x * 3 % 7 > 2) & (x < 50), x + 1, x.abs() - 2).float() * 0.5, lambda: [tg.randint(-100, 100, (30_000,))])


def test_values_that_are_shown():
    def f(x):
        a = x + 1
        b = a * 2
        c = b.tanh()
        return b, c + a

    same(f, lambda: [tg.randn(50_000)])


def test_in_place():
    def f(x):
        y = x * 2
        y.add_(1)
        z = y.exp()
        y.mul_(z)
        return y

    same(f, lambda: [tg.randn(50_000)])

    def writes_its_argument(x):
        y = x + 1
        x.mul_(y)
        x.sub_(0.5)
        return y * x

    same(writes_its_argument, lambda: [tg.randn(50_000)])


def test_overlapping_views():
    def f(x):
        y = x * 1.0
        z = y[1:] + y[:-1]  # reads its neighbour
        w = y[:-1] * z
        y[1:].mul_(2)
        return w + y[1:], y

    same(f, lambda: [tg.randn(50_001)])

    def shift(x):
        y = x + 0
        y[1:] += 1
        y[:-1] += y[1:] * 2
        return y[:-1] - y[1:]

    same(shift, lambda: [tg.randn(50_001)])


def test_scalars_and_broadcast_operands():
    same(lambda x, s: ((x * s + s) - 3).relu() * s, lambda: [tg.randn(40_000), tg.randn(())])
    same(lambda x, row: ((x + row) * 2).relu() + 1, lambda: [tg.randn(100, 400), tg.randn(400)])
    same(lambda x: ((x.t() + 1) * 2).relu(), lambda: [tg.randn(200, 300)])


def test_strided_tensors_and_other_calls_between():
    same(lambda x: ((x[::2] + 1) * 2).exp().cumsum(0).sqrt() + 1, lambda: [tg.rand(40_000)])


def test_gradients_of_chains():
    def f(x):
        w = tg.ones_like(x).requires_grad_()
        return tg.autograd.grad(((x * w).tanh() * w + w.exp()).sin().sum(), [w])[0]

    same(f, lambda: [tg.randn(30_000)])
    w = tg.linspace(-1, 1, 30_000).requires_grad_()
    step = tg.record(lambda x: ((x * w).tanh() * w).sin())
    v = w.detach().clone().requires_grad_()
    for seed in range(6):
        tg.manual_seed(seed)
        x = tg.randn(30_000)
        a, b = step(x), ((x * v).tanh() * v).sin()
        assert tg.equal(a, b)
        a.sum().backward(), b.sum().backward()
        assert tg.equal(w.grad, v.grad)
    assert replays(step) > 1


def test_random_numbers_between():
    same(lambda x: (tg.nn.functional.dropout(x * 2 + 1, 0.3) * 3).relu() + tg.rand_like(x), lambda: [tg.randn(30_000)])


@pytest.mark.parametrize("seed", range(12))
def test_programs_drawn_at_random(seed):
    import random

    draw = random.Random(seed)
    unary = ["sin", "exp", "tanh", "abs", "neg", "relu", "sigmoid", "sqrt", "square"]
    binary = ["add", "sub", "mul", "maximum", "minimum"]
    plan = [(draw.choice(["u", "b", "n", "i", "v", "s"]), draw.random(), draw.choice(unary), draw.choice(binary), draw.randrange(1 << 30)) for _ in range(14)]

    def f(*xs):
        values = [x * 1 for x in xs]
        for kind, number, u, b, pick in plan:
            x, y = values[pick % len(values)], values[pick // 7 % len(values)]
            if kind == "u":
                values.append(getattr(tg, u)(x))
            elif kind == "b":
                values.append(getattr(tg, b)(x, y))
            elif kind == "n":
                values.append(x * number - 1)
            elif kind == "i":
                x.clamp_(-3, 3).add_(number)
            elif kind == "v":
                x[: x.numel() // 2].mul_(number)
            else:
                values.append(x - y.mean())
        return values[-1], values[len(values) // 2], values[0]

    same(f, lambda: [tg.randn(20_000), tg.randn(20_000)])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64, tg.bfloat16])
@pytest.mark.parametrize("rows, columns", [(300, 64), (1000, 33), (129, 768), (4, 4096), (16384, 1), (1, 16384), (640, 100)])
def test_numbers_per_row_and_per_column(rows, columns, dtype, threads):
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        def function(x, per_column, per_row, number):
            y = (x * per_column + 0.5).sin() - per_row
            return (per_column - y).abs() * number + y.exp() * per_row

        def make():
            return [t.to(dtype) for t in (tg.randn(rows, columns), tg.randn(columns), tg.randn(rows, 1), tg.randn(()))]

        same(function, make, calls=2)
    finally:
        tg.set_num_threads(before)


def test_rows_that_do_not_fit_or_differ_end_a_chain():
    same(lambda x, b: ((x + b).sin() * 2).abs(), lambda: [tg.randn(3, 50_001), tg.randn(50_001)], calls=3)  # memory, the first call, and a chain behind it
    same(lambda x, b, c: ((x + b).sin().view(2000, 90) + c).abs(), lambda: [tg.randn(3000, 60), tg.randn(60), tg.randn(90)], calls=3)  # memory, a view's two chains
    same(lambda x, b: ((x.t() + b).sin() * b).abs().t(), lambda: [tg.randn(100, 200), tg.randn(100)], calls=2)  # a column here is a row in memory
    same(lambda x: ((x * 2).sin() + x[0] * 3).abs(), lambda: [tg.randn(200, 100)])  # reads what lies in the same memory
    same(lambda x: (lambda y: (y + y[:1]) * y[:, :1])((x * 2).sin()), lambda: [tg.randn(200, 100)])  # a row and a column of what the chain writes
