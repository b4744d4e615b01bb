"""What tests import of PyTorch's common_utils: the test case, parameters, switches, and helpers."""

import contextlib
import functools
import gc
import inspect
import io
import os
import shutil
import socket
import sys
import tempfile
import unittest

import numpy as np

from .. import make_tensor  # noqa: F401
from ._cases import SEED, TestCase, set_rng_seed  # noqa: F401
from ._matrices import *  # noqa: F403
from ._parameters import (  # noqa: F401
    _TestParametrizer,
    compose_parametrize_fns,
    decorateIf,
    instantiate_parametrized_tests,
    parametrize,
    reparametrize,
    subtest,
)
from ._switches import *  # noqa: F403
from ._switches import TEST_WITH_SLOW_GRADCHECK, _around, _never, _setting  # noqa: F401

_tg = sys.modules[__package__.partition(".")[0]]
GRADCHECK_NONDET_TOL = 1e-12
TestCaseBase = NNTestCaseBase = TestCase

numpy_to_torch_dtype_dict = {np.bool_: _tg.bool, np.uint8: _tg.uint8, np.uint16: _tg.uint16, np.uint32: _tg.uint32, np.uint64: _tg.uint64, np.int8: _tg.int8,
                             np.int16: _tg.int16, np.int32: _tg.int32, np.int64: _tg.int64, np.float16: _tg.float16, np.float32: _tg.float32,
                             np.float64: _tg.float64, np.complex64: _tg.complex64, np.complex128: _tg.complex128}  # fmt: skip
torch_to_numpy_dtype_dict = {dtype: kind for kind, dtype in numpy_to_torch_dtype_dict.items()} | {_tg.bfloat16: np.float32, _tg.complex32: np.complex64}
dtype2prec_DONTUSE = {_tg.float32: 1e-5, _tg.float64: 1e-5, _tg.float16: 1e-2, _tg.bfloat16: 1e-1}


def numpy_to_torch_dtype(np_dtype):
    """The dtype of NumPy's dtype or scalar type; KeyError if there is none."""
    return numpy_to_torch_dtype_dict[np.dtype(np_dtype).type]


def has_corresponding_torch_dtype(np_dtype) -> bool:
    return np.dtype(np_dtype).type in numpy_to_torch_dtype_dict


def dtype_name(dtype) -> str:
    """float32, without the module's name."""
    return str(dtype).rpartition(".")[2]


def run_tests(argv=None) -> None:
    """Runs the tests of the script, with unittest's arguments."""
    unittest.main(argv=argv or sys.argv)


def load_tests(loader, tests, pattern):
    """All tests; PyTorch's shards them in its own building."""
    return tests


# Random generators, defaults, warnings.


def find_free_port() -> int:
    """A port of this machine that was free when it was asked for."""
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def freeze_rng_state(*args, **kwargs):
    """The random generators are afterwards as they were."""
    before = _tg.get_rng_state()
    cuda = _tg.cuda.get_rng_state() if _tg.cuda.is_available() else None
    try:
        yield
    finally:
        if cuda is not None:
            _tg.cuda.set_rng_state(cuda)
        _tg.set_rng_state(before)


def set_default_dtype(dtype):
    return _setting(_tg.get_default_dtype, _tg.set_default_dtype, dtype)


def set_default_tensor_type(tensor_type):
    return _setting(_tg.get_default_dtype, _tg.set_default_dtype, tensor_type, begin=_tg.set_default_tensor_type)


@contextlib.contextmanager
def disable_gc():
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class swap(_TestParametrizer):
    """The test once with `torch.__future__`'s swapped parameters and once without."""

    def __init__(self, swap_values):
        self.values = swap_values

    def _parametrize_test(self, test, generic_cls, device_cls):
        for value in self.values:
            yield _swapped(value)(test), f"swap_{value}", {}, lambda _: []


