"""A signal handler that runs inside an operator or backward is part of the program, not of the operator: it sees the modes
that the program has set, and can train."""

import contextlib
import functools
import os
import random
import signal
import threading
import time

import pytest
import tapegrad as tg

LARGE = 6_000_000


def long_backward(**options):
    x = tg.ones(LARGE, requires_grad=True)
    y = x
    for _ in range(6):
        y = y.exp() * 1e-3
    y = y.sum()
    yield
    tg.autograd.backward(y, **options)


def long_grad(**options):
    x = tg.ones(LARGE, requires_grad=True)
    y = (x.exp() * x).exp().sum() * 1e-3
    yield
    tg.autograd.grad(y, x, **options)


def long_vmap():
    x = tg.rand(8, LARGE // 8)
    yield
    tg.func.vmap(lambda row: ((row.exp() * row).cumsum(0), row.sort().values))(x)


def long_autocast():
    a = tg.rand(1200, 1200)
    yield
    with tg.autocast("cpu", dtype=tg.bfloat16):
        for _ in range(20):
            a @ a


def long_in_place():
    x = tg.ones(LARGE)
    yield
    for _ in range(10):
        x.exp_().mul_(0.1)


def long_forward():
    x = tg.ones(LARGE, requires_grad=True)

    class Long(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp().exp()

        @staticmethod
        def backward(ctx, g):
            return g

    yield
    for _ in range(4):
        Long.apply(x)


WORK = {
    "backward": long_backward,
    "backward that is recorded": lambda: long_backward(create_graph=True),
    "grad": long_grad,
    "grad that is recorded": lambda: long_grad(create_graph=True),
    "vmap": long_vmap,
    "autocast": long_autocast,
    "in-place": long_in_place,
    "forward of a Function": long_forward,
}
MODES = {"grad": contextlib.nullcontext, "no_grad": tg.no_grad, "inference": tg.inference_mode}
# Where the program itself, being Python code of this mode, is interrupted.
OWN_MODE = {"forward of a Function": {False}}


def drain(work):
    for _ in work:
        pass


@contextlib.contextmanager
def signals(handler):
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.01), 0.01)  # some processors are done in a millisecond
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORK)
def test_handlers_see_the_programs_modes(name, mode):
    seen = []

    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)  # the handler itself is not interrupted
        seen.append((tg.is_grad_enabled(), tg.is_inference_mode_enabled(), tg._C._autograd.in_backward()))
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    expected = (mode == "grad", mode == "inference")
    for _ in range(100):  # of work that is soon over
        work = WORK[name]()
        next(work)
        with MODES[mode](), signals(handler):
            drain(work)
        if any(inside for *_, inside in seen) or (seen and not name.startswith(("backward", "grad"))):
            break
    else:
        raise AssertionError("no signal came within backward")
    own = {expected[0]} | OWN_MODE.get(name, set())
    assert seen and {grad for grad, *_ in seen} <= own, seen
    assert {inference for _, inference, _ in seen} == {expected[1]}


@pytest.mark.parametrize("name", ["backward", "grad that is recorded", "vmap", "in-place", "autocast"])
def test_handlers_train(name):
    steps, sites, dtypes = [], [], []
    w = tg.nn.Parameter(tg.ones(4))
    optimizer = tg.optim.SGD([w], lr=0.25)

    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        optimizer.zero_grad()
        loss = (w * w).sum()
        sites.append(loss.grad_fn._site)
        loss.backward()
        optimizer.step()
        assert tg.func.vmap(tg.func.grad(lambda x: (x * x).sum()))(tg.ones(3, 2)).tolist() == [[2.0, 2.0]] * 3
        dtypes.append((tg.ones(2, 2) @ tg.ones(2, 2)).dtype)
        steps.append(w.detach().clone())
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    for _ in range(100):  # of work that is soon over
        work = WORK[name]()
        next(work)
        with signals(handler):
            drain(work)
        if steps:
            break
    assert steps
    for i, step in enumerate(steps):
        assert step.tolist() == [0.5 ** (i + 1)] * 4
    assert all(site and os.path.basename(__file__) in site for site in sites), sites
    assert len(set(sites)) == 1, sites  # the handler's line, not that of the forward call
    if name == "autocast":
        assert tg.bfloat16 in dtypes  # the program is inside of autocast
    else:
        assert set(dtypes) == {tg.float32}
    assert tg.is_grad_enabled() and (tg.ones(2, requires_grad=True) * 2).requires_grad


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError], ids=lambda e: e.__name__)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WORK)
def test_what_a_handler_raises_leaves_the_modes(name, mode, error):
    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        tg.set_grad_enabled(False)  # a handler's own mode ends with it
        with tg.enable_grad():
            raise error("mine")

    def until_it_raises():
        for _ in range(100):  # of work that is soon over
            with tg.inference_mode(False), tg.enable_grad():
                work = WORK[name]()
                next(work)
            with signals(handler):
                drain(work)

    with MODES[mode]():
        before = tg.is_grad_enabled(), tg.is_inference_mode_enabled()
        try:
            with pytest.raises(error, match="mine"):
                until_it_raises()
        finally:
            # Between two operators Python itself calls the handler, and what it sets stays.
            tg.set_grad_enabled(before[0])
        assert (tg.is_grad_enabled(), tg.is_inference_mode_enabled()) == before
        assert not tg.is_autocast_enabled("cpu") and tg._C._vmap_depth() == 0
        assert not tg._C._autograd.in_backward() and tg._C._autograd.current_node() is None
    x = tg.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert (tg.rand(2, 2) @ tg.rand(2, 2)).dtype == tg.float32
    assert tg.func.vmap(lambda r: r * 2)(tg.ones(2, 2)).sum() == 8


