"""Products with factors of 8 and 4 bits: against exact sums, and against PyTorch where it is installed."""

import subprocess
import sys

import numpy as np
import pytest
import tapegrad as tg

try:
    import torch
except ImportError:
    torch = None

HAS_TORCH = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
FLOATS = ["float32", "bfloat16", "float16"]
TOLERANCE = {"float32": 2e-6, "bfloat16": 2.0**-8, "float16": 2.0**-11}
# rows, terms, columns: none, odd, borders of the kernels' steps and blocks, more than one block
SIZES = [(0, 5, 4), (3, 0, 4), (3, 5, 0), (0, 0, 0), (1, 1, 1), (1, 63, 1), (2, 64, 65), (3, 65, 64), (4, 31, 17), (5, 100, 130), (6, 33, 15), (7, 4097, 3), (13, 8200, 70),
         (17, 129, 66), (65, 200, 129), (500, 70, 80), (970, 33, 5)]


def _numbers(*shape, low=-128, high=128, seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


def _int8(x):
    return tg.tensor(x, dtype=tg.int8)


# _int_mm


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("sizes", SIZES)
def test_int_mm(sizes, dtype):
    m, k, n = sizes
    a, b = _numbers(m, k, low=0 if dtype == "uint8" else -128, high=256 if dtype == "uint8" else 128), _numbers(k, n, seed=1)
    expected, x = a @ b, tg.tensor(a).to(getattr(tg, dtype))
    for w in (_int8(b), _int8(b.T.copy()).t(), _int8(np.repeat(b, 2, 1))[:, ::2], _int8(b[::-1, ::-1].copy()).flip(0, 1)):
        got = tg._int_mm(x, w)
        assert got.dtype == tg.int32 and tuple(got.shape) == (m, n) and np.array_equal(got.numpy(), expected)
    turned = x.t().contiguous().t()
    assert np.array_equal(tg._int_mm(turned, _int8(b)).numpy(), expected)


@pytest.mark.parametrize("a, b", [(-128, -128), (127, -128), (-128, 127), (127, 127)])
@pytest.mark.parametrize("k", [63, 100_000, 140_000])
def test_int_mm_of_the_largest_numbers(a, b, k):
    """140,000 products of -128 and -128 are more than int32 holds: sums wrap, as PyTorch's do."""
    for rows in (1, 4, 7):
        got = tg._int_mm(tg.full((rows, k), a, dtype=tg.int8), tg.full((17, k), b, dtype=tg.int8).t())
        assert got.numpy().min() == got.numpy().max() == np.int64(a * b * k).astype(np.int32)


def test_int_mm_wraps_as_pytorch():
    if torch is None:
        pytest.skip("PyTorch is not installed")
    a = torch.full((1, 140_000), -128, dtype=torch.int8)
    mine = tg.full((1, 140_000), -128, dtype=tg.int8)
    assert tg._int_mm(mine, mine.t()).item() == torch._int_mm(a, a.t()).item()


def test_int_mm_out():
    a, b = _numbers(5, 40), _numbers(40, 7, seed=1)
    x, w = _int8(a), _int8(b)
    out = tg.zeros(5, 7, dtype=tg.int32)
    assert tg._int_mm(x, w, out=out) is out and np.array_equal(out.numpy(), a @ b)
    strided = tg.zeros(7, 5, dtype=tg.int32).t()
    assert np.array_equal(tg._int_mm(x, w, out=strided).numpy(), a @ b)
    assert tg.ops.aten._int_mm(x, w).equal(out) and tg.ops.aten._int_mm.default(x, w).equal(out)
    with pytest.raises(RuntimeError):
        tg._int_mm(x, w, out=tg.zeros(5, 7))
    with pytest.raises(RuntimeError):
        tg._int_mm(x, w, out=tg.zeros(5, 7, dtype=tg.int64))


def test_int_mm_onto_its_own_factors():
    """out= in the memory of a factor: the product of what was there, or an error with nothing written."""
    a, b = _numbers(2, 8), _numbers(8, 8, seed=1)
    memory = tg.empty(64 + 16, dtype=tg.int8)
    memory[:64], memory[64:] = _int8(b).view(-1), _int8(a).view(-1)
    x, w, out = memory[64:].view(2, 8), memory[:64].view(8, 8), memory[:64].view(tg.int32).view(2, 8)
    try:
        tg._int_mm(x, w, out=out)
    except RuntimeError:
        assert np.array_equal(w.numpy(), b)
    else:
        assert np.array_equal(out.numpy(), a @ b)


# The same calls of both libraries, which both refuse: (name, call of a library and a maker of tensors).
def _refused(lib, i8, real):
    pack, four = lib._convert_weight_to_int4pack_for_cpu, lib._weight_int4pack_mm_for_cpu
    w4 = lib.zeros(64, 32, dtype=lib.uint8)
    yield "vector", lambda: lib._int_mm(i8(5), i8(5, 4))
    yield "three dimensions", lambda: lib._int_mm(i8(3, 5), i8(5, 4, 1))
    yield "inner sizes", lambda: lib._int_mm(i8(3, 5), i8(4, 4))
    yield "floats", lambda: lib._int_mm(real(3, 5), i8(5, 4))
    yield "uint8 weight", lambda: lib._int_mm(i8(3, 5), i8(5, 4).to(lib.uint8))
    yield "no tensor", lambda: lib._int_mm(i8(3, 5), 3)
    yield "one argument", lambda: lib._int_mm(i8(3, 5))
    yield "int8pack: scales' dtype", lambda: lib._weight_int8pack_mm(real(3, 8), i8(4, 8), real(4).bfloat16())
    yield "int8pack: float64", lambda: lib._weight_int8pack_mm(real(3, 8).double(), i8(4, 8), real(4).double())
    yield "int8pack: three dimensions", lambda: lib._weight_int8pack_mm(real(2, 3, 8), i8(4, 8), real(4))
    yield "int8pack: float weight", lambda: lib._weight_int8pack_mm(real(3, 8), real(4, 8), real(4))
    yield "int8pack: uint8 weight", lambda: lib._weight_int8pack_mm(real(3, 8), i8(4, 8).to(lib.uint8), real(4))
    yield "int8pack: inner sizes", lambda: lib._weight_int8pack_mm(real(3, 8), i8(4, 9), real(4))
    yield "int8pack: scales' number", lambda: lib._weight_int8pack_mm(real(3, 8), i8(4, 8), real(3))
    yield "int8pack: one scale", lambda: lib._weight_int8pack_mm(real(3, 8), i8(4, 8), real(1))
    yield "int8pack: scales' shape", lambda: lib._weight_int8pack_mm(real(3, 8), i8(4, 8), real(4, 1))
    yield "pack: odd columns", lambda: pack(lib.zeros(16, 7, dtype=lib.int32), 2)
    yield "pack: 24 rows", lambda: pack(lib.zeros(24, 8, dtype=lib.int32), 2)
    yield "pack: int64", lambda: pack(lib.zeros(64, 8, dtype=lib.int64), 2)
    yield "pack: uint8", lambda: pack(lib.zeros(64, 8, dtype=lib.uint8), 2)
    yield "pack: vector", lambda: pack(lib.zeros(64, dtype=lib.int32), 2)
    yield "int4: group", lambda: four(real(3, 64), w4, 16, real(4, 64, 2))
    yield "int4: group of 0", lambda: four(real(3, 64), w4, 0, real(4, 64, 2))
    yield "int4: groups", lambda: four(real(3, 64), w4, 128, real(1, 64, 2))
    yield "int4: scales' shape", lambda: four(real(3, 64), w4, 32, real(2, 63, 2))
    yield "int4: scales' dimensions", lambda: four(real(3, 64), w4, 32, real(2, 64))
    yield "int4: scales' dtype", lambda: four(real(3, 64), w4, 32, real(2, 64, 2).half())
    yield "int4: three dimensions", lambda: four(real(2, 3, 64), w4, 32, real(2, 64, 2))
    yield "int4: int8 weight", lambda: four(real(3, 64), w4.to(lib.int8), 32, real(2, 64, 2))
    yield "int4: inner sizes", lambda: four(real(3, 32), w4, 32, real(1, 64, 2))
    yield "int4: float64", lambda: four(real(3, 64).double(), w4, 32, real(2, 64, 2).double())


def _calls(lib):
    return dict(_refused(lib, lambda *s: lib.ones(s, dtype=lib.int8), lambda *s: lib.ones(s)))


@pytest.mark.parametrize("name", _calls(tg))
def test_refused(name):
    with pytest.raises((RuntimeError, TypeError)) as mine:
        _calls(tg)[name]()
    if torch is not None:
        with pytest.raises((RuntimeError, TypeError)) as theirs:
            _calls(torch)[name]()
        assert type(mine.value) is type(theirs.value)


def test_too_few_groups_are_refused():
    """PyTorch reads behind the scales here."""
    with pytest.raises(RuntimeError, match=r"^_weight_int4pack_mm_for_cpu: qScaleAndZeros must have the shape \[2, 64, 2\]: got shape \[1, 64, 2\]$"):
        tg._weight_int4pack_mm_for_cpu(tg.ones(3, 64), tg.zeros(64, 32, dtype=tg.uint8), 32, tg.ones(1, 64, 2))


# Weights of int8.


def _close(got, expected, dtype, size, roundings=1):
    """Within the rounding of the result and of float32 sums of `size` magnitudes."""
    limit = np.abs(expected) * TOLERANCE[dtype] * roundings + size * 2e-6
    assert (np.abs(got.float().numpy().astype(np.float64) - expected) <= limit).all()


def _rounded(shape, dtype, seed):
    """Numbers of a dtype, as tensor and as float64."""
    x = tg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to(getattr(tg, dtype))
    return x, x.float().numpy().astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", SIZES)
def test_weight_int8pack_mm(sizes, dtype):
    m, k, n = sizes
    q = _numbers(n, k)
    (x, a), (s, scales) = _rounded((m, k), dtype, 1), _rounded((n,), dtype, 2)
    got = tg._weight_int8pack_mm(x, _int8(q), s)
    assert got.dtype == x.dtype and tuple(got.shape) == (m, n)
    _close(got, a @ q.T * scales, dtype, np.abs(a) @ np.abs(q.T) * np.abs(scales))
    other = tg._weight_int8pack_mm(x.t().contiguous().t(), _int8(q.T.copy()).t(), s.repeat_interleave(2)[::2])
    assert other.equal(got)


@HAS_TORCH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 4, 16, 40])
def test_weight_int8pack_mm_as_pytorch(rows, dtype):
    q = _numbers(96, 768)
    (x, a), (s, _) = _rounded((rows, 768), dtype, 1), _rounded((96,), dtype, 2)
    kind = getattr(torch, dtype)
    theirs = torch._weight_int8pack_mm(torch.tensor(x.float().numpy()).to(kind), torch.tensor(q, dtype=torch.int8), torch.tensor(s.float().numpy()).to(kind))
    mine = tg._weight_int8pack_mm(x, _int8(q), s)
    _close(mine, theirs.double().numpy(), dtype, np.abs(a) @ np.abs(q.T), 2.1)


