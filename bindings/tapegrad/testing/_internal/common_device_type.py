"""Tests by device and dtype: `instantiate_device_type_tests`, `dtypes`, `ops`, and skips of devices.

A class TestFoo becomes TestFooCPU and, where there are GPUs, TestFooCUDA; its test_bar(self, device, dtype) becomes test_bar_cpu_float32.
"""

import copy
import enum
import functools
import inspect
import os
import sys
import unittest
from collections import namedtuple

from ._cases import TestCase
from ._parameters import _no_decorators, _TestParametrizer, compose_parametrize_fns, make_test, wrapped
from ._switches import NATIVE_DEVICES, TEST_WITH_ROCM, _has, _never  # noqa: F401
from .common_dtype import get_all_dtypes, is_dtype
from .common_utils import dtype_name

_tg = sys.modules[__package__.partition(".")[0]]
PYTORCH_CUDA_MEMCHECK = False
e4m3_type, e5m2_type = _tg.float8_e4m3fn, _tg.float8_e5m2
E4M3_MAX_POS, E5M2_MAX_POS = 448.0, 57344.0
tol = namedtuple("tol", ["atol", "rtol"])


def _update_param_kwargs(param_kwargs, name, value) -> None:
    """Sets an argument: `dtype`, or `dtypes` if the value is a sequence; one of None is left out."""
    for old in (name, f"{name}s"):
        param_kwargs.pop(old, None)
    if value is not None:
        param_kwargs[f"{name}s" if isinstance(value, (list, tuple)) else name] = value


class DeviceTypeTestBase(TestCase):
    """The base of tests of one type of device."""

    device_type = "generic_device_type"

    @classmethod
    def get_primary_device(cls) -> str:
        return cls.device_type

    @classmethod
    def get_all_devices(cls) -> list[str]:
        return [cls.get_primary_device()]

    @classmethod
    def _get_dtypes(cls, test):
        chosen = getattr(test, "dtypes", None)
        if chosen is None:
            return None
        if "all" not in chosen:
            raise AssertionError(f"@dtypes is mandatory when using @dtypesIf however '{test.__name__}' didn't specify it")
        return chosen.get(cls.device_type, chosen["all"])

    def _call(self, test, arguments):
        """Runs a test with the tolerances of its dtype."""
        before = self.precision, self.rel_tol
        dtype = arguments.get("dtypes", arguments.get("dtype"))
        try:
            if dtype is not None:
                self.precision = getattr(test, "precision_overrides", {}).get(dtype, self.precision)
                self.precision, self.rel_tol = getattr(test, "tolerance_overrides", {}).get(dtype, (self.precision, self.rel_tol))
            return test(self, **arguments)
        finally:
            self.precision, self.rel_tol = before

    @classmethod
    def instantiate_test(cls, name, test, *, generic_cls=None):
        """Makes the methods of one test: for each of its parameters and dtypes."""
        parametrize_fn = getattr(test, "parametrize_fn", lambda test, generic_cls, device_cls: [(test, "", {}, _no_decorators)])
        chosen = cls._get_dtypes(test)
        if chosen is not None:

            def by_dtype(test, generic_cls, device_cls):
                for dtype in chosen:
                    arguments = {}
                    _update_param_kwargs(arguments, "dtype", dtype)
                    yield test, "", arguments, _no_decorators

            parametrize_fn = compose_parametrize_fns(by_dtype, parametrize_fn)
        for made, suffix, arguments, decorators in parametrize_fn(test, generic_cls, cls):
            dtype = arguments.get("dtypes", arguments.get("dtype"))
            names = [dtype_name(d) for d in (dtype if isinstance(dtype, (list, tuple)) else [dtype]) if d is not None]
            if {"device", "devices"} & inspect.signature(made).parameters.keys():
                _update_param_kwargs(arguments, "device", cls.get_all_devices() if hasattr(made, "num_required_devices") else cls.get_primary_device())
            make_test(cls, "_".join([name, *filter(None, [suffix]), cls.device_type, *names]), made, arguments, decorators, cls._call)


class CPUTestBase(DeviceTypeTestBase):
    device_type = "cpu"


