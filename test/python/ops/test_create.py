"""Ranges of numbers: what PyTorch refuses, in its exception classes; values are in test_rows.py."""

import math

import pytest
import tapegrad as tg

NUMBERS = [(0, 5, 0), (5, 0, 1), (0.0, 5.0, 0.0), (0, math.inf), (0, math.nan), (0, 5, math.inf), (0, 5, math.nan), (0, 1, -1), (1, 1, 0), (0.5, 0.9, 0.5), (0.9, 5, 0.9),
           (0.9, 0.1, 1), (0.5, 3, 1e30), (0, 3 + 1j), (2.9, 1.1, -0.7), (1, 1), (0.5, 0.5)]


@pytest.mark.parametrize("dtype", [None, "int64", "int32", "uint8", "float32", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("numbers", NUMBERS, ids=str)
def test_arange_is_torch_s(numbers, dtype):
    torch = pytest.importorskip("torch")

    def look(library):
        try:
            x = library.arange(*numbers, **({"dtype": getattr(library, dtype)} if dtype else {}))
        except Exception as error:
            return type(error).__name__
        return str(x.dtype).rpartition(".")[2], x.tolist()

    assert look(tg) == look(torch)


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
