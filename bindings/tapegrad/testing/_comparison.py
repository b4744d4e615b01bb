"""assert_close: nested values compared tensor by tensor, with PyTorch's tolerances and texts."""

import cmath
from collections.abc import Mapping, Sequence

import numpy as np

from .. import _C
from .._warn import warn

_ops = _C._functions[""]
_Tensor = _C.Tensor
# PyTorch's tolerances by dtype: relative, absolute. Other dtypes are compared exactly.
_TOLERANCES = {_C.float16: (1e-3, 1e-5), _C.bfloat16: (1.6e-2, 1e-5), _C.float32: (1.3e-6, 1e-5), _C.float64: (1e-7, 1e-7),
               _C.complex32: (1e-3, 1e-5), _C.complex64: (1.3e-6, 1e-5), _C.complex128: (1e-7, 1e-7)}
_NUMBER_DTYPES = {int: _C.int64, float: _C.float64, complex: _C.complex128}


class _Options:
    def __init__(self, **options):
        vars(self).update(options)


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| in every element.

    Both may be tensors, numbers, bools, None, NumPy arrays, or sequences and mappings of such. The default tolerances
    are those of the dtype, the larger of two. `msg` is the error's text, or a function from the text to another one.
    Raises ValueError if only one of rtol and atol is given, TypeError for other types.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'atol' if atol is None else 'rtol'}.")
    options = _Options(allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device,
                       check_dtype=check_dtype, check_layout=check_layout, check_stride=check_stride)
    problem, path = _difference(actual, expected, options, ())
    if problem is None:
        return
    if path:
        problem += f"\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in path)}"
    if msg is not None:
        problem = msg(problem) if callable(msg) else msg
    raise AssertionError(problem)


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg="") -> None:
    """assert_close by its old name: dtypes and devices may differ, and NaN equals NaN."""
    warn("assert_allclose is deprecated: use assert_close", FutureWarning)
    actual, expected = (v if isinstance(v, _Tensor) else _ops["tensor"](v) for v in (actual, expected))
    if rtol is None and atol is None:
        rtol, atol = _tolerance([actual.dtype, expected.dtype], None, None)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
                 check_stride=False, msg=msg or None)


def _tolerance(dtypes, rtol, atol):
    if rtol is not None:
        return rtol, atol
    pairs = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


def get_tolerances(*inputs, rtol, atol, id=()) -> tuple[float, float]:
    """(rtol, atol) as given, or else those of dtypes or tensors, the largest. ValueError if only one is given."""
    if (rtol is None) != (atol is None):
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'atol' if atol is None else 'rtol'}.")
    return _tolerance([getattr(value, "dtype", value) for value in inputs], rtol, atol)


def _is_sequence(value) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _difference(actual, expected, options, path):
    """What differs first, as text, and where; (None, path) if nothing does."""
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path
        pairs = [(i, a, e) for i, (a, e) in enumerate(zip(actual, expected))]
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        missing, extra = set(expected) - set(actual), set(actual) - set(expected)
        if missing or extra:
            return ("The keys of the mappings do not match:\n"
                    f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
                    f"Additional keys in the actual mapping: {sorted(extra, key=str)}"), path
        pairs = [(key, actual[key], expected[key]) for key in actual]
    else:
        return _leaf_difference(actual, expected, options), path
    for key, a, e in pairs:
        problem, where = _difference(a, e, options, (*path, key))
        if problem is not None:
            return problem, where
    return None, path


def _leaf_difference(actual, expected, options):
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}"
    bools = (bool, np.bool_)
    if isinstance(actual, bools) and isinstance(expected, bools):
        return None if bool(actual) == bool(expected) else f"Booleans mismatch: {actual} is not {expected}"
    numbers = (int, float, complex, np.number)
    if isinstance(actual, numbers) and isinstance(expected, numbers):
        return _number_difference(actual, expected, options)
    tensors = (_Tensor, np.ndarray)
    same_kind = options.allow_subclasses or type(actual) is type(expected)
    if isinstance(actual, tensors) and isinstance(expected, tensors) and same_kind:
        a, e = (_ops["from_numpy"](np.array(t)) if isinstance(t, np.ndarray) else t for t in (actual, expected))
        return _tensor_difference(a, e, options)
    raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _number_difference(actual, expected, options):
    actual, expected = (v.item() if isinstance(v, np.number) else v for v in (actual, expected))
    if options.check_dtype and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    rtol, atol = _tolerance([_NUMBER_DTYPES[type(v)] for v in (actual, expected)], options.rtol, options.atol)
    if actual == expected or (options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
        return None
    difference = abs(actual - expected)
    if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
        return None
    relative = float("inf") if expected == 0 else difference / abs(expected)
    return _scalar_text(actual, expected, difference, relative, rtol, atol)


def _scalar_text(actual, expected, difference, relative, rtol, atol) -> str:
    exact = rtol == 0 and atol == 0
    return (f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
            f"Absolute difference: {difference}{'' if exact else f' (up to {atol} allowed)'}\n"
            f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}")


def _attribute_difference(actual, expected, options):
    checks = [("shape", actual.shape, expected.shape, True), ("layout", actual.layout, expected.layout, options.check_layout),
              ("device", actual.device, expected.device, options.check_device),
              ("dtype", actual.dtype, expected.dtype, options.check_dtype)]
    for name, a, e, wanted in checks:
        if wanted and a != e:
            return f"The values for attribute '{name}' do not match: {a} != {e}."
    if options.check_stride and actual.layout == _C.strided and actual.stride() != expected.stride():
        return f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}."
    return None


def _tensor_difference(actual, expected, options):
    problem = _attribute_difference(actual, expected, options)
    if problem is not None or actual.is_meta:
        return problem
    rtol, atol = _tolerance([actual.dtype, expected.dtype], options.rtol, options.atol)
    a, e = (t.detach().cpu() for t in (actual, expected))
    a, e = (t.to_dense() if t.layout != _C.strided else t for t in (a, e))
    if a.dtype != e.dtype:
        common = _ops["promote_types"](a.dtype, e.dtype)
        a, e = a.to(common), e.to(common)
    if a.dtype in (_C.uint16, _C.uint32, _C.uint64):  # isclose has no kernels for them
        close = a == e if rtol == atol == 0 else _ops["isclose"](a.double(), e.double(), rtol=rtol, atol=atol)
    else:
        close = _ops["isclose"](a, e, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if bool(close.all()):
        return None
    return _describe(a, e, close, rtol, atol)


def _describe(a, e, close, rtol, atol) -> str:
    if not (a.is_floating_point() or a.is_complex()):
        a, e = a.to(_C.int64), e.to(_C.int64)
    elif a.dtype not in _TOLERANCES:  # float8
        a, e = a.float(), e.float()
    wrong = ~close
    difference = (a - e).abs()
    relative = difference / e.abs()
    if a.dim() == 0:
        return _scalar_text(a.item(), e.item(), difference.item(), relative.item(), rtol, atol)
    difference, relative = (t.masked_fill(close, 0) for t in (difference, relative))
    bad, total = int(wrong.sum()), wrong.numel()
    lines = [f"Tensor-likes are not {'equal' if rtol == 0 and atol == 0 else 'close'}!\n",
             f"Mismatched elements: {bad} / {total} ({bad / total:.1%})"]
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        place = int(values.reshape(-1).argmax())
        index = tuple(int(i) for i in np.unravel_index(place, tuple(values.shape)))
        limit = "" if rtol == 0 and atol == 0 else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {name} difference: {values.reshape(-1)[place].item()} at index {index}{limit}")
    return "\n".join(lines)