class CUDATestBase(DeviceTypeTestBase):
    device_type = "cuda"

    @classmethod
    def get_primary_device(cls) -> str:
        return "cuda:0"

    @classmethod
    def get_all_devices(cls) -> list[str]:
        return [f"cuda:{i}" for i in range(_tg.cuda.device_count())]


device_type_test_bases = [CPUTestBase, *([CUDATestBase] if _tg.cuda.is_available() else [])]


def _listed(devices) -> list[str]:
    return [devices] if isinstance(devices, str) else list(devices or ())


def get_desired_device_type_test_bases(except_for=None, only_for=None, include_lazy=False, allow_mps=False, allow_xpu=False) -> list:
    """The bases of devices that are here and wanted, also by PYTORCH_TESTING_DEVICE_ONLY_FOR and PYTORCH_TESTING_DEVICE_EXCEPT_FOR."""
    only, but = ([name for name in os.environ.get(f"PYTORCH_TESTING_DEVICE_{which}", "").split(",") if name] for which in ("ONLY_FOR", "EXCEPT_FOR"))
    wanted = [set(names) for names in (_listed(only_for), only) if names]
    unwanted = {*_listed(except_for), *but}
    return [base for base in device_type_test_bases if all(base.device_type in names for names in wanted) and base.device_type not in unwanted]


def instantiate_device_type_tests(generic_test_class, scope, except_for=None, only_for=None, include_lazy=False, allow_mps=False, allow_xpu=False):
    """Replaces a test class in `scope` by one per device."""
    del scope[generic_test_class.__name__]
    own = vars(generic_test_class)
    tests = [name for name in own if name.startswith("test")]
    for base in get_desired_device_type_test_bases(except_for, only_for, include_lazy, allow_mps, allow_xpu):
        name = generic_test_class.__name__ + base.device_type.upper()
        made = type(name, (base, generic_test_class), {"__module__": generic_test_class.__module__, "__doc__": generic_test_class.__doc__})
        for test in tests:
            made.instantiate_test(test, copy.deepcopy(getattr(generic_test_class, test)), generic_cls=generic_test_class)
        for other in set(own) - set(tests) - set(vars(made)) - {"__dict__", "__weakref__"}:  # they come before the base's
            setattr(made, other, own[other])
        scope[name] = made
    for test in tests:
        delattr(generic_test_class, test)


def get_all_device_types() -> list[str]:
    return [base.device_type for base in device_type_test_bases]


# Dtypes and tolerances.


class dtypes:
    """One test per dtype, or per tuple of dtypes."""

    def __init__(self, *args, device_type="all"):
        for arg in args:
            if not all(is_dtype(d) for d in (arg if isinstance(arg, (list, tuple)) else [arg])):
                raise AssertionError(f"Unknown dtype in {args}")
        self.args, self.device_type = args, device_type

    def __call__(self, fn):
        chosen = dict(getattr(fn, "dtypes", {}))
        if self.device_type in chosen:
            raise AssertionError(f"dtypes redefinition for {self.device_type}")
        fn.dtypes = {**chosen, self.device_type: self.args}
        return fn


def _of_device(decorator, device_type):
    """A decorator for one device, under a class of its own."""
    return functools.partial(decorator, device_type=device_type)


dtypesIfCPU, dtypesIfCUDA, dtypesIfXPU, dtypesIfMPS, dtypesIfHPU, dtypesIfPRIVATEUSE1 = (
    _of_device(dtypes, name) for name in ("cpu", "cuda", "xpu", "mps", "hpu", "privateuseone"))  # fmt: skip


class precisionOverride:
    """The least absolute tolerance by dtype."""

    _attribute = "precision_overrides"

    def __init__(self, d):
        if not isinstance(d, dict) or not all(map(is_dtype, d)):
            raise AssertionError(f"{type(self).__name__}: a dict by dtype was expected: got {d!r}")
        self.d = d

    def __call__(self, fn):
        setattr(fn, self._attribute, self.d)
        return fn


class toleranceOverride(precisionOverride):
    """The least tolerances by dtype: {torch.float32: tol(atol=1e-4, rtol=1e-5)}."""

    _attribute = "tolerance_overrides"


