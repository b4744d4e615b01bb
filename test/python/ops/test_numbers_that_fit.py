"""Numbers that are made into elements: a dtype takes those that PyTorch's takes, and refuses the others before it writes."""

import math

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

NUMBERS = [2, True, 127, 128, 256, -129, -256, 32768, 2**31, 2**63 - 1, 1.5, -0.5, 127.5, 128.0, 255.5, 65505.0, 70000.0, 1e20, 1e39,
           math.inf, math.nan, 1 + 2j]
DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
INTEGERS = ["int8", "uint8", "int16", "int32", "int64"]


def zeros(lib, dtype):
    return lib.zeros(2, dtype=dtype)


def set_(t, where, v):
    t[where] = v
    return t


OPS = {  # name: (what is done, dtypes)
    "full": (lambda lib, v, d: lib.full((2,), v, dtype=d), DTYPES),
    "full_like": (lambda lib, v, d: lib.full_like(zeros(lib, d), v), DTYPES),
    "new_full": (lambda lib, v, d: zeros(lib, d).new_full((2,), v), DTYPES),
    "fill_": (lambda lib, v, d: zeros(lib, d).fill_(v), DTYPES),
    "fill_diagonal_": (lambda lib, v, d: lib.zeros(2, 2, dtype=d).fill_diagonal_(v), DTYPES),
    "init.constant_": (lambda lib, v, d: lib.nn.init.constant_(zeros(lib, d), v), DTYPES),
    "masked_fill": (lambda lib, v, d: zeros(lib, d).masked_fill(lib.tensor([True, False]), v), DTYPES),
    "masked_fill_": (lambda lib, v, d: zeros(lib, d).masked_fill_(lib.tensor([True, False]), v), DTYPES),
    "index_fill": (lambda lib, v, d: zeros(lib, d).index_fill(0, lib.tensor([1]), v), DTYPES),
    "index_fill_": (lambda lib, v, d: zeros(lib, d).index_fill_(0, lib.tensor([1]), v), DTYPES),
    "scatter": (lambda lib, v, d: zeros(lib, d).scatter(0, lib.tensor([1]), v), DTYPES),
    "scatter_": (lambda lib, v, d: zeros(lib, d).scatter_(0, lib.tensor([1]), v), DTYPES),
    "constant_pad_nd": (lambda lib, v, d: lib.constant_pad_nd(zeros(lib, d), (1, 1), v), DTYPES),
    "linspace": (lambda lib, v, d: lib.linspace(0, v, 3, dtype=d), DTYPES[1:]),
    "logspace": (lambda lib, v, d: lib.logspace(0, v, 2, dtype=d), DTYPES[1:]),
    "t[0] =": (lambda lib, v, d: set_(zeros(lib, d), 0, v), DTYPES),
    "t[mask] =": (lambda lib, v, d: set_(zeros(lib, d), lib.tensor([True, False]), v), DTYPES),
    "t[list] =": (lambda lib, v, d: set_(zeros(lib, d), [0, 1], v), DTYPES),
    "where": (lambda lib, v, d: lib.where(lib.tensor([True, False]), zeros(lib, d), v), DTYPES),
    "clamp min": (lambda lib, v, d: zeros(lib, d).clamp(min=v), DTYPES[1:10]),
    "clamp max": (lambda lib, v, d: zeros(lib, d).clamp(max=v), DTYPES[1:10]),
    "clamp both": (lambda lib, v, d: zeros(lib, d).clamp(v, v), DTYPES[1:10]),
    "clamp_min": (lambda lib, v, d: zeros(lib, d).clamp_min(v), DTYPES[1:10]),
    "alpha": (lambda lib, v, d: lib.add(zeros(lib, d), zeros(lib, d), alpha=1 if v is True else v), INTEGERS),
    "addcmul": (lambda lib, v, d: lib.addcmul(zeros(lib, d), zeros(lib, d), zeros(lib, d), value=v), DTYPES[1:]),
    "addcdiv": (lambda lib, v, d: lib.addcdiv(zeros(lib, d), zeros(lib, d), 1 + zeros(lib, d), value=v), DTYPES[6:]),
    "index_add": (lambda lib, v, d: zeros(lib, d).index_add(0, lib.tensor([0]), lib.ones(1, dtype=d), alpha=v), INTEGERS),
    "addmm alpha": (lambda lib, v, d: lib.addmm(*3 * [lib.zeros(2, 2, dtype=d)], alpha=v), INTEGERS),
    "addmm beta": (lambda lib, v, d: lib.addmm(*3 * [lib.zeros(2, 2, dtype=d)], beta=v), INTEGERS),
    "threshold": (lambda lib, v, d: lib.nn.functional.threshold(zeros(lib, d), v, 0), DTYPES[1:10]),
    "threshold value": (lambda lib, v, d: lib.nn.functional.threshold(zeros(lib, d), 1, v), [*INTEGERS, "float32", "float64"]),
    "leaky_relu": (lambda lib, v, d: lib.nn.functional.leaky_relu(zeros(lib, d), v), DTYPES[6:10]),
    "pow": (lambda lib, v, d: zeros(lib, d) ** v, INTEGERS),
}


def refused(function, lib, number, dtype):
    try:
        function(lib, number, getattr(lib, dtype))
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("op", OPS)
def test_a_dtype_takes_the_numbers_that_pytorch_takes(op):
    function, dtypes = OPS[op]
    wrong = [(dtype, v, theirs) for dtype in dtypes for v in NUMBERS if not (dtype == "bool" and v == 1 + 2j)  # theirs differ from operator to operator
             if (theirs := refused(function, torch, v, dtype)) != refused(function, tg, v, dtype)]
    assert not wrong


@pytest.mark.parametrize("number", [300, -129, 128.5, math.nan, math.inf])
def test_the_message_and_that_nothing_is_written(number):
    t = tg.tensor([1, 2], dtype=tg.int8)
    before = t._version
    for name, call in {"fill_": lambda: t.fill_(number), "index_fill": lambda: t.index_fill_(0, tg.tensor([0]), number),
                       "scatter": lambda: t.scatter_(0, tg.tensor([0]), number), "index": lambda: set_(t, 0, number),
                       "masked_fill": lambda: t.masked_fill_(tg.tensor([True, False]), number)}.items():
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value).splitlines()[0] == f"{name}: value cannot be converted to type int8 without overflow: {number}"
    assert t.tolist() == [1, 2] and t._version == before


def test_operands_of_arithmetic_wrap():
    for number in (300, -129):
        ours, theirs = tg.ones(2, dtype=tg.int8), torch.ones(2, dtype=torch.int8)
        assert (ours + number).tolist() == (theirs + number).tolist()
        assert (ours * number).tolist() == (theirs * number).tolist()


def test_16_bit_dtypes_take_infinities_from_subscripts_alone():
    t = tg.zeros(2, dtype=tg.float16)
    t[0] = 70000.0
    assert t.tolist() == [math.inf, 0]
    with pytest.raises(RuntimeError, match="float16 without overflow"):
        t.fill_(70000.0)
