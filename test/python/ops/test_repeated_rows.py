"""Operands of which each row is the same, or one number: the bits are those of operands as large as the result, in any place and with any number of threads."""

import pytest
import tapegrad as tg

SHAPES = [(2, 1), (3, 5), (40, 16), (41, 17), (700, 3), (90, 50), (33, 131), (20, 255), (20, 256), (9, 512), (7, 513), (5, 1023), (300, 262), (4, 3000)]
DTYPES = [tg.float32, tg.bfloat16, tg.float16, tg.float64, tg.int64, tg.uint8, tg.bool, tg.complex64]


def operands(rows, columns, dtype):
    tg.manual_seed(rows * columns)

    def make(*shape):
        floats = dtype.is_floating_point or dtype.is_complex
        return ((tg.randn(*shape) * 4) if floats else tg.randint(0, 2 if dtype == tg.bool else 7, shape)).to(dtype)

    row, column = make(columns), make(rows, 1)
    views = {"every second": make(columns, 2)[:, 0], "turned": make(rows, columns, 2).transpose(0, 1)[:, :, 1].t(), "of float": tg.randn(columns)}
    return row, column, make(rows, columns), views


def calls(row, column, x, views):
    yield from ((lambda a, b=b: a + b, x) for b in (row, column, *views.values()))
    yield lambda a: a + row, column
    yield lambda a: a * column, row
    yield lambda a: tg.where(x != row, a, column), row
    if x.dtype != tg.bool:
        yield lambda a: tg.addcmul(x, a, column), row
    if not x.is_complex():
        yield lambda a: a < x, column
        yield lambda a: tg.maximum(a, x), row


def large(call, a, shape):
    """The call with each tensor that it holds, and `a`, as large as the result."""

    def full(t):
        return t.expand(shape).contiguous()

    cells = [c.cell_contents for c in call.__closure__ or ()]
    for cell, value in zip(call.__closure__ or (), cells, strict=True):
        cell.cell_contents = full(value)
    defaults, call.__defaults__ = call.__defaults__, tuple(map(full, call.__defaults__ or ())) or None
    try:
        return call(full(a))
    finally:
        for cell, value in zip(call.__closure__ or (), cells, strict=True):
            cell.cell_contents = value
        call.__defaults__ = defaults


def bits(t):
    return t.contiguous().numpy().tobytes() if t.dtype != tg.bfloat16 else t.contiguous().view(tg.int16).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_are_those_of_whole_operands(dtype):
    before = tg.get_num_threads()
    try:
        for shape in SHAPES:
            for n, (call, a) in enumerate(calls(*operands(*shape, dtype))):
                expected = bits(large(call, a, shape))
                for threads in (1, 2, 3):
                    tg.set_num_threads(threads)
                    assert bits(call(a)) == expected, (shape, n, threads)
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.int64], ids=str)
def test_in_place_and_into_a_view(dtype):
    for shape in SHAPES:
        row, column, x, views = operands(*shape, dtype)
        for other in (row, column, views["every second"]):
            expected = bits(x + other)
            assert bits(x.clone().add_(other)) == expected
            room = tg.zeros(shape[0], shape[1] + 3, dtype=dtype)[:, 1:-2]
            assert bits(tg.add(x, other, out=room)) == expected == bits(room.copy_(x).add_(other))
