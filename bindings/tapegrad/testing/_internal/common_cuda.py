"""What tests ask of GPUs, and switches of their precision."""

import contextlib
import functools
import sys

from ._switches import TEST_CUDA, TEST_MULTIGPU, TEST_NUMBA, _around, _never  # noqa: F401

_tg = sys.modules[__package__.partition(".")[0]]
_capability = _tg.cuda.get_device_capability() if TEST_CUDA else (0, 0)
SM53OrLater, SM60OrLater, SM70OrLater, SM75OrLater, SM80OrLater, SM89OrLater, SM90OrLater, SM100OrLater, SM120OrLater = (
    _capability >= version for version in ((5, 3), (6, 0), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)))  # fmt: skip
TEST_CUDNN = TEST_CUDA and _tg.backends.cudnn.is_available()
TEST_CUDNN_VERSION = _tg.backends.cudnn.version() if TEST_CUDNN else 0
TEST_MAGMA = False
TEST_CUSPARSE_GENERIC = TEST_CUDA
PLATFORM_SUPPORTS_FLASH_ATTENTION = PLATFORM_SUPPORTS_MEM_EFF_ATTENTION = PLATFORM_SUPPORTS_FUSED_ATTENTION = PLATFORM_SUPPORTS_CUDNN_ATTENTION = SM80OrLater
PLATFORM_SUPPORTS_BF16 = SM80OrLater
PLATFORM_SUPPORTS_FP8 = SM89OrLater


def _tf32(allowed):
    @contextlib.contextmanager
    def switched(self=None, tf32_precision=None):
        backends = _tg.backends
        before = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
        precision = getattr(self, "precision", None)
        try:
            backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed
            if tf32_precision is not None:
                self.precision = tf32_precision
            yield
        finally:
            backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = before
            if tf32_precision is not None:
                self.precision = precision

    return switched


tf32_off, _on = _tf32(False), _tf32(True)


def tf32_on(self, tf32_precision=1e-5):
    """A context with TF32, in which the test's tolerance is another."""
    return _on(self, tf32_precision)


def tf32_on_and_off(tf32_precision=1e-5, *, only_if=True):
    """Runs a test of a GPU that has TF32 without and with it; others once."""

    def decorate(test):
        @functools.wraps(test)
        def run(self, *args, **kwargs):
            device = kwargs.get("device", "cuda" if TEST_CUDA else "cpu")
            if not (only_if and SM80OrLater and _tg.device(device).type == "cuda"):
                return test(self, *args, **kwargs)
            with tf32_off():
                test(self, *args, **kwargs)
            with tf32_on(self, tf32_precision):
                return test(self, *args, **kwargs)

        return run

    return decorate


with_tf32_off = _around(tf32_off)


def _get_torch_cuda_version() -> tuple[int, int]:
    version = _tg.version.cuda
    return tuple(int(part) for part in version.split(".")[:2]) if version else (0, 0)


def _get_magma_version() -> tuple[int, int]:
    return (0, 0)


def _create_scaling_models_optimizers(device="cuda", optimizer_ctor=None, optimizer_kwargs=None):
    """Two equal models, one to be trained with scaled losses, and their optimizers."""
    nn = _tg.nn
    control, scaled = (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(device) for _ in range(2))
    scaled.load_state_dict(control.state_dict())
    for parameters in (control.parameters(), scaled.parameters()):
        for p in parameters:
            p.grad = None
    make = optimizer_ctor or _tg.optim.SGD
    options = {"lr": 1.0, **(optimizer_kwargs or {})}
    return control, scaled, make(control.parameters(), **options), make(scaled.parameters(), **options)


def _create_scaling_case(device="cuda", dtype=None, optimizer_ctor=None, optimizer_kwargs=None):
    """Models and optimizers as above, four pairs of input and target, the loss, and the step at which gradients are not finite."""
    options = {"dtype": dtype or _tg.float32, "device": device}
    data = [(_tg.randn((8, 8), **options), _tg.randn((8, 8), **options)) for _ in range(4)]
    return (*_create_scaling_models_optimizers(device, optimizer_ctor, optimizer_kwargs), data, _tg.nn.MSELoss().to(device), 2)
