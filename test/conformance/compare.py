"""Whether a result of ours equals PyTorch's: type, dtype, shape, values."""

import numpy as np
import tapegrad
import torch

from .translate import as_numpy, dtype_name

TOLERANCE = {
    "float64": 1e-8, "complex128": 1e-8, "float32": 2e-5, "complex64": 5e-5, "float16": 2e-3, "bfloat16": 1.6e-2,
}  # fmt: skip


class Failure(Exception):
    pass


class Skip(Exception):
    """The case says nothing: PyTorch refuses it, or it does not apply."""


def outcome(function):
    """The result of a call, or the exception it raised."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - the kind is what is compared
        return error


def brief(value, limit=160) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def same_error(got: Exception, expected: Exception) -> bool:
    """An exception of the same class, or of a class above or below it; classes of the libraries' own go by their name."""
    ours, theirs = type(got).__mro__, type(expected).__mro__
    return type(expected).__name__ in [c.__name__ for c in ours] or type(got).__name__ in [c.__name__ for c in theirs]


def expect_error(got, expected: Exception):
    if not isinstance(got, Exception):
        raise Failure(f"no error: torch raises {type(expected).__name__}: {brief(expected)}")
    if not same_error(got, expected):
        raise Failure(
            f"error class: {type(got).__name__} ({brief(got, 80)}), torch {type(expected).__name__} ({brief(expected, 80)})"
        )


def expect_result(got):
    if isinstance(got, Exception):
        raise Failure(f"raises {type(got).__name__}: {brief(got)}") from got
    return got


def compare(got, expected, where="", values=True, precise=None, exact_type=True):
    """Raises Failure at the first difference. `precise`: PyTorch's result in a wider dtype; then a value that is as near to
    it as PyTorch's own passes."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, tapegrad.Tensor):
            raise Failure(f"{where}a {type(got).__name__} instead of a tensor")
        if dtype_name(got) != dtype_name(expected):
            raise Failure(f"{where}dtype {dtype_name(got)}, torch {dtype_name(expected)}")
        if tuple(got.shape) != tuple(expected.shape):
            raise Failure(f"{where}shape {tuple(got.shape)}, torch {tuple(expected.shape)}")
        if values and expected.device.type != "meta":
            compare_values(as_numpy(got), as_numpy(expected), dtype_name(expected), where, precise)
    elif isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            raise Failure(f"{where}{brief(got, 60)} instead of {len(expected)} results")
        for i, (g, e) in enumerate(zip(got, expected)):
            p = precise[i] if isinstance(precise, list | tuple) and len(precise) == len(expected) else None
            compare(g, e, f"{where}[{i}] ", values, p)
    elif isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            raise Failure(f"{where}{brief(got, 60)} instead of {brief(expected, 60)}")
        for key, e in expected.items():
            compare(got[key], e, f"{where}[{key!r}] ", values)
    elif isinstance(expected, bool | int | float | complex):
        if type(got) is not type(expected):
            raise Failure(f"{where}a {type(got).__name__} instead of a {type(expected).__name__}")
        if values:
            compare_values(np.asarray(got), np.asarray(expected), "float32", where)
    elif str(got).rpartition(".")[2] != str(expected).rpartition(".")[2]:
        raise Failure(f"{where}{brief(got, 60)}, torch {brief(expected, 60)}")


def compare_values(got: np.ndarray, expected: np.ndarray, dtype: str, where="", precise=None):
    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        wrong = got != expected
    else:
        with np.errstate(all="ignore"):
            wrong = ~np.isclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not wrong.any():
        return
    if precise is not None and isinstance(precise, torch.Tensor) and precise.shape == expected.shape:
        exact = as_numpy(precise)
        with np.errstate(all="ignore"):
            ours, theirs = np.abs(got - exact), np.abs(expected - exact)
            tolerated = 2 * theirs + tolerance * np.abs(exact) if tolerance else 0
            finite = np.isfinite(theirs)
            if finite.any():
                tolerated = tolerated + (theirs[finite].max() if tolerance else 0)
            wrong &= ~(ours <= tolerated)
        if not wrong.any():
            return
    index = np.unravel_index(np.argmax(wrong), wrong.shape) if wrong.ndim else ()
    raise Failure(
        f"{where}{int(wrong.sum())} of {wrong.size} values differ, e.g. {got[index]!s} instead of {expected[index]!s} ({dtype})"
    )
