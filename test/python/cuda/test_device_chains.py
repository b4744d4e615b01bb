"""Chains of pointwise calls on a device: one kernel for all of them, compiled while the step is replayed without it, with the bits of the separate kernels."""

import collections
import gc
import logging
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import tapegrad as tg
from device_asked_for import nvrtc
from recorded import replays, same_bits, training
from tapegrad import nn

F, cuda = nn.functional, tg.cuda
SIMULATED = bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE"))
one_device = pytest.mark.skipif(SIMULATED and cuda.device_count() > 1, reason="runs where one device is simulated: compiling takes long")
EDGES = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, -3, 6, 0.1, np.inf, -np.inf, 1e-42, -1e-42, 1.17549435e-38, 3.4e38, -3.4e38, 88, -88, np.nan]


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """On a simulated device the host's compiler stands for NVRTC."""
    if not SIMULATED:
        if "version" not in cuda.library_versions()["nvrtc"]:
            pytest.skip("NVRTC is not installed")
    elif shutil.which("g++") is None:
        pytest.skip("no g++, which stands for NVRTC on a simulated device")
    else:
        monkeypatch.setenv("TAPEGRAD_CUDA_SIMULATE_COMPILER", "g++")


def numbers(*shape, seed, dtype=tg.float32):
    draw = np.random.RandomState(seed)
    shape = shape[0] if shape == ((),) else shape
    values = np.where(draw.rand(*shape) < 0.4, np.array(EDGES)[draw.randint(len(EDGES), size=shape)], draw.randn(*shape) * 3)
    return tg.tensor(values.astype(np.float32)).to(dtype).cuda()


def bits(t):
    """On a simulated device, which of two NaN comes out is the choice of the host's compiler."""
    if SIMULATED and t.is_floating_point():
        t = t.detach().masked_fill(t.isnan(), float("nan"))
    return t.detach().cpu().reshape(-1).clone().view(tg.uint8).numpy().tobytes()


def same(function, make, chains=1, graphs=True, calls=None):
    """Replays have eager's bits, in results and arguments, by so many kernels of chains."""
    step = same_bits(function, make, bits, between=tg._C._wait_for_chains, graphs=graphs)
    use = step._replays.memory()[0]
    assert use["no_chains"] == "" and chains in (None, use["chains"]), step.summary()
    if calls is not None:
        assert use["in_chains"] == calls, step.summary()
    return step


# --- operators ---

