"""Every row of the table of warnings: PyTorch warns, and this library does what the row says, naming the program's line."""

import importlib
import pickle
import re
import warnings

import numpy as np
import pytest
import tapegrad
import tapegrad.distributions
import tapegrad.nn.utils.stateless
import tapegrad.profiler
import tapegrad.testing
import tapegrad.utils.checkpoint
from errors.warned import WARNED


def run(library, code):
    """The warnings of a program, and its error."""
    names = {"tg": library, "F": library.nn.functional, "np": np, "pickle": pickle}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            exec(compile(code, "train.py", "exec"), names)
        except Exception as error:
            return said, error
    return said, None


@pytest.mark.parametrize("row", WARNED, ids=lambda w: w.title)
def test_warned(row):
    said, error = run(tapegrad, row.code)
    if row.said.startswith("raises "):
        assert type(error).__name__ == row.said.removeprefix("raises ")
        return
    assert error is None
    if row.said.startswith("no: "):
        assert not said
    elif ", once" in row.said:
        assert len(said) <= 1
    else:
        assert row.said in [w.category.__name__ for w in said]
    assert {w.filename for w in said} <= {"train.py"}


@pytest.mark.parametrize("row", WARNED, ids=lambda w: w.title)
def test_pytorch_warns_too(row):
    torch = pytest.importorskip("torch")
    importlib.import_module("torch.nn.utils.stateless")
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        said, _ = run(torch, row.code)
    finally:
        torch.set_warn_always(before)
    assert said
    if row.said in ("UserWarning", "FutureWarning"):
        assert row.said in [w.category.__name__ for w in said]


def test_a_warning_comes_once_for_a_line_and_can_be_an_error():
    code = "for _ in range(3): tg.ones(1).std()\ntg.ones(1).std()"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        exec(compile(code, "loop.py", "exec"), {"tg": tapegrad})
    assert [(w.filename, w.lineno) for w in said] == [("loop.py", 1), ("loop.py", 2)]
    out = tapegrad.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="imaginary part"):
            out.copy_(tapegrad.ones(2, dtype=tapegrad.complex64))
    assert out.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["dequantize", "int_repr", "to_padded_tensor", "to_sparse_bsr", "to_mkldnn"])
def test_methods_that_are_not_there_say_why(name):
    x = tapegrad.zeros(1)
    with pytest.raises(AttributeError, match=rf"^'tapegrad\.Tensor' object has no attribute '{re.escape(name)}': \w"):
        getattr(x, name)
    assert not hasattr(x, name)
