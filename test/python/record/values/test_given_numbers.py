"""Tensors of no dimensions that a recorded step gives to functions in the place of numbers (`alpha=t`): a replay reads them anew."""

from __future__ import annotations

import logging

import pytest
import tapegrad as tg
from tapegrad.nn import functional as F


def replays(step) -> int:
    return step._replays.count


def bits(t):
    return t.detach().contiguous().reshape(-1).view(tg.uint8).tolist()


def compare(function, arguments, calls: int = 40, least: int = 30, sizes=None, **options):
    """Calls with numbers that change, recorded and eagerly, through audits: results and arguments have the same bits."""
    step = tg.record(function, **options)
    for i in range(calls):
        mine, other = arguments(i), arguments(i)
        made, expected = step(*mine), function(*other)
        for a, b in zip((*mine, *(made if isinstance(made, tuple) else (made,))), (*other, *(expected if isinstance(expected, tuple) else (expected,))), strict=True):
            if isinstance(a, tg.Tensor):
                assert a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride() and bits(a) == bits(b), i
            else:
                assert a == b
    assert replays(step) >= least, step.summary()
    return step


def adamw(p, grad, exp_avg, exp_avg_sq, step_t, lr_t, beta1_t, beta2_t, eps_t, wd_t):
    """The fused step of karpathy/nanochat."""
    p.mul_(1 - lr_t * wd_t)
    exp_avg.lerp_(grad, 1 - beta1_t)
    exp_avg_sq.lerp_(grad.square(), 1 - beta2_t)
    bias1 = 1 - beta1_t ** step_t
    bias2 = 1 - beta2_t ** step_t
    denom = (exp_avg_sq / bias2).sqrt() + eps_t
    step_size = lr_t / bias1
    p.add_(exp_avg / denom, alpha=-step_size)


@pytest.mark.parametrize("memory", [None, 0.5])
@pytest.mark.parametrize("size", [(5,), (64, 48), (0,)])
def test_an_optimizer_of_tensors(size, memory):
    def training():
        state = [tg.randn(size), None, tg.zeros(size), tg.zeros(size)]
        numbers = [tg.tensor(0.0) for _ in range(6)]

        def run(step, i, grad):
            for t, v in zip(numbers, (i + 1.0, 0.1 / (i + 1), 0.9, 0.95, 1e-8, 0.1 * (i % 3)), strict=True):
                t.fill_(v)
            step(state[0], grad, state[2], state[3], *numbers)
            return state

        run.state = state
        return run

    tg.manual_seed(1)
    mine = training()
    tg.manual_seed(1)
    other = training()
    step = tg.record(adamw, fullgraph=True, memory=memory) if memory else tg.compile(adamw, dynamic=False, fullgraph=True)
    for i in range(40):
        grad = tg.randn(size)
        version = mine.state[0]._version
        a, b = mine(step, i, grad), other(adamw, i, grad)
        assert all(bits(a[k]) == bits(b[k]) for k in (0, 2, 3)) and a[0]._version > version, i
    assert replays(step) >= 30, step.summary()