OPERATORS = [
    lambda a, b: a + b, lambda a, b: tg.add(a, b, alpha=0.3), lambda a, b: tg.sub(a, b, alpha=0.3), lambda a, b: tg.rsub(a, b, alpha=0.3),
    lambda a, b: a * b, lambda a, b: a / b, lambda a, b: -a, lambda a, b: a.abs(), lambda a, b: a.square(), lambda a, b: a**3,
    lambda a, b: a.reciprocal(), lambda a, b: a.sqrt(), lambda a, b: a.rsqrt(), lambda a, b: a.floor(), lambda a, b: a.round(),
    lambda a, b: a.frac(), lambda a, b: a.sign(), lambda a, b: tg.copysign(a, b), lambda a, b: a.deg2rad(), lambda a, b: tg.maximum(a, b),
    lambda a, b: a.clamp_min(0.1), lambda a, b: tg.fmax(a, b), lambda a, b: a.clamp(-1, 1), lambda a, b: tg.clamp(a, b, b + 1),
    lambda a, b: tg.lerp(a, b, 0.3), lambda a, b: tg.addcmul(a, b, a, value=0.7), lambda a, b: tg.addcdiv(a, b, a, value=0.7),
    lambda a, b: a.relu(), lambda a, b: F.threshold(a, 0.1, 0.5), lambda a, b: F.hardtanh(a), lambda a, b: F.leaky_relu(a, 0.2),
    lambda a, b: F.hardsigmoid(a), lambda a, b: F.hardswish(a), lambda a, b: F.softsign(a), lambda a, b: F.hardshrink(a), lambda a, b: F.softshrink(a),
    lambda a, b: a.exp(), lambda a, b: a.exp2(), lambda a, b: a.expm1(), lambda a, b: a.log(), lambda a, b: a.log2(), lambda a, b: a.log10(),
    lambda a, b: a.log1p(), lambda a, b: a.sin(), lambda a, b: a.cos(), lambda a, b: a.tan(), lambda a, b: a.atan(), lambda a, b: a.sinh(),
    lambda a, b: a.tanh(), lambda a, b: a.asinh(), lambda a, b: a.erf(), lambda a, b: a.erfc(), lambda a, b: a.sigmoid(), lambda a, b: F.silu(a),
    lambda a, b: F.gelu(a), lambda a, b: F.gelu(a, approximate="tanh"), lambda a, b: F.elu(a), lambda a, b: F.selu(a), lambda a, b: F.celu(a, 0.7),
    lambda a, b: F.softplus(a), lambda a, b: F.mish(a), lambda a, b: F.logsigmoid(a), lambda a, b: F.tanhshrink(a), lambda a, b: tg.atan2(a, b),
    lambda a, b: tg.hypot(a, b), lambda a, b: tg.pow(a, b), lambda a, b: tg.logaddexp(a, b), lambda a, b: tg.xlogy(a, b), lambda a, b: a.sinc(),
    lambda a, b: a == b, lambda a, b: a <= b, lambda a, b: a.isnan(), lambda a, b: a.isinf(), lambda a, b: tg.where(a > b, a, b),
    lambda a, b: a.masked_fill(b > 0, 2.0), lambda a, b: a * (b > 0), lambda a, b: tg.nan_to_num(a), lambda a, b: tg.isclose(a, b),
    lambda a, b: a.i0(), lambda a, b: tg.special.ndtr(a), lambda a, b: tg.fmod(a, b), lambda a, b: tg.remainder(a, b),
]  # fmt: skip
ACTIVATIONS = [F.relu, F.hardtanh, F.leaky_relu, tg.sigmoid, tg.tanh, F.hardsigmoid, F.hardswish, F.hardshrink, F.softshrink, F.elu, F.silu, F.gelu, F.mish,
               lambda x: F.gelu(x, approximate="tanh"), F.softplus, F.logsigmoid, lambda x: F.threshold(x, 0.1, 0.5), lambda x: F.celu(x, 0.7)]


PARTS = [(part, dtype) for part in range(0, len(OPERATORS), 12) for dtype in (tg.float32, (tg.bfloat16, tg.float16)[part // 12 % 2])]


@one_device
@pytest.mark.parametrize(("part", "dtype"), PARTS)
def test_operators(part, dtype):
    """All between others, so that what one gives goes into the next in a register."""
    def f(a, b):
        a = a * 1.5
        return [g(a, b).logical_not() if i % 5 == 4 else g(a, b) for i, g in enumerate(OPERATORS[part : part + 12])]

    step = same(f, lambda seed: [numbers(3001, seed=seed, dtype=dtype), numbers(3001, seed=seed + 100, dtype=dtype)], chains=None)
    assert step._replays.memory()[0]["in_chains"] >= 12, step.summary()


@one_device
@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16])
@pytest.mark.parametrize("part", range(0, len(ACTIVATIONS), 9))
def test_gradients(part, dtype):
    def f(x, grad):
        made = []
        for g in ACTIVATIONS[part : part + 9]:
            w = x.detach().clone().requires_grad_()
            made.append(tg.autograd.grad(g(w), [w], grad)[0] * 3 - 1)
        return made

    step = tg.record(f)
    for seed in range(5):
        x, grad = numbers(1003, seed=seed, dtype=dtype), numbers(1003, seed=seed + 50, dtype=dtype)
        tg._C._wait_for_chains()
        for a, b in zip(f(x, grad), step(x, grad), strict=True):
            assert bits(a) == bits(b), step.summary()
    use = step._replays.memory()[0]
    assert use["no_chains"] == "" and use["in_chains"] >= 2 * len(ACTIVATIONS[part : part + 9]), step.summary()


# --- places ---

@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("n", [2, 7, 8, 9, 31, 2047, 2048, 2049, 70_001])
def test_sizes_and_views_at_any_address(n, graphs):
    """Without graphs arguments are read where they lie, which may be no multiple of 16 bytes."""
    def f(x, y):
        for _ in range(3):
            x = tg.maximum(x * 0.5 + y, -x).abs() - 0.25
        return x, x > 0

    same(f, lambda seed: [numbers(n + 1, seed=seed)[1:], numbers(n + 3, seed=seed + 9)[3:]], graphs=graphs)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(1, 9), (5, 2), (33, 7), (64, 8), (17, 24), (3, 1000), (300, 3)])
