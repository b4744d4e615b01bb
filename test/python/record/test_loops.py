"""Loops made at run time for runs of arithmetic in chains: the bits of the kernels, for numbers of all kinds and operands of all layouts."""

import gc
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tapegrad as tg
from recorded import replays, same_bits

loops = tg._C._num_loops
F = tg.nn.functional
pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64" or os.environ.get("TAPEGRAD_LOOPS") == "0", reason="no loops on this machine")

EDGES = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, -3, 6, 0.1, np.inf, -np.inf, 1e-42, -1e-42, 1e-310, 1.17549435e-38, 3.4e38, -3.4e38]
HALVES = {tg.float16: [0x7C01, 0xFC05, 0x7E00, 0xFE03, 0x0001, 0x8003, 0x7BFF, 0x03FF], tg.bfloat16: [0x7F81, 0xFF85, 0x7FC0, 0xFFC3, 0x0001, 0x8003, 0x7F7F, 0x007F]}
NANS = {tg.float32: (np.uint32, np.float32, [0x7FC00001, 0xFFC00002, 0x7F800003, 0xFF800004]),
        tg.float64: (np.uint64, np.float64, [0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000003, 0xFFF0000000000004])}


def numbers(dtype, *shape, seed):
    """Half of them edges: zeros, infinities, NaN of several bits, denormals."""
    draw = np.random.RandomState(seed)
    if dtype in HALVES:  # their own edges, and those of float32 rounded
        own = tg.from_numpy(np.asarray(np.array(HALVES[dtype], np.uint16).view(np.int16)[draw.randint(8, size=shape)])).view(dtype)
        return tg.where(tg.from_numpy(np.asarray(draw.rand(*shape) < 0.2)), own, numbers(tg.float32, *shape, seed=seed + 7).to(dtype))
    integer, real, nans = NANS[dtype]
    edges = np.concatenate([np.array(EDGES, real), np.array(nans, integer).view(real)])
    picked = edges.view(integer)[draw.randint(len(edges), size=shape)]
    return tg.from_numpy(np.where(draw.rand(*shape) < 0.5, picked, np.asarray(draw.randn(*shape), real).view(integer)).view(real))


def bits(t):
    t = t.detach()
    return (t.view(tg.int16) if t.dtype in HALVES else t).numpy().tobytes()


def same(function, make, loop=True):
    """Replays have eager's bits, in results and arguments. `loop`: the plan has one; None: it may."""
    gc.collect()
    before = loops()
    step = same_bits(function, make, bits)
    assert loop is None or (loops() > before) == loop
    return step


