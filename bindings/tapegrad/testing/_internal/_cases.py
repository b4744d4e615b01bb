"""TestCase: unittest's, with comparisons of tensors, warnings that are given once, and errors of operators that are not deterministic."""

import contextlib
import enum
import re
import sys
import unittest
import unittest.mock
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from ... import _C
from .._comparison import _number_difference, _Options, _tensor_difference, _tolerance
from ._compressed import CompressedInputs
from ._switches import DeterministicGuard, set_warn_always_context

try:
    from expecttest import TestCase as _Base  # assertExpectedInline
except ImportError:
    from unittest import TestCase as _Base

_tg = sys.modules[__package__.partition(".")[0]]
_ARRAYS = (_C.Tensor, np.ndarray)
_NUMBERS = (int, float, complex, np.number, enum.Enum)
_BOOLS = (bool, np.bool_)
_NUMBER_DTYPES = {int: _C.int64, float: _C.float32, complex: _C.complex64}
SEED = 1234


def set_rng_seed(seed=None) -> None:
    """Seeds Python's, NumPy's and our generators."""
    import random

    seed = SEED if seed is None else seed
    _tg.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _known(array) -> bool:
    """Whether a tensor can have an array's dtype."""
    return not isinstance(array, np.ndarray) or array.dtype.kind in "biufc" and array.dtype.itemsize <= (16 if array.dtype.kind == "c" else 8)


def _single(value):
    """The number in a tensor or array of one element, or what was given."""
    if isinstance(value, _ARRAYS):
        if (value.numel() if isinstance(value, _C.Tensor) else value.size) > 1:
            raise ValueError(f"Only single element tensor-likes can be compared against a number. Got {tuple(value.shape)} instead.")
        value = value.item()
    elif isinstance(value, enum.Enum):
        value = int(value)
    return value.item() if isinstance(value, (np.number, np.bool_)) else value


