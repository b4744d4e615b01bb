"""More edge values, for what test/python/edges/__init__.py leaves out: complex infinities and NaN, and matrices that are zero, singular, not finite,
without elements or expanded.
"""

import itertools
import math

import numpy as np
import rows
import tapegrad
from rows import as_numpy, map_tree, tensors_of

import edges
from edges import Callable, Case, Comparison, close, is_real, refused, substitute

torch = rows.torch

# PyTorch itself crashes on pivots of another number, and on least squares of nothing.
CRASHES_IN_TORCH = ("lu_unpack", "linalg_lstsq")
# What the C standard says of infinities and NaN (Annex G), which NumPy takes from the C library. Of tan, sinh and so on, too.
STANDARD = {name: getattr(np, ours) for name, ours in {
    "sqrt": "sqrt", "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "log10": "log10",
    "log2": "log2", "log1p": "log1p", "expm1": "expm1", "exp2": "exp2", "square": "square", "reciprocal": "reciprocal", "mul": "multiply",
    "div": "divide", "true_divide": "divide"}.items()}


# --- complex numbers

def complex_cases(record):
    """Every pair of parts of which one is not finite, and for two operands such a number beside one from a few."""
    parts = (0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan)
    seen = set()
    for args, kwargs in record.make_samples(tapegrad.float64):
        floats = [t for t in tensors_of([args, kwargs]) if is_real(t)]
        key = (len(floats), repr(map_tree(lambda t: "", (args, kwargs))))
        if not 1 <= len(floats) <= 2 or len(floats) < len(tensors_of([args, kwargs])) or key in seen:
            continue
        seen.add(key)
        values = [complex(*pair) for pair in itertools.product(parts, repeat=2)]
        odd = [z for z in values if not np.isfinite(z)]
        few = [complex(0.0, 0.0), complex(1.0, -2.0), complex(0.0, 1.0), complex(math.inf, 1.0), complex(0.0, -math.inf), complex(math.nan, 1.0)]
        pairs = [(z,) for z in odd] if len(floats) == 1 else [p for p in itertools.product(few, few) if not np.isfinite(p).all()]
        operands = [np.array(column) for column in zip(*pairs)]
        new = substitute((args, kwargs), [tapegrad.tensor(o) for o in operands])
        if not refused(record, *new):
            yield Case(f"not finite {len(seen)}", *new, operands)


def class_of(z):
    """2 of an infinity, which a complex number is with one infinite part; 1 of another that is NaN; 0 of a finite one."""
    parts = np.stack([z.real, z.imag])
    return np.where(np.isinf(parts).any(0), 2, np.where(np.isnan(parts).any(0), 1, 0))


def complex_sample_cases(record):
    """The first samples with one number that is not finite."""
    try:
        samples = record.make_samples(tapegrad.complex128)[:3]
    except (KeyError, RuntimeError):  # made by operators that order numbers, say
        return
    for n, (args, kwargs) in enumerate(samples):
        numbers = sum(t.numel() for t in tensors_of([args, kwargs]) if t.is_complex())
        for value in (complex(math.nan, 0), complex(math.inf, 0), complex(0, -math.inf)) if numbers else ():
            place = min(3, numbers - 1)

            def one(t, value=value):
                nonlocal place
                array = as_numpy(t).copy()
                if 0 <= place < array.size:
                    array.reshape(-1)[place] = value
                place -= array.size
                return tapegrad.tensor(array)

            new = map_tree(lambda t: one(t) if t.is_complex() else t, (args, kwargs))
            if not refused(record, *new):
                yield Case(f"sample {n} {value}", *new)


class FiniteComparison(Comparison):
    """Which elements are finite, and these in digits."""

    def _elements(self, stage, i, got, expected, dtype, exact):
        finite = np.isfinite(got) & np.isfinite(expected)
        wrong = np.where(finite, ~close(got, expected, edges.TOLERANCE.get(dtype, 0) * 10), np.isfinite(got) != np.isfinite(expected))
        for place in np.argwhere(wrong)[:1]:
            self._say(stage, f"[{i}] {wrong.sum()} of {wrong.size}: {got[tuple(place)]!s}, torch {expected[tuple(place)]!s}")


class ComplexComparison(Comparison):
    """Classes of results, and finite ones in digits. Of gradients only whether they are finite: in which of the two ways they are not depends
    on the order of the factors."""

    def _elements(self, stage, i, got, expected, dtype, exact):
        if dtype not in edges.TOLERANCE:
            wrong = got != expected
        else:
            mine, other = class_of(got), class_of(expected)
            same = mine == other if stage == "value" else (mine > 0) == (other > 0)
            wrong = ~(same & ((mine > 0) | close(got, expected, edges.TOLERANCE[dtype] * 10)))
        standard = STANDARD.get(self.record.name)
        if stage == "value" and standard is not None and standard.nin == len(self.case.operands) and wrong.shape == self.case.operands[0].shape:
            with np.errstate(all="ignore"):
                said = standard(*self.case.operands)
            wrong &= ~((class_of(got) == class_of(said)) & ((class_of(said) > 0) | close(got, said, edges.TOLERANCE[dtype] * 10)))
        for place in np.argwhere(wrong):
            index = tuple(place)
            at = ", ".join(str(o[index]) for o in self.case.operands) if wrong.shape == self.case.operands[0].shape else str(index)
            self._say(stage, f"[{i}] at ({at}): {got[index]!s}, torch {expected[index]!s}")


