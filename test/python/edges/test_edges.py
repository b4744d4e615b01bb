"""Every row of the op table at edge values, against PyTorch: values, first and second gradients (test/python/edges/__init__.py).

What differs is listed in differences.toml with its reason; a listed difference that is gone fails, too.
"""

import pytest
import rows
import tapegrad

import edges

KNOWN = edges.load_known()
RECORDS = [r for r in rows.load_records() if r.samples and r.torch_function is not None and r.test.get("torch", True)
           and r.test.get("values") is not False and r.kind != "random" and not r.test.get("random")]
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")


def cases(record):
    """(dtype, case, whether gradients are compared)"""
    gradients = record.differentiable and record.test.get("grad", True) and record.test.get("torch_grad", True) and not record.writes
    if record.kind == "pointwise" or record.family in edges.ELEMENTWISE:
        for name in ("float32", "float64"):
            for case in edges.elementwise_cases(record, getattr(tapegrad, name)):
                yield name, case, gradients
        for name in () if "half" in record.test else ("float16", "bfloat16"):
            for case in edges.elementwise_cases(record, getattr(tapegrad, name)):
                yield name, case, False
        for name in INTEGERS:
            for case in edges.integer_cases(record, getattr(tapegrad, name)):
                yield name, case, False
        for case in edges.complex_cases(record):
            yield "complex128", case, gradients
    for case in edges.sample_cases(record, tapegrad.float64):
        yield "float64", case, gradients


def differences_of(record):
    """The differences, and the numbers of cases and of results compared."""
    found, ran, compared = [], 0, 0
    for name, case, gradients in cases(record):
        result = edges.Comparison(record, case, name, gradients)
        found += result.differences
        ran += 1
        compared += result.compared
    return found, ran, compared


@pytest.mark.skipif(rows.torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_edges(record):
    found, _, compared = differences_of(record)
    assert compared, f"{record.name}: no case that PyTorch takes"
    edges.check(record.name, found, KNOWN)


def test_the_list_names_rows():
    names = {r.name for r in RECORDS}
    unknown = sorted({name for entry in KNOWN for name in entry["rows"] if not name.startswith(("nn.", "optim.", "distributions.", "complex ", "matrix ", "number "))} - names)
    assert not unknown, f"differences.toml names what is no row: {unknown}"
    assert all(entry["reason"].strip() for entry in KNOWN)