def test_numbers_per_row_and_column(rows, columns, graphs):
    def f(x, column, row, one):
        y = (x + column) * row - one
        y = tg.where(y > row, y.tanh(), column) / 2
        return y, y * one

    def make(seed, dtype=tg.float32):
        return [numbers(rows, columns, seed=seed), numbers(columns, seed=seed + 1), numbers(rows, 1, seed=seed + 2, dtype=dtype), numbers((), seed=seed + 3)]

    same(f, make, graphs=graphs, calls=8)


def test_rows_of_a_larger_matrix():
    """A number per row that is not next to that of the row before."""
    def f(x, m):
        return ((x * m[:, :1]) + m[:, 3:4]).exp()

    same(f, lambda seed: [numbers(40, 12, seed=seed), numbers(40, 5, seed=seed + 1)], calls=3)


def test_dtypes_that_meet():
    def f(x, h, b, mask):
        y = (x + h) * b  # float32
        z = h * 0.3 + h  # float16, rounded after each operator
        return y.masked_fill(mask, 1.5), z.sigmoid(), (z > 0) * y, mask * h

    def make(seed):
        draw = numbers(999, seed=seed + 7)
        return [numbers(999, seed=seed), numbers(999, seed=seed + 1, dtype=tg.float16), numbers(999, seed=seed + 2, dtype=tg.bfloat16), draw > 0]

    same(f, make, calls=9)


def test_bools_whose_bytes_are_neither_0_nor_1():
    def f(x, raw):
        mask = raw.view(tg.bool)
        return tg.where(mask, x * 2, x) + mask

    same(f, lambda seed: [numbers(500, seed=seed), tg.randint(0, 9, (500,), dtype=tg.uint8, device="cuda", generator=tg.Generator("cuda").manual_seed(seed))])


def test_writes_in_place():
    def f(x, y):
        z = x * 2
        z.add_(y).mul_(z).clamp_(-5, 5)
        w = z.neg()
        z.sub_(w)
        return z, w.exp_()

    same(f, lambda seed: [numbers(777, seed=seed), numbers(777, seed=seed + 1)])


def test_writes_to_arguments_and_to_what_is_read_in_another_way():
    """Such a call ends a chain: another thread's elements would be read before or after they are written."""
    def f(x, m):
        y = x * 2 + 1
        y.add_(y.sum(0))
        y.add_(y[:, :1].clone()).mul_(y[2:3].clone())
        z = (y * 3).tanh()
        m.mul_(z).add_(1)
        return z, m * 2 + z

    step = tg.record(f)
    for seed in range(5):
        x, m = numbers(6, 50, seed=seed), numbers(6, 50, seed=seed + 5)
        again = m.clone()
        tg._C._wait_for_chains()
        for a, b in zip([*f(x, again), again], [*step(x, m), m], strict=True):
            assert bits(a) == bits(b), step.summary()
    assert replays(step) > 0


def test_a_long_chain_is_cut():
    def f(x):
        for i in range(40):
            x = x * (1 + i / 64) + 0.5
        return x

    same(f, lambda seed: [numbers(500, seed=seed)], chains=3, calls=80)


