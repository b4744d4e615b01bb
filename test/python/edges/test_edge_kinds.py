"""Complex infinities and NaN, edge matrices of factorizations and solvers, and numbers as arguments, against PyTorch
(edge_kinds.py, edge_numbers.py). What differs is listed in differences.toml under "complex ROW", "matrix ROW" and "number ROW".
"""

import pytest
import rows
import tapegrad

import edges
from edges import edge_kinds, edge_numbers

pytestmark = pytest.mark.skipif(rows.torch is None, reason="PyTorch is not installed")
KNOWN = edges.load_known()
RECORDS = [r for r in rows.load_records() if r.samples and r.torch_function is not None and r.test.get("torch", True)
           and r.test.get("values") is not False and r.kind != "random" and not r.test.get("random")]
COMPLEX = [r for r in RECORDS if r.kind == "pointwise" or r.family in edges.ELEMENTWISE]
COMPLEX_SAMPLES = [r for r in RECORDS if r not in COMPLEX and r.family not in edges.FACTORS and r.name not in edges.CRASHES_IN_TORCH
                   and "complex128" in r.dtypes]
MATRIX = [r for r in RECORDS if r.family in edges.FACTORS and r.name not in edge_kinds.CRASHES_IN_TORCH]

NUMBERS = [r for r in RECORDS if r.name not in edge_numbers.CRASHES_IN_TORCH + edge_numbers.RANDOM
           and any("Scalar" in a[1] or a[1].startswith("float") for a in r.args)]


def has_gradients(record):
    return record.differentiable and record.test.get("grad", True) and record.test.get("torch_grad", True) and not record.writes


@pytest.mark.parametrize("record", COMPLEX, ids=lambda r: r.name)
def test_complex(record):
    found, compared = [], 0
    for case in edge_kinds.complex_cases(record):
        result = edge_kinds.ComplexComparison(record, case, "complex128", has_gradients(record))
        found, compared = found + result.differences, compared + result.compared
    if not compared and not found:
        pytest.skip("PyTorch does not take complex numbers here")
    edges.check(f"complex {record.name}", found, KNOWN)


@pytest.mark.parametrize("record", COMPLEX_SAMPLES, ids=lambda r: r.name)
def test_complex_samples(record):
    found = [d for case in edge_kinds.complex_sample_cases(record)
             for d in edge_kinds.FiniteComparison(record, case, "complex128", has_gradients(record)).differences]
    edges.check(f"complex {record.name}", found, KNOWN)


def compared_matrices(record):
    """The differences, and the number of results compared; gradients where the matrix has an inverse."""
    found, compared = [], 0
    for case in edge_kinds.matrix_cases(record):
        errors = edge_kinds.error_difference(record, case)
        found += errors
        if errors:
            continue
        finite = not any(word in case.name for word in ("NaN", "infin"))
        regular = not any(word in case.name for word in ("zero", "ones", "singular", "expanded"))
        make = edge_kinds.INVARIANTS.get(record.name) if finite else edge_kinds.shape_and_finite
        subject = edge_kinds.Classes(record, make) if make else record
        result = edges.Comparison(subject, case, "float64", has_gradients(record) and finite and regular)
        found, compared = found + result.differences, compared + result.compared
    return found, compared


@pytest.mark.parametrize("record", MATRIX, ids=lambda r: r.name)
def test_matrix(record):
    found, compared = compared_matrices(record)
    assert compared, f"{record.name}: no case that PyTorch takes"
    edges.check(f"matrix {record.name}", found, KNOWN)


@pytest.mark.parametrize("record", NUMBERS, ids=lambda r: r.name)
def test_number(record):
    found = [d for case in edge_numbers.number_cases(record) for d in edges.Comparison(record, case, "float64", has_gradients(record)).differences]
    edges.check(f"number {record.name}", found, KNOWN, excused=record.name)


def test_the_rows_with_numbers_are_called_with_edge_values():
    record = next(r for r in NUMBERS if r.name == "softplus")
    names = [case.name for case in edge_numbers.number_cases(record)]
    assert {"number sample 0 beta=nan", "number sample 0 threshold=-inf", "number edges beta=0.0"} <= set(names), names
    wrong = edges.Callable("add", lambda x, y, alpha=1: tapegrad.add(x, y), lambda x, y, alpha=1: rows.torch.add(x, y, alpha=alpha))
    case = edges.Case("alpha", (tapegrad.ones(2), tapegrad.ones(2)), {"alpha": float("inf")})
    assert edges.Comparison(wrong, case, "float32", False).differences


def test_the_complex_comparison_sees_a_wrong_class():
    record = next(r for r in COMPLEX if r.name == "exp")
    wrong = edges.Callable("exp", lambda x: tapegrad.exp(x) * 0, rows.torch.exp)
    found = [d for case in edge_kinds.complex_cases(record) for d in edge_kinds.ComplexComparison(wrong, case, "complex128", False).differences]
    assert any("inf" in d for d in found) and any("nan" in d for d in found), found


def test_the_list_names_rows():
    names = {f"complex {r.name}" for r in COMPLEX + COMPLEX_SAMPLES} | {f"matrix {r.name}" for r in MATRIX} | {f"number {r.name}" for r in NUMBERS}
    named = {name for entry in KNOWN for name in entry["rows"] if name.startswith(("complex ", "matrix ", "number "))}
    assert named <= names, sorted(named - names)
