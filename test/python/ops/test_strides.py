"""Operands with strides, which kernels gather, convert and scatter in pieces, and rows that lie a few bytes apart: the values of dense ones."""
import itertools

import numpy as np
import pytest
import tapegrad as tg

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
LENGTHS = [0, 1, 2, 15, 16, 17, 511, 512, 513, 1100]


def numbers(n, dtype, seed=0):
    x = tg.tensor(np.random.default_rng(seed).integers(0, 100, n)).to(getattr(tg, dtype))
    if dtype.startswith(("float", "bfloat")) and n > 8:
        x[3], x[5], x[7] = float("nan"), float("-inf"), -0.0
    return x


def equal(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    kind = tg.float32 if got.dtype == tg.bfloat16 else got.dtype
    assert got.to(kind).numpy().tobytes() == want.to(kind).numpy().tobytes()


@pytest.mark.parametrize("source, target", itertools.product(DTYPES, DTYPES))
def test_operands_of_two_types(source, target):
    """where() reads each by way of its own conversion; the result of one call goes to memory with strides."""
    if tg.promote_types(getattr(tg, source), getattr(tg, target)) != getattr(tg, target):
        pytest.skip("is read as it is, or converted to a third type: see the pair the other way round")
    for n, step, other in itertools.product(LENGTHS, (1, 2, 3), (1, 2, 5)):
        a, b = numbers(n * step, source, 1)[::step], numbers(n * other, target, 2)[::other]
        which = numbers(n, "int64", 3) % 2 == 0
        want = tg.where(which, a.contiguous(), b.contiguous())
        equal(tg.where(which, a, b), want)
        memory = numbers(n * step, target, 4)
        kept = memory.clone()
        tg.where(which, a, b, out=memory[::step])
        equal(memory[::step], want)
        for k in range(1, step):
            equal(memory[k::step], kept[k::step])


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("row, width", [(2, 3), (3, 5), (5, 6), (17, 40), (600, 601)])
def test_rows_and_columns_of_a_matrix(dtype, row, width):
    count = 700 if row < 100 else 5
    x = numbers(count * width, dtype).reshape(count, width)
    y = numbers(count * row, "float32" if dtype != "float64" else "int32", 1).reshape(row, count)
    part = x[:, 1:row + 1] if row < width else x
    equal(part + y.t(), part.contiguous() + y.t().contiguous())
    equal(part[:, ::2] * 2, part[:, ::2].contiguous() * 2)
    turned = x.t()[1:row + 1]
    equal(turned + y, turned.contiguous() + y)
    kept = x.clone()
    x[:, 1:row + 1] += 1
    equal(x[:, 1:row + 1], kept[:, 1:row + 1].contiguous() + 1)
    equal(x[:, :1], kept[:, :1])
    equal(x[:, row + 1:], kept[:, row + 1:])


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025, 5000, 70_001])
def test_copies_that_move_on_by_a_few_bytes(size):
    """Long ones are not memcpy's where it is slow."""
    source = numbers(size + 64, "uint8")
    for ahead, behind in itertools.product((0, 1, 3, 8, 15, 16, 17), (0, 1, 2, 16)):
        memory = tg.zeros(size + 64, dtype=tg.uint8)
        memory[ahead : ahead + size].copy_(source[behind : behind + size])
        want = np.zeros(size + 64, np.uint8)
        want[ahead : ahead + size] = source.numpy()[behind : behind + size]
        np.testing.assert_array_equal(memory.numpy(), want)
    for shift in (0, 1, 3, 15, 16, -1, size // 2):
        for dtype in ("uint8", "float32", "complex128"):
            x = numbers(size, "int64").to(getattr(tg, dtype))
            np.testing.assert_array_equal(x.roll(shift).numpy(), np.roll(x.numpy(), shift))