# Which of an operator's dtypes `ops` makes tests for.
OpDTypes = enum.Enum("OpDTypes", "supported unsupported supported_backward unsupported_backward any_one none any_common_cpu_cuda_one", start=0)


class ops(_TestParametrizer):
    """One test per entry of a database of operators, and dtype. Of an empty one it is a test that is skipped: the database is PyTorch's."""

    def __init__(self, op_list, *, dtypes=OpDTypes.supported, allowed_dtypes=None, skip_if_dynamo=True):
        self.op_list, self.opinfo_dtypes = list(op_list), dtypes
        self.allowed_dtypes = None if allowed_dtypes is None else set(allowed_dtypes)

    def _dtypes(self, op, device_type):
        kind, every = self.opinfo_dtypes, get_all_dtypes()
        if not isinstance(kind, OpDTypes):
            return list(kind)
        supported = op.supported_backward_dtypes(device_type) if kind.name.endswith("backward") else op.supported_dtypes(device_type)
        if kind == OpDTypes.none:
            return [None]
        if kind in (OpDTypes.any_one, OpDTypes.any_common_cpu_cuda_one):
            both = [d for d in every if d in supported and d in op.supported_backward_dtypes(device_type)]
            return (both or [d for d in every if d in supported])[:1]
        return [d for d in every if (d in supported) != kind.name.startswith("un")]

    def _parametrize_test(self, test, generic_cls, device_cls):
        if device_cls is None:
            raise RuntimeError("The @ops decorator is only intended to be used in a device-specific context; use it with "
                               "instantiate_device_type_tests() instead of instantiate_parametrized_tests()")
        if not self.op_list:

            def skipped(self, *args, **kwargs):
                raise unittest.SkipTest("PyTorch's database of operators is not here")

            skipped.__name__ = test.__name__
            yield skipped, "", {}, _no_decorators
        for op in self.op_list:
            for dtype in self._dtypes(op, device_cls.device_type):
                if self.allowed_dtypes is None or dtype in self.allowed_dtypes:
                    arguments = {"op": op}
                    _update_param_kwargs(arguments, "dtype", dtype)
                    decorators = functools.partial(op.get_decorators, generic_cls.__name__, test.__name__, device_cls.device_type, dtype)
                    yield wrapped(test), op.formatted_name, arguments, decorators


# Skips and expectations.


def _checked(check, doc: str):
    """A decorator that calls `check(self)` before the test."""

    def decorate(test):
        @functools.wraps(test)
        def run(self, *args, **kwargs):
            check(self)
            return test(self, *args, **kwargs)

        return run

    decorate.__doc__ = doc
    return decorate


class skipIf:
    """Skips on a device if the condition holds: a bool, or the name of an attribute of the test class."""

    def __init__(self, dep, reason, device_type=None):
        self.dep, self.reason, self.device_type = dep, reason, device_type

    def __call__(self, fn):
        def check(test):
            here = self.device_type is None or test.device_type in _listed(self.device_type)
            if here and (getattr(test, self.dep, True) if isinstance(self.dep, str) else self.dep is True):
                raise unittest.SkipTest(self.reason)

        return _checked(check, self.reason)(fn)


skipCPUIf, skipCUDAIf, skipXPUIf, skipMetaIf, skipMPSIf, skipLazyIf, skipXLAIf, skipHPUIf, skipPRIVATEUSE1If, skipGPUIf = (
    _of_device(skipIf, name) for name in ("cpu", "cuda", "xpu", "meta", "mps", "lazy", "xla", "hpu", "privateuseone", ("cuda", "xpu")))  # fmt: skip
