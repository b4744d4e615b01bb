"""Where tests run, and decorators that skip them: constants of common_utils, and its `skipIf...` and `xfailIf...`."""

import contextlib
import functools
import importlib.util
import os
import platform
import sys
import unittest

_tg = sys.modules[__package__.partition(".")[0]]


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


IS_LINUX, IS_WINDOWS, IS_MACOS = (sys.platform == name for name in ("linux", "win32", "darwin"))
IS_PPC, IS_X86, IS_ARM64, IS_S390X = (platform.machine() in names for names in (("ppc64le",), ("x86_64", "i386"), ("arm64", "aarch64"), ("s390x",)))
MACOS_VERSION = float(".".join(platform.mac_ver()[0].split(".")[:2]) or -1)
IS_CI = bool(os.environ.get("CI"))
IS_FILESYSTEM_UTF8_ENCODING = sys.getfilesystemencoding().lower() == "utf-8"
NO_MULTIPROCESSING_SPAWN = False

TEST_NUMPY = True
TEST_SCIPY, TEST_NUMBA, TEST_DILL, TEST_OPT_EINSUM, TEST_TRANSFORMERS, TEST_LIBROSA = map(
    _has, ("scipy", "numba", "dill", "opt_einsum", "transformers", "librosa"))
TEST_CUDA = _tg.cuda.is_available()
TEST_MULTIGPU = TEST_CUDA and _tg.cuda.device_count() > 1
TEST_WITH_SLOW = os.environ.get("PYTORCH_TEST_WITH_SLOW", "0") == "1"
TEST_WITH_SLOW_GRADCHECK = os.environ.get("PYTORCH_TEST_WITH_SLOW_GRADCHECK", "0") == "1"

# Devices, compilers and places of PyTorch's that are never here.
IS_SANDCASTLE = IS_FBCODE = IS_REMOTE_GPU = IN_RE_WORKER = IS_JETSON = False
TEST_MKL = TEST_MPS = TEST_XPU = TEST_HPU = TEST_ACL = TEST_PRIVATEUSE1 = TEST_CUDA_GRAPH = TEST_FAIRSEQ = False
TEST_WITH_ROCM = TEST_WITH_MTIA = TEST_WITH_ASAN = TEST_WITH_TSAN = TEST_WITH_UBSAN = TEST_WITH_DEV_DBG_ASAN = TEST_WITH_CROSSREF = False
TEST_WITH_TORCHINDUCTOR = TEST_WITH_TORCHDYNAMO = TEST_WITH_AOT_EAGER = TEST_SKIP_FAST = TEST_CUDA_MEM_LEAK_CHECK = False
TEST_WITH_TV = TEST_WITH_MIOPEN_SUGGEST_NHWC = TEST_WITHOUT_COMPILED_AUTOGRAD = False
USE_PYTEST = "pytest" in sys.modules
PRINT_REPRO_ON_FAILURE = False
OPINFO_SAMPLE_INPUT_INDEX = None
MI300_ARCH, MI350_ARCH, MI200_ARCH, NAVI_ARCH = ("gfx942",), ("gfx950",), ("gfx90a",), ("gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201")
NATIVE_DEVICES = ("cpu", "cuda", "xpu", "meta", "mps", "mtia", "privateuseone")
custom_device_mod = None


def _never(*args, **kwargs):
    """A skip for a device or compiler that is never here: the test runs. Used as `@skip`, `@skip("why")` or `@skip(msg="why")`."""
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return lambda test: test