CALLS = {
    "add": lambda x, y, t: tg.add(x, y, alpha=t),
    "add_": lambda x, y, t: x.add_(y, alpha=t),
    "sub": lambda x, y, t: x.sub(y, alpha=-t),
    "rsub": lambda x, y, t: tg.rsub(x, y, alpha=t),
    "addcmul": lambda x, y, t: tg.addcmul(x, x, y, value=t),
    "addcdiv_": lambda x, y, t: x.addcdiv_(x, y.abs() + 1, value=t),
    "addmm": lambda x, y, t: tg.addmm(x, x, y, beta=t, alpha=t * 2 + 0.1),
    "baddbmm": lambda x, y, t: tg.baddbmm(x[None], x[None], y[None], beta=2, alpha=t),
    "index_add": lambda x, y, t: x.index_add(0, tg.tensor([0, 1]), y[:2], alpha=t),
    "eq": lambda x, y, t: x.eq(t) | x.gt(y),
    "leaky_relu": lambda x, y, t: F.leaky_relu(x, t) + y,
    "hardtanh": lambda x, y, t: F.hardtanh(x, -t.nan_to_num(1.0).abs() - 3, t.nan_to_num(1.0).abs() + 3),
    "elu": lambda x, y, t: F.elu(x, alpha=t),
    "softplus": lambda x, y, t: F.softplus(x, beta=t.abs() + 1),
    "threshold": lambda x, y, t: F.threshold(x, t, 7.0),
    "clamp": lambda x, y, t: x.clamp(min=t),
    "clamp_": lambda x, y, t: x.clamp_(-t.abs(), t.abs()),
    "pow": lambda x, y, t: x ** t,
    "lerp": lambda x, y, t: x.lerp_(y, 1 - t),
    "fill_": lambda x, y, t: x.fill_(t),
    "masked_fill": lambda x, y, t: x.masked_fill(y > 0, t),
    "full": lambda x, y, t: x + tg.full((3,), t),
    "full_like": lambda x, y, t: tg.full_like(x, t),
    "norm": lambda x, y, t: x.norm(t.abs() + 1),
    "renorm": lambda x, y, t: x.renorm(2, 0, t.nan_to_num(1.0).abs() + 0.1),
    "pad": lambda x, y, t: F.pad(x, (1, 1), value=t),
    "layer_norm": lambda x, y, t: F.layer_norm(x, (3,), eps=t.abs() + 0.1),
    "smooth_l1": lambda x, y, t: F.smooth_l1_loss(x, y, beta=t.nan_to_num(1.0).abs() + 0.5),
    "nan_to_num": lambda x, y, t: tg.nan_to_num(x.log(), nan=t),
    "a view": lambda x, y, t: (x.t().add_(y, alpha=t), x[1:].add_(y[:2], alpha=t))[0],
    "itself": lambda x, y, t: (x[0, 0].add_(1, alpha=x[0, 0]), t.add_(1, alpha=t))[0],
    "twice": lambda x, y, t: tg.add(tg.add(x, y, alpha=t), y, alpha=t),
    "what the step made": lambda x, y, t: tg.add(x, y, alpha=(x * t).sum()),
    "a tensor of the program": lambda x, y, t: tg.add(x, tg.add(y, y, alpha=tg.tensor(0.5)), alpha=t),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    tg.manual_seed(3)
    data = [(tg.randn(3, 3), tg.randn(3, 3), tg.randn(()) if i % 7 else tg.tensor([0.0, 1.0, -0.0, 2.0, tg.inf, tg.nan][i // 7])) for i in range(40)]
    compare(CALLS[name], lambda i: [t.clone() for t in data[i]])


@pytest.mark.parametrize("dtype", [tg.int64, tg.bool, tg.float64, tg.float16, tg.bfloat16, tg.complex64])
def test_dtypes_of_the_number(dtype):
    x = tg.arange(6).reshape(2, 3)
    if dtype in (tg.bool, tg.int64):
        step = compare(lambda x, t: tg.add(x == 1, x == 2, alpha=t) if dtype is tg.bool else tg.add(x, x, alpha=t), lambda i: [x.clone(), tg.tensor(i % 2, dtype=dtype)])
    else:
        step = compare(lambda x, t: tg.add(x, x, alpha=t), lambda i: [x.to(tg.complex64 if dtype is tg.complex64 else tg.float32), tg.tensor(i * 0.3 - 2, dtype=dtype)])
    assert not step._reasons


def test_a_number_beside_an_equal_one():
    """Which of two equal numbers is the tensor's cannot be told: then its value is compared, and another one is recorded."""
    y = tg.randn(2, 2)
    for values in ([1.0, 1.0, 3.0, 1.0, 2.0, 1.0], [2.0, 2.0, 2.0, 1.0, 2.0, 5.0]):
        step = tg.record(lambda x, t: tg.addmm(x, y, y, beta=1.0, alpha=t))
        for v in values * 5:
            x, t = tg.randn(2, 2), tg.tensor(v)
            assert bits(step(x, t)) == bits(tg.addmm(x, y, y, beta=1.0, alpha=t))


def test_two_tensors_of_one_value():
    y = tg.randn(2, 2)
    step = tg.record(lambda x, s, t: tg.addmm(x, y, y, beta=s, alpha=t))
    for a, b in [(2.0, 2.0), (2.0, 2.0), (2.0, 3.0), (3.0, 2.0), (5.0, 4.0), (1.0, 2.0)] * 4:
        x, s, t = tg.randn(2, 2), tg.tensor(a), tg.tensor(b)
        assert bits(step(x, s, t)) == bits(tg.addmm(x, y, y, beta=s, alpha=t))


def test_other_sizes_need_no_recording():
    def function(x, t):
        x.mul_(2).add_(x, alpha=t)
        return F.leaky_relu(tg.add(x, x.sum(), alpha=t), t)

    step = tg.record(function)
    for i in range(24):
        x, t = tg.randn(3 + i % 8, 4), tg.tensor(i * 0.1)
        mine = x.clone()
        assert bits(step(mine, t)) == bits(function(x, t)) and bits(mine) == bits(x)
    assert step._replays.made == 7 and not step._notes, (step.summary(), step._notes)


def test_sizes_that_are_not_there():
    """What a call raises it raises as eagerly."""
    step = tg.record(lambda x, y, t: x.mul_(2).add_(y, alpha=t))
    for i in range(4):
        step(tg.ones(3), tg.ones(3), tg.tensor(float(i)))
    x = tg.ones(4)
    with pytest.raises(RuntimeError) as mine:
        step(x, tg.ones(3), tg.tensor(1.0))
    with pytest.raises(RuntimeError) as eager:
        tg.ones(4).add_(tg.ones(3), alpha=tg.tensor(1.0))
    assert str(mine.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_values_that_raise():
    """What a value raises it raises in replays, and the step goes on afterwards."""
    def function(x, t):
        x.mul_(2)
        return x.fill_diagonal_(t)

    step = tg.record(function)
    for i in range(20):
        x = tg.ones(2, 2, dtype=tg.int8)
        value = 300 if i == 10 else i
        try:
            expected = bits(function(x.clone(), tg.tensor(value)))
        except RuntimeError as e:
            with pytest.raises(RuntimeError) as raised:
                step(x, tg.tensor(value))
            assert str(raised.value) == str(e) and x.tolist() == [[2, 2], [2, 2]]
        else:
            assert bits(step(x, tg.tensor(value))) == expected
    assert replays(step) >= 14


def test_results_are_fresh():
    step = tg.record(lambda x, t: tg.add(x, x, alpha=t))
    kept = [(step(tg.ones(3), tg.tensor(float(i))), i) for i in range(8)]
    assert all(r.tolist() == [1.0 + i] * 3 for r, i in kept)


def test_catching_up():
    """A guard that finds another value behind such a call puts back what it has written."""
    def function(p, x, t):
        p.add_(x, alpha=t)
        if p.sum() > 0:
            p.sub_(x, alpha=t * 2)
        return p * 2

    step = tg.record(function)
    p, q = tg.zeros(3), tg.zeros(3)
    for i in range(60):
        x, t = tg.randn(3), tg.randn(())
        assert bits(step(p, x, t)) == bits(function(q, x, t)) and bits(p) == bits(q), i
    assert replays(step) >= 40


def test_made_again_with_a_memory_budget():
    def function(x, w, t):
        h = x
        kept = []
        for _ in range(6):
            h = F.leaky_relu(tg.add(h @ w, h, alpha=t), t)
            kept.append(h)
        for k in reversed(kept):
            h = h * k
        return h.sum()

    w = tg.randn(64, 64) * 0.1
    compare(lambda x, t: function(x, w, t), lambda i: [tg.full((128, 64), 0.1 + 0.01 * i), tg.tensor(0.1 * i)], memory=0.6)


def test_where_it_needs_a_gradient():
    """The tape keeps the number: such a step counts it as a value."""
    w = tg.randn(3, requires_grad=True)

    def function(x, t):
        w.grad = None
        tg.add(x, w, alpha=t).sum().backward()
        return w.grad.clone()

    step = tg.record(function)
    for i in range(8):
        assert step(tg.ones(3), tg.tensor(float(i // 3))).tolist() == [float(i // 3)] * 3


def test_in_training(caplog):
    """Parameters are updated under no_grad, behind a backward pass."""
    w, other = (tg.ones(4, requires_grad=True) for _ in range(2))

    def training(w):
        def step(x, rate):
            w.grad = None
            loss = (x * w).square().sum()
            loss.backward()
            with tg.no_grad():
                w.add_(w.grad, alpha=-rate)
            return loss.detach()

        return step

    step, eager = tg.record(training(w)), training(other)
    with caplog.at_level(logging.WARNING, "tapegrad.record"):
        for i in range(40):
            x, rate = tg.randn(4), tg.tensor(0.1 / (i + 1))
            assert bits(step(x, rate)) == bits(eager(x, rate)) and bits(w) == bits(other)
    assert replays(step) >= 30 and not caplog.records


def test_what_no_function_takes_is_a_value():
    """A call that raises before it is made leaves no number for the next one."""
    def function(x, t):
        try:
            tg.add(x, "y", alpha=t)
        except TypeError:
            pass
        try:
            x.add(alpha=t)
        except TypeError:
            pass
        return tg.add(x, x, alpha=0.5)

    step = tg.record(function)
    for v in (0.5, 0.5, 0.5, 0.25, 2.0, 0.25, 0.25):
        assert step(tg.ones(2), tg.tensor(v)).tolist() == [1.5, 1.5]


def test_code_of_the_program_in_between():
    """While arguments are converted, other functions may be called: they take no number that is not theirs."""
    class Index:
        def __init__(self, x):
            self.x = x

        def __index__(self):
            self.x.addmm_(self.x, self.x, alpha=0.5)
            return 0

    def function(x, t):
        return tg.addmm(x, x, x, beta=Index(x), alpha=t)

    step = tg.record(function, pure=True)
    for v in (0.5, 0.5, 0.5, 0.25, 2.0, 0.25, 0.25, 0.5):
        x, t = tg.randn(2, 2), tg.tensor(v)
        y = x.clone()
        assert bits(step(x, t)) == bits(function(y, t)) and bits(x) == bits(y)


def test_numbers_of_python_stay():
    """`t.item()` is a value that the step goes on by."""
    step = tg.record(lambda x, t: tg.add(x, x, alpha=t.item()))
    for v in (0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.5):
        assert step(tg.ones(2), tg.tensor(v)).tolist() == [1 + v] * 2


def test_sizes_from_tensors():
    """How large the result is follows from the number: a value."""
    step = tg.record(lambda t: tg.arange(0, t) * 2)
    for n in (3, 3, 3, 4, 4, 2, 3):
        assert step(tg.tensor(n)).tolist() == [2 * k for k in range(n)]


def test_in_threads_of_their_own():
    import threading

    failed = []

    def work(seed):
        step = tg.record(lambda x, t: x.add_(x, alpha=t) + 1)
        for i in range(30):
            x, v = tg.full((4,), float(seed)), seed + i * 0.5
            if step(x, tg.tensor(v)).tolist() != [seed + seed * v + 1] * 4:
                failed.append((seed, i))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_a_compiled_model_in_inference():
    class Net(tg.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = tg.nn.Linear(4, 4)
            self.register_buffer("slope", tg.tensor(0.1))

        def forward(self, x):
            return F.leaky_relu(self.linear(x), self.slope)

    net = Net().eval()
    compiled = tg.record(net.forward)
    with tg.no_grad():
        for i in range(20):
            net.slope.fill_(i * 0.1)
            x = tg.randn(2, 4)
            assert bits(compiled(x)) == bits(net(x))
    assert replays(compiled) >= 15