def test_chains_that_differ_in_numbers_share_a_kernel():
    def made(scale):
        def f(x):
            return (x * scale).cos() + scale

        return f

    same(made(2.0), lambda seed: [numbers(600, seed=seed)])
    before = tg._C._cuda_chain_texts()
    same(made(-7.5), lambda seed: [numbers(600, seed=seed)])
    assert tg._C._cuda_chain_texts() == before


# --- steps ---

@pytest.mark.parametrize("memory", [None, 0.6])
def test_training(memory):
    def make():
        tg.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 40), nn.SiLU(), nn.Linear(40, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 3)).cuda()
        return net, tg.optim.Adam(net.parameters(), lr=0.01)

    (a, first), (b, second) = make(), make()

    def with_more(net, optimizer):
        plain = training(net, optimizer, zero="after")

        def step(x, y):
            x = (x * 0.5 + 0.1).tanh() * x
            return plain(x, y)

        return step

    eager, step = with_more(a, first), tg.record(with_more(b, second), memory=memory)
    for seed in range(8):
        x, y = numbers(9, 6, seed=seed).nan_to_num(0, 1, -1).clamp(-3, 3), tg.arange(9, device="cuda") % 3
        if seed > 3:  # some are replayed without the kernels
            tg._C._wait_for_chains()
        assert bits(eager(x, y)) == bits(step(x, y))
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            assert bits(p) == bits(q)
    use = step._replays.memory()[0]
    assert use["chains"] > 0 and use["no_chains"] == "", step.summary()
    assert "kernels made of chains" in step.summary() and use["apart"] == 0


def test_compiled_models():
    tg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.Hardswish(), nn.Softsign(), nn.Tanh(), nn.Linear(20, 2)).cuda()
    compiled = tg.compile(nn.Sequential(*model))
    for seed in range(6):
        x = numbers(5, 6, seed=seed).nan_to_num(0, 1, -1)
        grads = []
        tg._C._wait_for_chains()
        for net in (model, compiled):
            net.zero_grad()
            net(x).square().sum().backward()
            grads.append([bits(p.grad) for p in net.parameters()])
        assert grads[0] == grads[1]


# --- where there is none ---

def chain(x):
    return (x * 2 + 1).sin() - x


def test_switched_off():
    before = tg.record.loops(False)
    try:
        same(chain, lambda seed: [numbers(300, seed=seed)], chains=0)
    finally:
        tg.record.loops(before)


@pytest.mark.skipif(not SIMULATED, reason="names another compiler")
@pytest.mark.parametrize(("program", "why"), [("false", "the compiler refuses a kernel"), ("/no/such/program", "the compiler refuses a kernel"),
                                              ("true", "a kernel cannot be loaded")])
def test_a_compiler_that_fails(program, why, monkeypatch, caplog):
    monkeypatch.setenv("TAPEGRAD_CUDA_SIMULATE_COMPILER", program)

    def other(x):
        return (x * 2 + 1).cos().neg() - x  # no other test has compiled it

    step = tg.record(other)
    with caplog.at_level(logging.INFO, "tapegrad.record"):
        for seed in range(5):
            x = numbers(300, seed=seed)
            tg._C._wait_for_chains()
            assert bits(other(x)) == bits(step(x))
    use = step._replays.memory()[0]
    assert replays(step) > 0 and use["chains"] == 0 and use["graphs"] == 1 and why in use["no_chains"], step.summary()
    said = [r.getMessage() for r in caplog.records if "chains of pointwise calls on cuda:0 are replayed call by call" in r.getMessage()]
    assert len(said) == 1 and why in said[0]