@functools.cache
def layer(seed):
    tg.manual_seed(seed)
    return tg.nn.LSTM(32, 64)


def recurrent(seed):
    return layer(seed)(drawn(200 * 8 * 32, seed).view(200, 8, 32))[0]


def convolved(seed):
    x = tg.rand(8, 16, 64, 64, generator=tg.Generator().manual_seed(seed))
    return tg.nn.functional.conv2d(x, tg.ones(16, 16, 3, 3))


def drawn(n, seed):
    return tg.rand(n, generator=tg.Generator().manual_seed(seed))


SAME = {
    "fft": lambda seed: tg.fft.fft(drawn(3000 * 1021, seed).view(3000, 1021), dim=-1).real,
    "sort": lambda seed: drawn(2_000_000, seed).sort().values,
    "unique": lambda seed: (drawn(1_000_000, seed) * 9999).int().unique(return_counts=True)[1],
    "cumsum": lambda seed: drawn(4_000_000, seed).view(2, -1).cumsum(1),
    "matmul": lambda seed: drawn(1 << 20, seed).view(1024, 1024) @ drawn(1 << 20, seed).view(1024, 1024),
    "svd": lambda seed: tg.linalg.svdvals(drawn(1 << 16, seed).view(256, 256)),
    "convolution": convolved,
    "recurrent": recurrent,
    "sums": lambda seed: drawn(6_000_000, seed).view(3, -1).sum(1),
    "draws": lambda seed: drawn(6_000_000, seed).mean(),
    "lists": lambda seed: tg.tensor((drawn(200_000, seed) * 1e6).tolist()),
}


@pytest.mark.parametrize("name", SAME)
def test_what_a_handler_computes_leaves_the_operator_alone(name):
    """One thread, so one memory for intermediate results: the handler runs the same operator on other numbers."""
    operator = SAME[name]
    expected, other = operator(1), operator(2)
    wrong, ran = [], []

    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        ran.append(tg._C._autograd.in_backward())
        if not operator(2).equal(other):
            wrong.append(name)
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)

    end = time.monotonic() + 20
    with signals(handler):
        while len(ran) <= 5 and time.monotonic() < end:
            assert operator(1).equal(expected)
    assert len(ran) > 5 and not wrong


def test_other_threads_run_while_a_handler_works():
    """The handler's long operators give the GIL away like any other's."""
    ran = threading.Event()
    seen = []

    def other():
        while not ran.is_set():
            ran.wait(0.001)
            count[0] += 1

    count = [0]
    square = tg.rand(1500, 1500, dtype=tg.float64)

    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        first = count[0]
        square @ square  # 0.1 s: time for tens of turns of the other thread
        if tg._C._autograd.in_backward():  # where the GIL had been given away before
            seen.append(count[0] - first)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    thread = threading.Thread(target=other)
    thread.start()
    with signals(handler):
        for _ in range(100):
            if len(seen) >= 3:
                break
            work = long_backward()
            next(work)
            drain(work)
    ran.set()
    thread.join()
    assert seen and max(seen) > 10, seen