def test_gradient_of_weight_int8pack_mm():
    q, x, s = _int8(_numbers(7, 12)), tg.randn(3, 12, requires_grad=True), tg.rand(7)
    grad = tg.randn(3, 7)
    tg._weight_int8pack_mm(x, q, s).backward(grad)
    assert tg.allclose(x.grad, (grad * s) @ q.float(), rtol=1e-5, atol=1e-4)
    s.requires_grad_()
    with pytest.raises(RuntimeError, match="^_weight_int8pack_mm: there is no derivative"):
        tg._weight_int8pack_mm(x, q, s).sum().backward()


# Weights of 4 bits.

PACKED = [(16, 2), (16, 64), (32, 32), (48, 96), (64, 8), (80, 6), (112, 32), (128, 256), (192, 10), (0, 8), (16, 0)]


def _unpacked(packed):
    """The int4 weight as PyTorch lays it out with AVX-512."""
    n, half = packed.shape
    flat, rows = packed.reshape(-1), []
    for j in range(0, n, 64):
        count = min(64, n - j)
        block = flat[j * half : (j + count) * half].reshape(2 * half, count // 2)
        low, high = block & 15, block >> 4
        if count == 64:
            rows.append(np.concatenate([low[:, :16], low[:, 16:], high[:, :16], high[:, 16:]], 1).T)
        else:
            rows.append(np.stack([low, high], 2).reshape(2 * half, count).T)
    return np.concatenate(rows) if rows else np.zeros((0, 2 * half), np.uint8)


@pytest.mark.parametrize("sizes", PACKED)
def test_int4_pack(sizes):
    q = _numbers(*sizes, low=0, high=16)
    packed = tg._convert_weight_to_int4pack_for_cpu(tg.tensor(q), 2)
    assert packed.dtype == tg.uint8 and tuple(packed.shape) == (sizes[0], sizes[1] // 2)
    assert np.array_equal(_unpacked(packed.numpy()), q)
    wide = tg.tensor(q + 16 * _numbers(*sizes, low=-8, high=8, seed=1), dtype=tg.int32)  # the lowest bits count
    assert tg._convert_weight_to_int4pack_for_cpu(wide.t().contiguous().t(), 8).equal(packed)
    if torch is not None and torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert np.array_equal(torch._convert_weight_to_int4pack_for_cpu(torch.tensor(q), 2).numpy(), packed.numpy())


def _int4(n, k, group, dtype, seed=0):
    q = _numbers(n, k, low=0, high=16, seed=seed)
    s, numbers = _rounded((k // group, n, 2), dtype, seed + 1)
    scale, zero = (numbers[:, :, i].T.repeat(group, 1) for i in range(2))
    return q, s, (q - 8) * scale + zero, np.abs(q - 8) * np.abs(scale) + np.abs(zero)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m, n, k, group", [(0, 64, 64, 32), (2, 0, 64, 32), (2, 64, 0, 32), (1, 64, 64, 64), (1, 128, 512, 32), (2, 64, 256, 128), (3, 80, 768, 256),
                                            (4, 16, 96, 32), (5, 192, 320, 64), (7, 112, 256, 256), (12, 64, 64, 32), (13, 128, 128, 64), (40, 176, 2304, 256), (130, 64, 96, 32)])
def test_weight_int4pack_mm(m, n, k, group, dtype):
    q, s, w, magnitudes = _int4(n, k, group, dtype)
    x, a = _rounded((m, k), dtype, 5)
    packed = tg._convert_weight_to_int4pack_for_cpu(tg.tensor(q), 2)
    got = tg._weight_int4pack_mm_for_cpu(x, packed, group, s)
    assert got.dtype == x.dtype and tuple(got.shape) == (m, n)
    _close(got, a @ w.T, dtype, np.abs(a) @ magnitudes.T)
    assert tg._weight_int4pack_mm_for_cpu(x.t().contiguous().t(), packed.t().contiguous().t(), group, s.transpose(0, 1).contiguous().transpose(0, 1)).equal(got)
    if torch is not None and torch.backends.cpu.get_cpu_capability() == "AVX512" and min(m, n, k):
        kind = getattr(torch, dtype)
        theirs = torch._weight_int4pack_mm_for_cpu(torch.tensor(x.float().numpy()).to(kind), torch.tensor(packed.numpy()), group, torch.tensor(s.float().numpy()).to(kind))
        _close(got, theirs.double().numpy(), dtype, np.abs(a) @ magnitudes.T, 2.1)


def test_gradient_of_weight_int4pack_mm():
    q, s, w, _ = _int4(80, 64, 32, "float32")
    packed, x, grad = tg._convert_weight_to_int4pack_for_cpu(tg.tensor(q), 2), tg.randn(3, 64, requires_grad=True), tg.randn(3, 80)
    tg._weight_int4pack_mm_for_cpu(x, packed, 32, s).backward(grad)
    assert np.allclose(x.grad.numpy(), grad.numpy() @ w, rtol=1e-4, atol=1e-3)
    with pytest.raises(RuntimeError, match="^_weight_int4pack_mm_for_cpu: there is no derivative"):
        tg._weight_int4pack_mm_for_cpu(x, packed, 32, s.clone().requires_grad_()).sum().backward()


# Of all of them.


def _runs(rows):
    x, q = tg.randn(rows, 512), _int8(_numbers(320, 512))
    w4 = tg._convert_weight_to_int4pack_for_cpu(tg.tensor(_numbers(320, 512, low=0, high=16)), 2)
    linear, scales, groups = tg._C._functions["_C._ops"]["_dynamic_quantized_linear"], tg.rand(320), tg.randn(16, 320, 2)
    yield lambda: tg._int_mm(_int8(_numbers(rows, 512)), q.t())
    yield lambda: tg._int_mm(_int8(_numbers(rows, 512)), q.t().contiguous())
    yield lambda: tg._weight_int8pack_mm(x, q, scales)
    yield lambda: tg._weight_int8pack_mm(x.bfloat16(), q, scales.bfloat16())
    yield lambda: tg._weight_int4pack_mm_for_cpu(x, w4, 32, groups)
    yield lambda: linear(x, q, scales, None)


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_same_bits_for_any_number_of_threads(rows):
    before = tg.get_num_threads()
    try:
        for run in _runs(rows):
            tg.set_num_threads(1)
            expected = run()
            for threads in (2, 3):
                tg.set_num_threads(threads)
                assert run().equal(expected)
    finally:
        tg.set_num_threads(before)


def test_a_row_has_the_same_bits_whatever_stands_beside_it():
    x, q, s = tg.randn(12, 512), _int8(_numbers(320, 512)), tg.rand(320)
    w4, groups = tg._convert_weight_to_int4pack_for_cpu(tg.tensor(_numbers(320, 512, low=0, high=16)), 2), tg.randn(16, 320, 2)
    for rows in range(1, 13):
        assert tg._weight_int8pack_mm(x[:rows], q, s)[0].equal(tg._weight_int8pack_mm(x, q, s)[0])
        assert tg._weight_int4pack_mm_for_cpu(x[:rows], w4, 32, groups)[0].equal(tg._weight_int4pack_mm_for_cpu(x, w4, 32, groups)[0])


def test_on_the_meta_device_and_under_vmap():
    x, q, s = tg.randn(3, 5, 16), _int8(_numbers(8, 16)), tg.rand(8)
    got = tg._weight_int8pack_mm(x[0].to("meta"), q.to("meta"), s.to("meta"))
    assert got.is_meta and tuple(got.shape) == (5, 8)
    assert tg.vmap(lambda a: tg._weight_int8pack_mm(a, q, s))(x).equal(tg.stack([tg._weight_int8pack_mm(a, q, s) for a in x]))
    assert tg._int_mm(q.to("meta"), q.t().to("meta")).dtype == tg.int32


def test_numbers_that_are_none_stay_in_their_rows():
    x, q, s = tg.randn(20, 64), _int8(_numbers(64, 64)), tg.rand(64)
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    w4, groups = tg._convert_weight_to_int4pack_for_cpu(tg.tensor(_numbers(64, 64, low=0, high=16)), 2), tg.randn(2, 64, 2)
    for rows in (4, 20):
        for got in (tg._weight_int8pack_mm(x[:rows], q, s), tg._weight_int4pack_mm_for_cpu(x[:rows], w4, 32, groups)):
            assert got[1].isnan().all() and not got[2].isfinite().any() and got[0].isfinite().all() and got[3:].isfinite().all()


@pytest.mark.parametrize("memory", [0, 1 << 20, 3 << 20])
def test_without_memory(memory):
    """OutOfMemoryError or the result, whatever is missing when."""
    program = f"""
import resource, sys
sys.path.insert(0, {__file__!r}.rpartition("/")[0])
import test_products as here
import tapegrad as tg
runs = list(here._runs(700))
used = int(open("/proc/self/statm").read().split()[0]) * 4096
for run in runs:
    resource.setrlimit(resource.RLIMIT_AS, (used + {memory}, resource.RLIM_INFINITY))
    try:
        assert run().numel()
    except (tg.OutOfMemoryError, MemoryError):
        pass
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    assert run().numel()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.stdout == "done\n", done.stderr