@pytest.mark.skipif(not SIMULATED, reason="needs a compiler that makes other code")
def test_other_bits_are_found(monkeypatch, tmp_path, caplog):
    """What the compiler has made is compared with the kernels before it is used."""
    wrong = tmp_path / "wrong"
    wrong.write_text('#!/bin/sh\nfor a in "$@"; do case $a in */kernel.cpp) sed -i "s/fn::cosh/fn::sinh/" "$a";; esac; done\nexec g++ "$@"\n')
    wrong.chmod(0o755)
    monkeypatch.setenv("TAPEGRAD_CUDA_SIMULATE_COMPILER", str(wrong))
    step = tg.record(lambda x: (x * 2 + 1).cosh() - x)
    with caplog.at_level(logging.INFO, "tapegrad.record"):
        for seed in range(5):
            x = numbers(300, seed=seed)
            tg._C._wait_for_chains()
            assert bits((x * 2 + 1).cosh() - x) == bits(step(x))
    use = step._replays.memory()[0]
    assert use["chains"] == 0 and "gave other bits at element" in use["no_chains"], step.summary()
    assert "gave other bits" in caplog.text


def test_waits_of_the_comparison_are_not_the_programs():
    with tg.strict("sync"):
        step = tg.record(lambda x: (x * 2 + 1).rsqrt() - x)
        x = tg.ones(300, device="cuda")
        for _ in range(5):
            tg._C._wait_for_chains()
            step(x)
        assert tg._C._cuda_wait_mode(-1) == 2
    assert step._replays.memory()[0]["chains"] == 1, step.summary()


def test_what_earlier_kernels_have_found_is_raised_and_not_lost():
    step = tg.record(lambda x: (x * 2 + 1).square().frac() - x)
    x = numbers(300, seed=0)
    for _ in range(3):
        step(x)
    tg._C._wait_for_chains()
    table, index = tg.ones(10, 3, device="cuda"), tg.tensor([3, 77]).cuda()
    with pytest.raises(IndexError):
        table[index]
        step(x)  # compares
        cuda.synchronize()
    for _ in range(4):
        assert bits(step(x)) == bits((x * 2 + 1).square().frac() - x)
    assert step._replays.memory()[0]["chains"] == 1, step.summary()