OPERATORS = {
    "add": lambda a, b: a + b, "add_alpha": lambda a, b: tg.add(a, b, alpha=0.3), "sub": lambda a, b: tg.sub(a, b, alpha=0.3),
    "rsub": lambda a, b: tg.rsub(a, b, alpha=0.3), "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(), "square": lambda a, b: a.square(), "cube": lambda a, b: a**3, "reciprocal": lambda a, b: a.reciprocal(),
    "sqrt": lambda a, b: a.sqrt(), "rsqrt": lambda a, b: a.rsqrt(), "floor": lambda a, b: a.floor(), "ceil": lambda a, b: a.ceil(),
    "trunc": lambda a, b: a.trunc(), "round": lambda a, b: a.round(), "frac": lambda a, b: a.frac(), "sign": lambda a, b: a.sign(),
    "copysign": lambda a, b: tg.copysign(a, b), "deg2rad": lambda a, b: a.deg2rad(), "maximum": lambda a, b: tg.maximum(a, b),
    "minimum": lambda a, b: tg.minimum(a, b), "clamp_min": lambda a, b: a.clamp_min(0.1), "clamp_max": lambda a, b: a.clamp_max(0.1),
    "fmax": lambda a, b: tg.fmax(a, b), "fmin": lambda a, b: tg.fmin(a, b), "clamp": lambda a, b: a.clamp(-1, 1),
    "clamp_nan": lambda a, b: a.clamp(float("nan"), 1), "clamp_tensors": lambda a, b: tg.clamp(a, b, b + 1),
    "addcmul": lambda a, b: tg.addcmul(a, b, a, value=0.7), "addcdiv": lambda a, b: tg.addcdiv(a, b, a, value=0.7),
    "relu": lambda a, b: a.relu(), "threshold": lambda a, b: F.threshold(a, 0.1, 0.5), "hardtanh": lambda a, b: F.hardtanh(a),
    "leaky_relu": lambda a, b: F.leaky_relu(a, 0.2), "hardsigmoid": lambda a, b: F.hardsigmoid(a), "softsign": lambda a, b: F.softsign(a),
    "hardshrink": lambda a, b: F.hardshrink(a), "where": lambda a, b: tg.where(a > b, a, b), "eq": lambda a, b: (a == b).logical_or(a < b),
    "le": lambda a, b: (a <= b) & (a >= 0), "ne": lambda a, b: (a != b) | a.isnan(), "isinf": lambda a, b: a.isinf() ^ a.isfinite(),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 2.0), "bool_as_number": lambda a, b: a * (b > 0), "logical_and": lambda a, b: tg.logical_and(a > 0, b > 0),
    "nan_number": lambda a, b: a * float("nan") + b,
}
BACKWARD = {"relu": F.relu, "threshold": lambda x: F.threshold(x, 0.1, 0.5), "hardtanh": F.hardtanh, "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
            "sigmoid": lambda x: x.sigmoid(), "tanh": lambda x: x.tanh(), "hardsigmoid": F.hardsigmoid, "hardshrink": F.hardshrink,
            "clamp": lambda x: tg.clamp(x, x.detach() * 0 - 1, x.detach() * 0 + 1), "softshrink": F.softshrink}


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, dtype):
    f = OPERATORS[name]
    same(lambda a, b: (f(a * b, b), -a), lambda seed: [numbers(dtype, 50_003, seed=seed), numbers(dtype, 50_003, seed=seed + 100)])


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients(name, dtype):
    def f(x, grad):
        w = x.clone().requires_grad_()
        return tg.autograd.grad(BACKWARD[name](w), [w], grad * 2)[0] * 3 - 1

    same(f, lambda seed: [numbers(dtype, 40_007, seed=seed), numbers(dtype, 40_007, seed=seed + 100)])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 15, 16, 17, 8191, 8192, 8193, 8207, 8208, 65_536, 300_007, 1_000_003])
def test_sizes_threads_and_views_at_any_address(n, threads):
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        def f(x, y):
            for _ in range(4):
                x = tg.maximum(x * 0.5 + y, -x).abs() - 0.25
            return x, x > 0

        same(f, lambda seed: [numbers(tg.float32, n + 1, seed=seed)[1:], numbers(tg.float32, n + 3, seed=seed + 9)[3:]], loop=n >= 8192)
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize("n", [8191, 8192, 8193, 8207, 8255, 8256, 8257, 8319, 65_537, 65_599, 300_007])
@pytest.mark.parametrize("dtype", HALVES)
def test_sizes_of_16_bits(n, dtype):
    """Kernels do a few elements in another way than many, which NaN show: pieces end where their tiles do, and the last one is not small."""
    def f(x, y, wide):
        z = x * y
        for _ in range(2):
            z = tg.maximum(z * 0.5 + y, -x).abs() - 0.25
        mask = y > 0
        return z, (x * y) * mask, (x * y).masked_fill(mask, 2.0), x.neg(), wide * 2 + x, (wide * 2 + x).to(dtype) * y

    def make(seed):
        x, y = numbers(dtype, n + 1, seed=seed)[1:], numbers(dtype, n + 3, seed=seed + 9)[3:]
        x.view(tg.int16)[-70:] |= 0x7C03 if dtype is tg.float16 else 0x7F83  # NaN
        return [x, y, numbers(tg.float32, n, seed=seed + 1)]

    same(f, make, loop=None)


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
@pytest.mark.parametrize("rows, columns", [(600, 64), (129, 768), (3000, 16), (4, 8192), (999, 48), (700, 33)])
def test_rows_columns_and_numbers(rows, columns, dtype):
    def f(x, row, column, number, wide):
        y = tg.add(x * row, column, alpha=0.3) - number
        return tg.where(y > row, y * column, wide[:, 1:2] - y).clamp(row, column), tg.sub(row, y, alpha=0.7) / number

    same(f, lambda seed: [numbers(dtype, *shape, seed=seed + k) for k, shape in enumerate([(rows, columns), (columns,), (rows, 1), (), (rows, 3)])],
         loop=columns % 16 == 0)


