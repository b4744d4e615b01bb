"""Ranges of numbers: what PyTorch refuses, in its exception classes; values are in test_rows.py."""

import math

import pytest
import tapegrad as tg
from pairs import same_as_torch

NUMBERS = [(0, 5, 0), (5, 0, 1), (0.0, 5.0, 0.0), (0, math.inf), (0, math.nan), (0, 5, math.inf), (0, 5, math.nan), (0, 1, -1), (1, 1, 0), (0.5, 0.9, 0.5), (0.9, 5, 0.9),
           (0.9, 0.1, 1), (0.5, 3, 1e30), (0, 3 + 1j), (2.9, 1.1, -0.7), (1, 1), (0.5, 0.5)]


@pytest.mark.parametrize("dtype", [None, "int64", "int32", "uint8", "float32", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
@same_as_torch
def test_arange_is_torch_s(library, numbers, dtype):
    try:
        x = library.arange(*numbers, **({"dtype": getattr(library, dtype)} if dtype else {}))
    except Exception as error:
        return type(error).__name__
    return str(x.dtype).rpartition(".")[2], x.tolist()


def test_range_refuses_steps_that_are_no_whole_numbers():
    """Of integers start, end and step are cut to whole numbers; PyTorch divides by a step of zero and dies."""
    with pytest.raises(RuntimeError, match="^range: step must not be zero as a whole number: got 0.9$"):
        tg.range(0.9, 4, 0.9, dtype=tg.int32)
    with pytest.raises(ValueError, match="^arange: step must not be zero as a whole number: got 0.5$"):
        tg.arange(0, 4, 0.5, dtype=tg.int64)
    with pytest.raises(RuntimeError, match="^arange: a number does not fit into int64: 1e\\+30$"):
        tg.arange(0.5, 3, 1e30, dtype=tg.int32)


def test_the_ends_of_int64_are_exact():
    """PyTorch's are for int64 only; others have no elements."""
    for start in (2**63 - 3, -(2**63)):
        assert tg.arange(start, start + 2).tolist() == [start, start + 1]
        assert tg.arange(start, start + 2, dtype=tg.int32).tolist() == tg.arange(start, start + 2).int().tolist()
        assert tg.arange(start, start + 2, dtype=tg.float32).tolist() == [float(start)] * 2


EMPTY = {"empty": lambda dtype: tg.empty(3, 2, dtype=dtype), "out": lambda dtype: tg.empty(3, 2, out=tg.zeros(1, dtype=dtype)),
         "like": lambda dtype: tg.empty_like(tg.zeros(3, 2, dtype=dtype)), "strided": lambda dtype: tg.empty_strided((3, 2), (1, 4), dtype=dtype),
         "permuted": lambda dtype: tg.empty_permuted((3, 2), (1, 0), dtype=dtype), "new": lambda dtype: tg.zeros(1, dtype=dtype).new_empty(3, 2),
         "new_strided": lambda dtype: tg.zeros(1, dtype=dtype).new_empty_strided((3, 2), (2, 1)), "none": lambda dtype: tg.empty(0, dtype=dtype),
         "resize": lambda dtype: tg.ones(1, dtype=dtype).resize_(7)[1:], "expanded": lambda dtype: tg.empty_strided((4,), (0,), dtype=dtype)}
LARGEST = {tg.bool: True, tg.uint8: 255, tg.int8: 127, tg.uint16: 2**16 - 1, tg.int16: 2**15 - 1, tg.uint32: 2**32 - 1, tg.int32: 2**31 - 1,
           tg.uint64: 2**64 - 1, tg.int64: 2**63 - 1}


@pytest.fixture
def deterministic():
    tg.use_deterministic_algorithms(True)
    yield
    tg.use_deterministic_algorithms(False)
    tg.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
def test_memory_without_values_is_filled(deterministic, make):
    for dtype in (tg.float16, tg.bfloat16, tg.float32, tg.float64, tg.complex64):
        assert make(dtype).isnan().all()
    for dtype, largest in LARGEST.items():
        assert all(x == largest for x in make(dtype).flatten().tolist())


def test_memory_that_has_values_keeps_them(deterministic):
    x = tg.arange(4.0)
    assert x.resize_(6)[:4].tolist() == [0, 1, 2, 3] and x[4:].isnan().all() and x.resize_(2).tolist() == [0, 1]
    tg.utils.deterministic.fill_uninitialized_memory = False
    assert tg.zeros(1).resize_(2)[0] == 0 and not tg._C._functions[""]["empty"](0).numel()


def test_the_switches_of_deterministic_algorithms(deterministic):
    assert tg.are_deterministic_algorithms_enabled() and tg.get_deterministic_debug_mode() == 2
    tg.set_deterministic_debug_mode("warn")
    assert tg.is_deterministic_algorithms_warn_only_enabled() and tg.get_deterministic_debug_mode() == 1
    with pytest.raises(TypeError, match=r"argument 'mode' \(position 1\) must be bool, not int"):
        tg.use_deterministic_algorithms(1)
    with pytest.raises(RuntimeError, match="expected a bool, but got int"):
        tg.utils.deterministic.fill_uninitialized_memory = 1
    tg.use_deterministic_algorithms(False)
    assert not tg.are_deterministic_algorithms_enabled() and not tg.is_deterministic_algorithms_warn_only_enabled()
    assert not (tg.empty(1000).fill_(1).sum() != 1000)


def test_one_value_may_be_written_where_elements_share_memory():
    x = tg.zeros(1).expand(4)
    assert x.fill_(3).tolist() == [3] * 4 and x.zero_().tolist() == [0] * 4
    with pytest.raises(RuntimeError, match="unsupported operation: more than one element of the written-to tensor"):
        x.add_(1)