@pytest.mark.skipif(not SIMULATED, reason="TMPDIR is the simulated compiler's")
def test_no_folder_for_a_kernel(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    step = tg.record(lambda x: (x * 2 + 1).ceil().trunc() - x)
    x = numbers(300, seed=0)
    for _ in range(5):
        step(x)
        tg._C._wait_for_chains()
    assert "no temporary folder can be made" in step._replays.memory()[0]["no_chains"], step.summary()


@pytest.mark.skipif(not SIMULATED, reason="fills the device's memory")
def test_no_memory_to_compare(monkeypatch):
    step = tg.record(lambda x: (x * 3 + 1).log1p() - x)
    x = numbers(20_000, seed=0).abs()
    expected = (x * 3 + 1).log1p() - x
    step(x)
    left = cuda.mem_get_info()[0]
    held = []
    while left > (1 << 22):
        held.append(tg.empty(left // 2, dtype=tg.uint8, device="cuda"))
        left = cuda.mem_get_info()[0]
    del held
    for _ in range(4):
        assert bits(step(x)) == bits(expected)
        tg._C._wait_for_chains()


# --- meanwhile ---

@pytest.fixture
def slow(monkeypatch, tmp_path):
    """A compiler that takes until the file `go` is there; `begun` says that it runs. Gives a function that lets it end."""
    if not SIMULATED:
        pytest.skip("needs a compiler that waits")
    program, begun, go = tmp_path / "slow", tmp_path / "begun", tmp_path / "go"
    program.write_text(f'#!/bin/sh\necho $$ >> {begun}\nwhile [ ! -e {go} ]; do sleep 0.02; done\nexec g++ "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TAPEGRAD_CUDA_SIMULATE_COMPILER", str(program))

    def until(path):
        end = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.01)

    yield types.SimpleNamespace(begun=lambda: until(begun), go=go.touch, starts=lambda: len(begun.read_text().split()) if begun.exists() else 0)
    go.touch()
    tg._C._wait_for_chains()


def chain_of(scale):
    """A text of its own for each number of calls."""
    def f(x):
        for _ in range(scale):
            x = (x * 1.5).sinh() - 0.25
        return x

    return f


@pytest.mark.parametrize("memory", [None, 0.7])
def test_replays_do_not_wait_for_the_compiler(slow, memory):
    f = chain_of(2 if memory is None else 3)
    step = tg.record(f, memory=memory)
    for seed in range(6):
        x = numbers(400, seed=seed)
        step._replays.scribble()
        assert bits(step(x)) == bits(f(x)), step.summary()
    slow.begun()
    use = step._replays.memory()[0]
    assert replays(step) == 4 and use["awaited"] == 1 and use["chains"] == 0 and use["graphs"] == 1, step.summary()
    assert "1 kernels of chains are being compiled" in step.summary()
    before = use["planned"]
    slow.go()
    tg._C._wait_for_chains()
    for seed in range(6):
        x = numbers(400, seed=seed)
        step._replays.scribble()
        assert bits(step(x)) == bits(f(x)), step.summary()
    use = step._replays.memory()[0]
    assert replays(step) == 10 and use["awaited"] == 0 and use["chains"] == 1 and use["graphs"] == 1 and use["planned"] < before, step.summary()


def test_a_step_in_two_parts_takes_kernels_in_between_its_calls(slow):
    tg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.Hardswish(), nn.Tanh(), nn.Softsign(), nn.ELU(), nn.Linear(20, 2)).cuda()
    compiled = tg.compile(nn.Sequential(*model))
    for seed in range(12):
        x = numbers(5, 6, seed=seed).nan_to_num(0, 1, -1)
        grads, outs = [], []
        for net in (model, compiled):
            net.zero_grad()
            outs.append(net(x))
            if seed == 6 and net is compiled:  # between the passes
                slow.go()
                tg._C._wait_for_chains()
            outs[-1].square().sum().backward()
            grads.append([bits(p.grad) for p in net.parameters()])
        assert grads[0] == grads[1] and bits(outs[0]) == bits(outs[1]), compiled.forward.summary()
    use = compiled.forward._replays.memory()[0]
    assert use["chains"] > 0 and use["awaited"] == 0 and replays(compiled.forward) > 6, compiled.forward.summary()


def test_a_step_that_goes_meanwhile(slow):
    """What was not begun is not compiled at all."""
    first, second = tg.record(chain_of(4)), tg.record(chain_of(5))
    x = numbers(400, seed=0)
    for step in (first, second):
        for _ in range(3):
            step(x)
    slow.begun()
    assert [s._replays.memory()[0]["awaited"] for s in (first, second)] == [1, 1]
    first.reset()
    del second, step
    gc.collect()
    slow.go()
    tg._C._wait_for_chains()
    assert slow.starts() == 1
    for seed in range(5):
        x = numbers(400, seed=seed)
        assert bits(first(x)) == bits(chain_of(4)(x))
    assert first._replays.memory()[0]["chains"] == 1, first.summary()  # its kernel was kept


def test_equal_chains_are_compiled_once_though_two_steps_wait(slow):
    steps = [tg.record(chain_of(6)) for _ in range(2)]
    x = numbers(400, seed=0)
    for step in steps:
        for _ in range(3):
            step(x)
    slow.begun()
    slow.go()
    tg._C._wait_for_chains()
    assert slow.starts() == 1
    for step in steps:
        assert bits(step(x)) == bits(chain_of(6)(x)) and step._replays.memory()[0]["chains"] == 1


def test_ctrl_c_and_a_fork_while_a_kernel_is_compiled(slow):
    f = chain_of(7)
    step = tg.record(f)
    x = numbers(400, seed=0)
    for _ in range(3):
        step(x)
    slow.begun()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    child = os.fork()
    if child == 0:  # it has no device, no compiler, and ends at once
        status = 1
        try:
            host = tg.record(lambda t: t * 2 + 1)
            ones = tg.ones(3)
            status = 0 if all(host(ones).sum() == 9 for _ in range(4)) else 2
            tg._C._wait_for_chains()
            step.reset()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    slow.go()
    tg._C._wait_for_chains()
    assert bits(step(x)) == bits(f(x)) and step._replays.memory()[0]["chains"] == 1, step.summary()


END = """
import os, subprocess, sys, time
import tapegrad as tg
step = tg.record(lambda x: (x * 2 + 1).sinh() - x)
x = tg.rand(300).cuda()
for _ in range(4):
    step(x)
assert step._replays.memory()[0]["awaited"] == 1
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
subprocess.Popen(["sh", "-c", "sleep 0.5; touch " + sys.argv[2]])
if sys.argv[3] == "forks":
    if os.fork() == 0:
        sys.exit(0)  # runs the exit handlers of the child
    assert os.wait()[1] == 0
if sys.argv[3] == "raises":
    raise SystemExit(7)
"""


@pytest.mark.parametrize("how", ["ends", "raises", "forks"])
def test_the_process_ends_while_a_kernel_is_compiled(slow, tmp_path, how):
    done = subprocess.run([sys.executable, "-c", END, str(tmp_path / "begun"), str(tmp_path / "go"), how], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (7 if how == "raises" else 0, ""), done
    assert not list(tmp_path.glob("tapegrad-kernel-*"))


# --- the real NVRTC, without a card ---

def test_the_real_compiler_takes_the_texts():
    """Some of the kernels that the tests above have made in this process, and those of all operators."""
    library = nvrtc()
    if library is None:
        pytest.skip("NVRTC of CUDA 13 is not installed (PyPI: nvidia-cuda-nvrtc)")

    def texts():
        return tg._C._cuda_chain_texts().split("\0")

    def everything(a, b):
        return [g(a * 1.5, b) for g in OPERATORS]

    before = texts()
    step = tg.record(everything)
    for seed in range(3):
        tg._C._wait_for_chains()
        step(numbers(40, seed=seed), numbers(40, seed=seed + 100))
    made = [text for text in texts() if text not in before]
    assert len(made) >= 3
    for i, text in enumerate([*made, *before[::8]]):
        for architecture in (80, 90, 120) if i == 0 else (90,):
            assert tg._C._cuda_compile_cubin(library, architecture, text)[1:4] == b"ELF", text
    with pytest.raises(RuntimeError, match='refuses a kernel for sm_90: error: identifier "x" is undefined'):
        tg._C._cuda_compile_cubin(library, 90, "int f() { return x; }")
    with pytest.raises(RuntimeError, match="refuses a kernel for sm_17"):
        tg._C._cuda_compile_cubin(library, 17, made[0])


# What NVRTC makes of an operator's formula in a chain has the instructions of arithmetic that nvcc makes of it in a kernel of its own: the same products
# are contracted with the same sums, so that bits are equal.

BUILD = Path(tg._C.__file__).parents[2]
HEADERS = ("activation", "arithmetic", "compare", "elementary")
ARITHMETIC = {0x20: "FMUL", 0x21: "FADD", 0x23: "FFMA", 0x108: "MUFU", 0x28: "DMUL", 0x29: "DADD", 0x2B: "DFMA"}  # the low bits of SASS


def formulas():
    """(row, functor, types of its fields, inputs) of the rows whose formula is in HEADERS and takes floating-point numbers."""
    text = "\n".join((BUILD / f"include/tapegrad/aten/functors/{h}.h").read_text() for h in HEADERS)
    listed = re.findall(r'TG_FORMULA\("(\w+)", "(\w+)", "(.*?)", (\d)\)', (BUILD / "gen/tapegrad/cuda/formula_list.inc").read_text())
    return [(row, functor, fields.split(), int(inputs)) for row, functor, fields, inputs in listed
            if re.search(rf"^(struct {functor} |TG_\w+\({functor},)", text, re.M) and not row.startswith("bitwise") and row not in ("gcd", "lcm")]


def kernels(write, rows):
    """A kernel for each row over one element; write(call) gives the statement."""
    text = "".join(f'#include "tapegrad/aten/functors/{h}.h"\n' for h in HEADERS)
    for row, functor, fields, inputs in rows:
        fields = ["float" if f == "T" else f for f in fields]
        parameters = "".join(f", const float* x{k}" for k in range(inputs)) + "".join(f", {f} p{k}" for k, f in enumerate(fields))
        call = f"tapegrad::fn::{functor}<float>{{{', '.join(f'p{k}' for k in range(len(fields)))}}}({', '.join(f'x{k}[threadIdx.x]' for k in range(inputs))})"
        text += f'extern "C" __global__ void row_{row}(float* out, unsigned zero{parameters}) {{ out[threadIdx.x] = {write(call)}; }}\n'
    return text


def arithmetic(cubin):
    """How often each instruction of ARITHMETIC is in each kernel of an ELF file."""
    at, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, at + i * size) for i in range(count)]
    found = {}
    for name, _, _, _, offset, nbytes in sections:
        start = sections[names][4] + name
        title = cubin[start : cubin.index(b"\0", start)].decode()
        if title.startswith(".text."):
            codes = (struct.unpack_from("<Q", cubin, offset + i)[0] & 0x1FF for i in range(0, nbytes, 16))
            found[title.removeprefix(".text.").removeprefix("row_")] = collections.Counter(ARITHMETIC[c] for c in codes if c in ARITHMETIC)
    return found


@pytest.fixture(scope="module")
def compilers():
    nvcc = shutil.which("nvcc")
    if nvcc is None or nvrtc() is None or not (BUILD / "gen/tapegrad/cuda/formula_list.inc").exists():
        pytest.skip("needs nvcc, NVRTC of CUDA 13 (PyPI: nvidia-cuda-nvrtc) and the build's folder")
    return nvcc, nvrtc()


CHAIN = '#include "tapegrad/cuda/record/device/chain.h"\n'


def test_formulas_have_the_arithmetic_of_eager_kernels(compilers, tmp_path):
    rows = formulas()
    assert len(rows) > 90
    source = tmp_path / "eager.cu"
    source.write_text("#include <cstdint>\n" + kernels(lambda call: call, rows))
    done = subprocess.run([compilers[0], "-arch=sm_90", "-cubin", "-O2", "-std=c++20", "--expt-relaxed-constexpr", "-include", "tapegrad/cuda/launch/nvcc.h",
                           "--diag-suppress=186", f"-I{BUILD}/include", f"-I{BUILD}/gen", "-DFMT_CONSTEVAL=", "-DFMT_USE_CONSTEXPR=1",
                           "-o", str(tmp_path / "eager.cubin"), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    eager = arithmetic((tmp_path / "eager.cubin").read_bytes())
    text = kernels(lambda call: f"tapegrad::chain::handed_on<float>({call}, zero)", rows)
    chained = arithmetic(tg._C._cuda_compile_cubin(compilers[1], 90, CHAIN + text))
    assert len(eager) == len(rows) and sum(eager["_gelu_backward"].values()) > 5
    assert {row: (eager[row], chained[row]) for row in eager if eager[row] != chained[row]} == {}


def test_nothing_is_contracted_across_operators(compilers):
    """A product by one operator and the sum of the next are rounded each; where the value is handed on as it is they are not."""
    body = CHAIN + kernels(lambda call: "0", []) + """
using namespace tapegrad;
extern "C" __global__ void chained(float* out, unsigned zero, float a, float b) {
  out[0] = fn::hardsigmoid<float>{}(chain::handed_on<float>(fn::mul<float>{}(a, b), zero));
}
extern "C" __global__ void merged(float* out, float a, float b) { out[0] = fn::hardsigmoid<float>{}(fn::mul<float>{}(a, b)); }
"""
    found = arithmetic(tg._C._cuda_compile_cubin(compilers[1], 90, body))
    assert found["chained"]["FFMA"] == 0 and found["merged"]["FFMA"] > 0