def test_in_place_results_that_alias_and_functions_between():
    def f(x, y):
        a = x * 2
        a.add_(1).clamp_(-3, 3)
        b = a.exp() * a + y
        x.mul_(b).sub_(0.5)
        a.mul_(b)
        return a, a[1:], a.view(-1, 2), x + y, b

    same(f, lambda seed: [numbers(tg.float32, 60_000, seed=seed), numbers(tg.float32, 60_000, seed=seed + 5)])


def test_more_values_than_registers():
    def f(x):
        values = [x * (k + 1) for k in range(40)]  # all live at once
        while len(values) > 1:
            values = [a - b * 0.5 for a, b in zip(values[::2], values[1::2] + values[-1:], strict=False)]
        return values[0]

    same(f, lambda seed: [numbers(tg.float32, 20_011, seed=seed)])


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_programs_drawn_at_random(isa):
    code = f"import sys; sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}; import test_loops; test_loops.draw_programs()"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TAPEGRAD_ISA": isa}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


def draw_programs():
    names = [n for n in OPERATORS if n not in ("clamp_nan", "nan_number")]
    for seed in range(25):
        draw = random.Random(seed)
        plan = [(draw.choice(names), draw.randrange(1000), draw.randrange(1000), draw.random() < 0.2) for _ in range(draw.choice([3, 8, 20]))]
        shown, dtype, n = draw.sample(range(len(plan)), 2), draw.choice([tg.float32, tg.float64]), draw.choice([30_000, 44_001])

        def f(a, b, plan=plan, shown=shown, dtype=dtype):
            values = [a * 1.5, b - 0.5]
            for name, i, k, in_place in plan:
                value = OPERATORS[name](values[i % len(values)], values[k % len(values)])
                value = value if value.dtype == dtype else tg.where(value, values[0], values[1])
                values.append(value.mul_(0.75) if in_place else value)
            return [values[2 + s] for s in shown] + [values[-1] > 0]

        same(f, lambda seed, dtype=dtype, n=n: [numbers(dtype, n, seed=seed), numbers(dtype, n, seed=seed + 50)])


def test_switch_sharing_and_freeing():
    def f(x):
        return (x * 2 + 7).abs() - x

    def g(x):
        return (x * 3 + 4).abs() - x  # the same but for its numbers

    make = lambda seed: [numbers(tg.float32, 40_000, seed=seed)]  # noqa: E731
    gc.collect()
    before = loops()
    one = same(f, make)
    assert loops() == before + 1
    other = tg.record(g)
    for seed in range(4):
        other(*make(seed))
    assert replays(other) > 0 and loops() == before + 1
    one.reset()
    assert loops() == before + 1
    del other
    gc.collect()
    assert loops() == before
    assert tg.record.loops(False) is True
    try:
        same(f, make, loop=False)
    finally:
        assert tg.record.loops(True) is False


# A filter of system calls (seccomp) that refuses to make memory executable from here on.
FORBIDDEN = """
import ctypes, struct
def instruction(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
program = b"".join([
    instruction(0x20, 0, 0, 0),                    # the call's number
    instruction(0x15, 0, 3, 10),                   # mprotect?
    instruction(0x20, 0, 0, 32),                   # its third argument
    instruction(0x45, 0, 1, 4),                    # PROT_EXEC?
    instruction(0x06, 0, 0, 0x00050000 | 13),      # EACCES
    instruction(0x06, 0, 0, 0x7FFF0000)])          # else allowed
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(filter)), 0, 0) == 0, ctypes.get_errno()
import test_loops
import tapegrad as tg
test_loops.same(lambda x: (x * 2 + 1).abs() - x, lambda seed: [test_loops.numbers(tg.float32, 50_001, seed=seed)], loop=False)
print("in blocks")
"""


def test_where_memory_cannot_be_made_executable():
    code = f"import sys; sys.path[:0] = {[os.path.dirname(__file__), *sys.path]!r}; import numpy, tapegrad\n{FORBIDDEN}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "in blocks\n", done.stderr[-2000:]