def _swapped(value):
    future = _tg.__future__
    return _around(lambda: _setting(future.get_swap_module_params_on_conversion, future.set_swap_module_params_on_conversion, value))


def wrapSwapTensorsTest(swap=None):
    return _swapped(bool(swap))


# Files.


class BytesIOContext(io.BytesIO):
    """A BytesIO that stays open after a `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


@contextlib.contextmanager
def TemporaryFileName(*args, **kwargs):
    """The name of a file that is removed afterwards."""
    handle, name = tempfile.mkstemp(kwargs.get("suffix"), kwargs.get("prefix"), kwargs.get("dir"))
    os.close(handle)
    try:
        yield name
    finally:
        os.unlink(name)


@contextlib.contextmanager
def TemporaryDirectoryName(suffix=None):
    """The name of a folder that is removed afterwards."""
    name = tempfile.mkdtemp(suffix=suffix)
    try:
        yield name
    finally:
        shutil.rmtree(name)


def download_file(url, binary=True):
    """Skips the test: nothing is downloaded."""
    raise unittest.SkipTest(f"nothing is downloaded for a test: {url}")


# Functions and tensors.


def gradcheck(fn, inputs, **kwargs):
    """autograd.gradcheck, in its fast form and with vmap over backward unless the test says otherwise."""
    return _tg.autograd.gradcheck(fn, inputs, **_for_tests(kwargs))


def gradgradcheck(fn, inputs, grad_outputs=None, **kwargs):
    """autograd.gradgradcheck, likewise."""
    return _tg.autograd.gradgradcheck(fn, inputs, grad_outputs, **_for_tests(kwargs))


def _for_tests(kwargs: dict) -> dict:
    return {"check_batched_grad": True, "fast_mode": True, **{key: value for key, value in kwargs.items() if value is not None}}


def _assertGradAndGradgradChecks(test_case, apply_fn, inputs, **kwargs):
    test_case.assertTrue(gradcheck(apply_fn, inputs, **kwargs))
    test_case.assertTrue(gradgradcheck(apply_fn, inputs, **kwargs))


def get_function_arglist(func) -> list[str]:
    return list(inspect.signature(func).parameters)


def is_iterable(obj) -> bool:
    try:
        iter(obj)
    except TypeError:
        return False
    return True


def is_iterable_of_tensors(iterable, include_empty=False) -> bool:
    """Whether it is a sequence of tensors, and no tensor; of an empty one `include_empty` says so."""
    if isinstance(iterable, _tg.Tensor) or not is_iterable(iterable):
        return False
    found = list(iterable)
    return all(isinstance(t, _tg.Tensor) for t in found) if found else include_empty


def coalescedonoff(test):
    """Runs the test twice, with `coalesced=True` and `False`."""

    @functools.wraps(test)
    def both(self, *args, **kwargs):
        for coalesced in (True, False):
            test(self, *args, **kwargs, coalesced=coalesced)

    return both


def first_sample(self, samples):
    """The first of these; the test is skipped where there is none."""
    for sample in samples:
        return sample
    raise unittest.SkipTest("there is no sample")


def iter_indices(tensor):
    """All indices of a tensor: numbers of a vector, tuples of others."""
    return range(tensor.numel()) if tensor.dim() == 1 else np.ndindex(*tensor.shape)


def to_gpu(obj, type_map=None):
    """Copies of tensors, containers and modules on the GPU."""
    if isinstance(obj, _tg.Tensor):
        dtype = (type_map or {}).get(obj.dtype, obj.dtype)
        return obj.detach().clone().to(device="cuda", dtype=dtype).requires_grad_(obj.requires_grad)
    if isinstance(obj, (list, tuple)):
        return type(obj)(to_gpu(item, type_map) for item in obj)
    import copy

    return copy.deepcopy(obj).cuda() if isinstance(obj, _tg.nn.Module) else copy.deepcopy(obj)


def noncontiguous_like(t):
    """A copy of a tensor with gaps between its elements; the tensor itself if it has some."""
    if not t.is_contiguous():
        return t
    gap = float("nan") if t.dtype.is_floating_point or t.dtype.is_complex else 1
    spaced = t.new_full((*t.shape, 2), gap)
    spaced[..., 1] = t.detach()
    return spaced[..., 1].requires_grad_(t.requires_grad)


def bytes_to_scalar(byte_list, dtype, device):
    """The tensor of one element that has these bytes."""
    if any(not 0 <= byte <= 255 for byte in byte_list) or len(byte_list) != dtype.itemsize:
        raise AssertionError(f"bytes_to_scalar: {dtype.itemsize} bytes were expected: got {byte_list}")
    return _tg.tensor(np.frombuffer(bytes(byte_list), torch_to_numpy_dtype_dict[dtype])[0].item(), dtype=dtype, device=device)


def do_test_dtypes(self, dtypes, layout, device):
    """zeros() has the dtype, layout and device that were asked for."""
    for dtype in dtypes:
        made = _tg.zeros((2, 3), dtype=dtype, layout=layout, device=device)
        self.assertIs(dtype, made.dtype)
        self.assertIs(layout, made.layout)
        self.assertEqual(_tg.device(device), made.device)


def do_test_empty_full(self, dtypes, layout, device):
    """empty, full and their new_ and _like forms have the dtype, layout, value and requires_grad that were asked for."""
    shape = (2, 3)

    def check(made, dtype, layout, value=None, requires_grad=False):
        self.assertEqual((tuple(made.shape), made.dtype, made.layout, made.requires_grad), (shape, dtype, layout, requires_grad))
        if value is not None:
            self.assertEqual(made, made.new_empty(shape).fill_(value))

    check(_tg.empty(shape), _tg.get_default_dtype(), _tg.strided)
    check(_tg.full(shape, -5.0), _tg.get_default_dtype(), _tg.strided, -5.0)
    for dtype in dtypes:
        for rg in {dtype.is_floating_point, False}:
            same = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": rg}
            v = _tg.empty(shape, **same)
            check(v, dtype, layout, None, rg)
            check(_tg.empty(shape, out=v.new_empty(0), device=device, layout=layout, requires_grad=rg), dtype, layout, None, rg)
            check(v.new_empty(shape), dtype, layout)
            check(v.new_empty(shape, dtype=_tg.int64, device=device, requires_grad=False), _tg.int64, layout)
            check(_tg.empty_like(v), dtype, layout)
            check(_tg.empty_like(v, dtype=_tg.int64, layout=layout, device=device, requires_grad=False), _tg.int64, layout)
            if dtype == _tg.float16 or layout == _tg.sparse_coo:
                continue
            check(_tg.full(shape, 3, **same), dtype, layout, 3, rg)
            check(v.new_full(shape, 4), dtype, layout, 4)
            check(_tg.full(shape, 5, out=v.new_empty(0), device=device, layout=layout, requires_grad=rg), dtype, layout, 5, rg)
            check(v.new_full(shape, 6, dtype=_tg.int64, device=device, requires_grad=False), _tg.int64, layout, 6)
            check(_tg.full_like(v, 7), dtype, layout, 7)
            check(_tg.full_like(v, 8, dtype=_tg.int64, layout=layout, device=device, requires_grad=False), _tg.int64, layout, 8)


class TrackedInputIter:
    """An iterator over samples; which one a test failed on is not kept."""

    def __init__(self, child_iter, input_type_desc, item_callback=None, track_callback=None, set_seed=True, restrict_to_index=None):
        self._items = iter(child_iter)
        self._seed, self._callback = set_seed, item_callback or (lambda item, index: item)
        self._index = -1

    def __iter__(self):
        return self

    def __next__(self):
        if self._seed:
            set_rng_seed()
        self._index += 1
        return self._callback(next(self._items), self._index)


def extract_test_fn():
    return None