# --- matrices

def matrix_cases(record):
    """The matrices of each sample as zero, singular, equal to a multiple of the identity, not finite, without elements, of one element."""
    makers = {
        "zero": lambda t: t * 0, "ones": lambda t: t * 0 + 1,
        "identity": lambda t: t * 0 + tapegrad.eye(*t.shape[-2:], dtype=t.dtype) * 2,
        "singular": lambda t: twice(t * 0 + tapegrad.eye(*t.shape[-2:], dtype=t.dtype) * 2),
        "NaN": lambda t: t * math.nan, "infinite": lambda t: t * 0 + math.inf,
        "one NaN": lambda t: odd(t, math.nan), "one infinity": lambda t: odd(t, math.inf),
        "empty": lambda t: t[..., :0, :0], "1x1": lambda t: t[..., :1, :1] * 0 + 2, "1x1 zero": lambda t: t[..., :1, :1] * 0,
        "expanded": lambda t: (t[..., :1, :1] * 0 + 1).expand(t.shape), "no batch": lambda t: t.unsqueeze(0)[:0],
    }
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float64)[:2]):
        if not any(is_real(t) and t.ndim > 1 for t in tensors_of([args, kwargs])):
            continue
        for name, make in makers.items():
            new = map_tree(lambda t: make(t) if is_real(t) and t.ndim > 1 and 0 not in t.shape else t, (args, kwargs))
            yield Case(f"sample {n} {name}", *new)


def twice(t):
    """With its first row in place of the second; of whole numbers, so that no rounding decides what is singular."""
    return tapegrad.cat([t[..., :1, :], t[..., :1, :], t[..., 2:, :]], -2) if t.shape[-2] > 1 else t * 0


def odd(t, value):
    array = as_numpy(t).copy()
    array[..., 0, 0] = value
    return tapegrad.tensor(array)


def shape_and_finite(lib, args, result):
    """Of matrices that are not finite: which results are."""
    return [lib.isfinite(r.detach()).all() for r in tensors_of(result)]


def product(lib, args, result):
    """A product of factors that are not unique, and how far the first is from orthogonal."""
    q, r = tensors_of(result)[:2]
    return [q @ r, q.mT @ q]


def triangles(lib, args, result):
    p, lower, upper = tensors_of(result)
    return [p @ lower @ upper] if p.numel() else [lower @ upper]


def unpacked(lib, args, result):
    lu, pivots = tensors_of(result)[:2]
    p, lower, upper = lib.lu_unpack(lu, pivots)
    return [p @ lower @ upper]


def certified(lib, args, result):
    """What `info` calls valid; what else is in a factor is not defined."""
    factor, info = tensors_of(result)[0], tensors_of(result)[-1]
    valid = (info == 0).reshape(info.shape + (1,) * (factor.ndim - info.ndim))
    return [lib.where(valid, factor, lib.zeros_like(factor)), info == 0]


INVARIANTS = {"linalg_cholesky_ex": certified, "linalg_inv_ex": certified, "linalg_solve_ex": certified,
              "linalg_qr": product, "qr": product, "linalg_lu": triangles, "linalg_lu_factor": unpacked, "linalg_lu_factor_ex": unpacked,
              "geqrf": lambda lib, args, result: [tensors_of(result)[0].triu().abs()]}


class Classes(Callable):
    """A row whose results are first made comparable, in both libraries alike."""

    def __init__(self, record, make):
        super().__init__(record.name)
        self.args, self.test, self.family = record.args, record.test, record.family
        self.function = lambda *args, **kwargs: make(tapegrad, args, record.function(*args, **kwargs))
        self.torch_function = lambda *args, **kwargs: make(torch, args, record.torch_function(*args, **kwargs))


# --- errors

def error_of(function, args, kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def error_difference(record, case):
    """Both raise, and the same class, or neither does."""
    theirs = error_of(record.torch_function, rows.to_torch(case.args), rows.to_torch(case.kwargs))
    if theirs is None:
        return []
    mine = error_of(record.function, case.args, case.kwargs)
    if mine is None:
        return [f"error {case.name}: none, torch {type(theirs).__name__}: {str(theirs).splitlines()[0][:120] if str(theirs) else ''}"]
    # PyTorch's LinAlgError has an underscore in its name.
    if not {c.__name__.lstrip("_") for c in type(mine).__mro__} & {type(theirs).__name__.lstrip("_")}:
        return [f"error {case.name}: {type(mine).__name__}: {str(mine).splitlines()[0][:100]}, torch {type(theirs).__name__}: {str(theirs).splitlines()[0][:120]}"]
    return []