class TestCase(CompressedInputs, _Base):
    """`precision` and `rel_tol` are the least tolerances of its comparisons; the random generators are seeded before each test."""

    longMessage = True
    maxDiff = None
    precision = 0.0
    rel_tol = 0.0
    exact_dtype = True

    def setUp(self):
        super().setUp()
        set_rng_seed()

    def assertEqual(self, x, y, msg=None, *, atol=None, rtol=None, equal_nan=True, exact_dtype=True, exact_device=False, exact_layout=False,
                    exact_stride=False, exact_is_coalesced=False):
        """As assert_close, where NaN equals NaN, numbers equal tensors of one element, sequences equal tensors, and other objects are compared with ==."""
        __tracebackhide__ = True
        if (rtol is None) != (atol is None):
            raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {'atol' if atol is None else 'rtol'}.")
        options = _Options(allow_subclasses=True, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=exact_device, check_dtype=exact_dtype,
                           check_layout=exact_layout, check_stride=exact_stride, check_is_coalesced=exact_is_coalesced)
        problem = self._difference(x, y, options, "")
        if problem is not None:
            raise self.failureException(msg(problem) if callable(msg) else problem if msg is None else f"{problem}\n{msg}")

    def _difference(self, x, y, options, path):
        if not (_known(x) and _known(y)):
            x, y = (v.tolist() if isinstance(v, _ARRAYS) else list(v) for v in (x, y))
        elif isinstance(x, _C.Tensor) and _is_sequence(y):
            y = _tg.as_tensor(y, dtype=x.dtype, device=x.device)
        elif _is_sequence(x) and isinstance(y, _C.Tensor):
            x = _tg.as_tensor(x, dtype=y.dtype, device=y.device)
        if isinstance(x, (Mapping, _tg.nn.ModuleDict, _tg.nn.ParameterDict)) and isinstance(y, (Mapping, _tg.nn.ModuleDict, _tg.nn.ParameterDict)):
            keys = list(x.keys())
            if set(keys) != set(y.keys()):
                return f"The keys of the mappings do not match: {keys} and {list(y.keys())}{path}"
            pairs = [(key, x[key], y[key]) for key in keys]
        elif _is_sequence(x) and _is_sequence(y):
            if len(x) != len(y):
                return f"The length of the sequences mismatch: {len(x)} != {len(y)}{path}"
            pairs = [(i, x[i], y[i]) for i in range(len(x))]
        else:
            problem = self._leaf_difference(x, y, options)
            return problem and problem + path
        for key, a, b in pairs:
            problem = self._difference(a, b, options, path + (f"[{key!r}]" if path else f"\n\nThe failure occurred for item [{key!r}]"))
            if problem is not None:
                return problem
        return None

    def _leaf_difference(self, x, y, options):
        if x is None or y is None:
            return None if x is y else f"None mismatch: {x} is not {y}"
        numbers, arrays = (*_BOOLS, *_NUMBERS), _ARRAYS
        if isinstance(x, arrays) and isinstance(y, arrays):
            a, b = (v if isinstance(v, _C.Tensor) else _tg.from_numpy(np.array(v)) for v in (x, y))
            return _tensor_difference(a, b, self._with_tolerance(options, (a.dtype, b.dtype)))
        if isinstance(x, numbers) and isinstance(y, (*numbers, *arrays)) or isinstance(y, numbers) and isinstance(x, arrays):
            either = isinstance(x, _BOOLS) or isinstance(y, _BOOLS)
            x, y = _single(x), _single(y)
            if either:
                return None if bool(x) == bool(y) else f"Booleans mismatch: {x} is not {y}"
            x, y = (int(v) if isinstance(v, bool) else v for v in (x, y))
            relaxed = self._with_tolerance(options, [_NUMBER_DTYPES[type(v)] for v in (x, y)])
            relaxed.check_dtype = False
            return _number_difference(x, y, relaxed)
        if isinstance(x, _tg.storage.TypedStorage) and isinstance(y, _tg.storage.TypedStorage):
            return self._leaf_difference(_tg.tensor(x.tolist(), dtype=x.dtype), _tg.tensor(y.tolist(), dtype=y.dtype), options)
        try:
            unittest.TestCase().assertEqual(x, y)
        except unittest.TestCase.failureException as error:
            return f"Object comparison failed: {error}"
        return None

    def _with_tolerance(self, options, dtypes):
        rtol, atol = _tolerance(dtypes, options.rtol, options.atol)
        return _Options(**{**vars(options), "rtol": max(rtol, self.rel_tol), "atol": max(atol, self.precision)})

    def assertNotEqual(self, x, y, msg=None, *, atol=None, rtol=None, **kwargs):
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, atol=atol, rtol=rtol, **kwargs)

    def assertEqualIgnoreType(self, *args, **kwargs):
        self.assertEqual(*args, exact_dtype=False, **kwargs)

    def assertEqualBroadcasting(self, x, y, *args, **kwargs):
        """As assertEqual, with `y` (a number, a sequence or a tensor) broadcast to `x`."""
        y = y if isinstance(y, _C.Tensor) else _tg.ones_like(x) * (_tg.tensor(y) if hasattr(y, "__iter__") else y)
        self.assertEqual(x, y, *args, **kwargs)

    def assertEqualTypeString(self, x, y):
        self.assertEqual((x.device, x.dtype, x.is_sparse), (y.device, y.dtype, y.is_sparse))

    def assertObjectIn(self, obj, iterable):
        if not any(obj is element for element in iterable):
            raise self.failureException("object not found in iterable")

    def assertNoUnraisable(self, callable, *args, **kwargs):
        """Nothing that Python cannot raise, as in __del__, happens in the call."""
        caught = []
        with unittest.mock.patch("sys.unraisablehook", caught.append):
            callable(*args, **kwargs)
        self.assertFalse(caught)

    def assertNotWarn(self, callable, msg=""):
        with warnings.catch_warnings(record=True) as given, set_warn_always_context(True):
            warnings.simplefilter("always")
            callable()
        self.assertEqual(len(given), 0, msg)

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category, regex=""):
        """A warning of a class whose text begins with the expression, also where it is given once in a process."""
        with warnings.catch_warnings(record=True) as given, set_warn_always_context(True):
            warnings.simplefilter("always")
            yield
        texts = [str(w.message) for w in given if type(w.message) is category]
        if not any(re.match(regex, text) for text in texts):
            self.fail(f"no {category.__name__} that begins with {regex!r} among {[str(w.message) for w in given]}")

    def compare_with_numpy(self, torch_fn, np_fn, tensor_like, device=None, dtype=None, **kwargs):
        """A function of one tensor equals NumPy's function of the same array."""
        if isinstance(tensor_like, _C.Tensor):
            tensor = tensor_like
        else:
            tensor = _tg.tensor(tensor_like, device=device, dtype=dtype)
        plain = tensor.detach().cpu()
        expected = np_fn((plain.float() if plain.dtype == _C.bfloat16 else plain).numpy())
        result = torch_fn(tensor).cpu()
        if isinstance(expected, np.ndarray):
            expected = _tg.from_numpy(np.array(expected))
            if result.dtype == _C.bfloat16 and expected.dtype == _C.float32:
                result = result.float()
        self.assertEqual(expected, result, **kwargs)

    def compare_with_reference(self, torch_fn, ref_fn, sample_input, **kwargs):
        """A function equals its reference in NumPy on a sample; dtypes may differ where the caller says so."""
        arrays = sample_input.numpy()
        self.assertEqual(torch_fn(sample_input.input, *sample_input.args, **sample_input.kwargs), ref_fn(arrays.input, *arrays.args, **arrays.kwargs), **kwargs)

    def safeToDense(self, t):
        return (t.coalesce() if t.layout == _C.sparse_coo else t).to_dense()

    def genSparseTensor(self, size, sparse_dim, nnz, is_uncoalesced, device, dtype):
        """A random sparse tensor of `nnz` entries, twice as many in the same places if `is_uncoalesced`; with its indices and values."""
        size = [size] if isinstance(size, int) else list(size)
        if any(n == 0 for n in size) and nnz:
            raise AssertionError("invalid arguments: entries of an empty tensor")
        values = _tg.testing.make_tensor([nnz, *size[sparse_dim:]], device=device, dtype=dtype, low=-1, high=1)
        indices = (_tg.rand(sparse_dim, nnz, device=device) * _tg.tensor(size[:sparse_dim], device=device).unsqueeze(1)).long()
        if is_uncoalesced:
            values, indices = _tg.cat([values, _tg.randn_like(values)]), _tg.cat([indices, indices], 1)
        made = _tg.sparse_coo_tensor(indices, values, size, dtype=dtype, device=device)
        made = made if is_uncoalesced else made.coalesce()
        return made, made._indices().clone(), made._values().clone()

    def check_nondeterministic_alert(self, fn, caller_name, should_alert=True):
        """Under use_deterministic_algorithms(True) `fn` is an error, or a warning with warn_only, that names the operator; or neither."""
        text = f"{caller_name} does not have a deterministic implementation, but you set"
        with DeterministicGuard(True):
            if should_alert:
                with self.assertRaisesRegex(RuntimeError, text, msg="expected a non-deterministic error, but it was not raised"):
                    fn()
            else:
                fn()
        with DeterministicGuard(True, warn_only=True):
            if should_alert:
                with self.assertWarnsRegex(UserWarning, text):
                    fn()
            else:
                with warnings.catch_warnings(record=True) as given:
                    warnings.simplefilter("always")
                    fn()
                self.assertFalse([w for w in given if text in str(w.message)])

    @staticmethod
    def run_process_no_exception(code, env=None):
        """What a Python that runs the code writes: (stdout, stderr)."""
        import subprocess

        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=False)
        return done.stdout, done.stderr

    @staticmethod
    def runWithPytorchAPIUsageStderr(code):
        return TestCase.run_process_no_exception(code)[1].decode("ascii")


def _is_sequence(value) -> bool:
    kinds = (Sequence, _tg.nn.Sequential, _tg.nn.ModuleList, _tg.nn.ParameterList, _tg.utils.data.Subset)
    return isinstance(value, kinds) and not isinstance(value, (str, bytes))