skipIfRocm = skipIfRocm_BUGGY = skipIfRocmArch = skipIfRocmVersionLessThan = skipIfNotMiopenSuggestNHWC = _never
skipIfMPS = skipIfMps = skipIfMPSOnMacOS13 = skipIfXpu = skipIfXpu_BUGGY = skipIfHpu = skipIfHpu_BUGGY = skipIfCrossRef = _never
skipIfTorchDynamo = skipIfTorchInductor = skipIfLegacyJitExecutor = skipIfNNModuleInlined = skipIfSlowGradcheckEnv = gcIfJetson = _never
skipIfWindows = skipIfWindowsXPU = skipIfFreeThreaded = skipIfNoLapack = skipIfCompiledWithoutNumpy = _never
skipCUDAMemoryLeakCheckIf = skipCUDANonDefaultStreamIf = runWithoutCompiledAutograd = markDynamoStrictTest = unMarkDynamoStrictTest = _never
xfailIfTorchDynamo = xfailIfS390X = xfailIfACL = xfailIfROCm = xpassIfTorchDynamo_np = serialTest = setLinalgBackendsToDefaultFinally = _never
setBlasBackendsToDefaultFinally = setSdpaBackendsToDefaultFinally = skip_but_pass_in_sandcastle_if = _never


runOnRocm = unittest.skip("test currently only works on the ROCm stack")
skipIfNoSciPy = unittest.skipUnless(TEST_SCIPY, "test requires SciPy, but SciPy not found")


def slowTestIf(condition):
    """Skips a slow test unless PYTORCH_TEST_WITH_SLOW=1."""
    return unittest.skipIf(condition and not TEST_WITH_SLOW, "test is slow; run with PYTORCH_TEST_WITH_SLOW to enable test")


slowTest = slowTestIf(True)


def xfailIf(condition):
    return unittest.expectedFailure if condition else _never


xfailIfLinux, xfailIfPy312Plus = xfailIf(IS_LINUX), xfailIf(sys.version_info >= (3, 12))


def _around(context):
    """A decorator that runs a test within a context."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            with context():
                return test(*args, **kwargs)

        return run

    return decorate


@contextlib.contextmanager
def _without_warnings():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _setting(get, set_, value, *, begin=None):
    """set_(value), or begin(value), and at the end what get() said before."""
    before = get()
    (begin or set_)(value)
    try:
        yield
    finally:
        set_(before)


def set_warn_always_context(new_val: bool):
    """Warnings that are given once are given every time, and back."""
    return _setting(_tg.is_warn_always_enabled, _tg.set_warn_always, new_val)


class DeterministicGuard:
    """Deterministic algorithms on or off, and back."""

    def __init__(self, deterministic, *, warn_only=False, fill_uninitialized_memory=True):
        self._wanted = (deterministic, warn_only, fill_uninitialized_memory)

    @staticmethod
    def _set(deterministic, warn_only, fill) -> None:
        _tg.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        _tg.utils.deterministic.fill_uninitialized_memory = fill

    def __enter__(self):
        self._before = (_tg.are_deterministic_algorithms_enabled(), _tg.is_deterministic_algorithms_warn_only_enabled(),
                        _tg.utils.deterministic.fill_uninitialized_memory)
        self._set(*self._wanted)

    def __exit__(self, *error):
        self._set(*self._before)


def AlwaysWarnTypedStorageRemoval(always_warn):
    """The warning of typed storages at every use, and back."""
    storage = _tg.storage
    return _setting(storage._get_always_warn_typed_storage_removal, storage._set_always_warn_typed_storage_removal, always_warn)


def CudaSyncGuard(sync_debug_mode):
    """How synchronisations are reported, and back."""
    return _setting(_tg.cuda.get_sync_debug_mode, _tg.cuda.set_sync_debug_mode, sync_debug_mode)


def skipRocmIfTorchInductor(msg="PyTorch's compiler on ROCm"):
    """A skip for a compiler that is never here. It is always called, as in PyTorch: `@skipRocmIfTorchInductor()`."""
    return _never(msg)


suppress_warnings = _around(_without_warnings)
# For tests of the flags themselves: whatever they set is set back.
wrapDeterministicFlagAPITest = _around(
    lambda: DeterministicGuard(_tg.are_deterministic_algorithms_enabled(), warn_only=_tg.is_deterministic_algorithms_warn_only_enabled()))