skipCPUIfNoLapack = skipCPUIfNoFFT = skipCPUIfNoMkldnn = skipCPUIfNoMklSparse = _never  # all are here
skipCPUIfNoMkl = skipCPUIf(True, "PyTorch is built without MKL support")
skipCUDAIfRocm = skipCUDAIfRocmVersionLessThan = skipCUDAIfMiopen = skipCUDAIfNotMiopenSuggestNHWC = disablecuDNN = disableMkldnn = _never
skipCUDAIfNoMagma = skipCUDAIfNoCusolver = skipCUDAIfNoMagmaAndNoCusolver = skipCUDAIfNoMagmaAndNoLinalgsolver = skipCUDAIfNoCudnn = _never
skipCUDAIfNoCusparseGeneric = skipCUDAIfCudnnVersionLessThan = skipCUDAVersionIn = skipCUDAIfVersionLessThan = skipCUDAIfNoSparseGeneric = _never
skipCUDAIfNotRocm = skipCUDAIfNoMiopen = skipCUDAIf(True, "test doesn't currently work on the CUDA stack")
skipMeta, skipLazy, skipXLA, skipMPS, skipHPU, skipXPU, skipPRIVATEUSE1 = (
    skipIf(True, f"test doesn't work with {name} tensors", name) for name in ("meta", "lazy", "xla", "mps", "hpu", "xpu", "privateuseone"))  # fmt: skip


def has_cusolver() -> bool:
    return _tg.cuda.is_available()


class onlyOn:
    """Runs on one type of device, or several."""

    def __init__(self, device_type):
        self.device_type = device_type

    def __call__(self, fn):
        def check(test):
            if test.device_type not in _listed(self.device_type):
                raise unittest.SkipTest(f"Only runs on {self.device_type}")

        return _checked(check, f"Only on {self.device_type}.")(fn)


onlyCPU, onlyCUDA, onlyMPS, onlyXPU, onlyHPU, onlyPRIVATEUSE1, onlyAccelerator, onlyCUDAAndPRIVATEUSE1 = map(
    onlyOn, ("cpu", "cuda", "mps", "xpu", "hpu", "privateuseone", ("cuda", "xpu", "mps"), ("cuda", "privateuseone")))  # fmt: skip
onlyNativeDeviceTypes = onlyOn(NATIVE_DEVICES)


def onlyNativeDeviceTypesAnd(devices=None):
    return onlyOn((*NATIVE_DEVICES, *_listed(devices)))


class expectedFailure:
    """The test must fail on a type of device, on all if it is None."""

    def __init__(self, device_type, dtype=None):
        self.device_type, self.dtype = device_type, dtype

    def __call__(self, fn):
        @functools.wraps(fn)
        def run(self_, *args, **kwargs):
            if self.device_type not in (None, self_.device_type) or self.dtype not in (None, kwargs.get("dtype")):
                return fn(self_, *args, **kwargs)
            try:
                fn(self_, *args, **kwargs)
            except Exception:
                return None
            return self_.fail("expected test to fail, but it passed")

        return run


expectedFailureCPU, expectedFailureCUDA, expectedFailureMeta, expectedFailureXLA, expectedFailureMPS, expectedFailureXPU, expectedFailureHPU = map(
    expectedFailure, ("cpu", "cuda", "meta", "xla", "mps", "xpu", "hpu"))  # fmt: skip
expectedFailureMPSComplex = expectedFailureMPSPre14 = expectedFailureMPSPre15 = expectedFailureMPS


class deviceCountAtLeast:
    """Gives the test `devices`, a list; skips where there are fewer."""

    def __init__(self, num_required_devices):
        self.num_required_devices = num_required_devices

    def __call__(self, fn):
        @functools.wraps(fn)
        def run(self_, devices, *args, **kwargs):
            if len(devices) < self.num_required_devices:
                raise unittest.SkipTest(f"fewer than {self.num_required_devices} devices detected")
            return fn(self_, devices, *args, **kwargs)

        run.num_required_devices = self.num_required_devices
        return run


def _free_bytes(device: str) -> int:
    if _tg.device(device).type == "cuda":
        return _tg.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def largeTensorTest(size, device=None, inductor=False):
    """Skips where less than "24GB", or a number of bytes, is free."""
    if isinstance(size, str):
        size = int(float(size.upper().removesuffix("GB")) * 1024**3)

    def decorate(fn):
        @functools.wraps(fn)
        def run(self, *args, **kwargs):
            wanted = size(self, *args, **kwargs) if callable(size) else size
            if _tg.device(device or self.get_primary_device()).type not in get_all_device_types() or _free_bytes(device or self.get_primary_device()) < wanted:
                raise unittest.SkipTest(f"Insufficient {device or self.device_type} memory")
            return fn(self, *args, **kwargs)

        return run

    return decorate
