"""tapegrad: tensors with tape autograd.

The names are PyTorch's: a script moves over by changing its import. What is not needed at once (nn, optim, datasets ...)
is imported when it is first used.
"""

import importlib as _importlib


def _load_native():
    """Imports the extension with OpenMP's idle threads asleep; the environment of child processes stays as it was."""
    import os

    quiet = not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if quiet:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        return _importlib.import_module(f"{__package__}._C")
    finally:
        if quiet:
            del os.environ["OMP_WAIT_POLICY"]


_C = _load_native()
if hasattr(_C, "_whole"):
    raise ImportError(_C._second_import)

from math import e, inf, nan, pi  # noqa: E402

from ._C import (  # noqa: E402
    Generator,
    OutOfMemoryError,
    Size,
    Tensor,
    bfloat16,
    bool,
    cdouble,
    cfloat,
    chalf,
    channels_last,
    complex32,
    complex64,
    complex128,
    contiguous_format,
    default_generator,
    device,
    double,
    dtype,
    float,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    half,
    int,
    int8,
    int16,
    int32,
    int64,
    layout,
    long,
    memory_format,
    preserve_format,
    return_types,
    short,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
    uint8,
    uint16,
    uint32,
    uint64,
)

_importlib.sys.modules[f"{__name__}.return_types"] = return_types  # `import torch.return_types` is an import of public programs
_own_name = __name__  # while compat.install() is in force, the module says that it is "torch"
newaxis = None
channels_last_3d = channels_last  # the order of memory is one for pictures and volumes
legacy_contiguous_format = contiguous_format
__version__ = _C.__version__

globals().update((name, function) for name, function in _C._functions[""].items())

from . import _tensor  # noqa: E402, F401
from ._lazy import load as _load  # noqa: E402
from ._lazy import more_names as _more_names  # noqa: E402
from ._root import *  # noqa: E402, F403
from ._root.legacy import *  # noqa: E402, F403
from ._root.lowrank import lu, pca_lowrank, svd_lowrank  # noqa: E402
from ._root.overloads import (  # noqa: E402, F401
    _aminmax,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    einsum,
    frobenius_norm,
    nuclear_norm,
    tensordot,
)
from ._root.segments import _segment_reduce, segment_reduce, vander  # noqa: E402, F401
from ._root.settings import (  # noqa: E402
    are_deterministic_algorithms_enabled,
    compile,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_storage,
    is_warn_always_enabled,
    set_default_tensor_type,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_warn_always,
    typename,
    use_deterministic_algorithms,
)
from ._root.sparse import (  # noqa: E402
    _validate_sparse_compressed_tensor_args,
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
)
from ._root.type_info import finfo, iinfo  # noqa: E402
from ._root.unique import unique, unique_consecutive  # noqa: E402
from ._tensor.text import get_printoptions, printoptions, set_printoptions  # noqa: E402
from .autograd import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .storage import *  # noqa: E402, F403
from .storage import _default_storage, from_file  # noqa: E402

_LAZY = frozenset(("amp", "backends", "checkpoint", "compat", "cpu", "cuda", "datasets", "fft", "func", "linalg",
                   "masked", "nn", "optim", "quasirandom", "random", "record", "serialization", "signal", "sparse", "special", "torch_version", "utils", "version",
                   "vision", "__config__", "__future__", "_higher_order_ops", "_utils", "accelerator", "distributed", "distributions",
                   "export", "futures", "hub", "jit", "library", "multiprocessing", "ops", "overrides", "profiler", "testing", "types"))
_LAZY_NAMES = {"Future": "futures", "GradScaler": "amp.grad_scaler", "ScriptModule": "jit", "save": "serialization", "load": "serialization", "strict": "_root.strict", "summary": "_root.summary",
               "autocast": "amp.autocast_mode", "vmap": "func._vmap", "cond": "_higher_order_ops", "while_loop": "_higher_order_ops",
               **dict.fromkeys(("autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "get_autocast_cpu_dtype",
                                "get_autocast_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled",
                                "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled",
                                "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype"), "amp._state"),
               "lobpcg": "_root.lobpcg",
               **dict.fromkeys(("affine_grid_generator", "embedding_renorm_", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
                                "has_lapack", "has_mkl", "has_openmp", "has_spectral", "bilinear", "ctc_loss", "embedding_bag", "is_anomaly_check_nan_enabled",
                                "is_anomaly_enabled", "native_batch_norm", "native_channel_shuffle", "native_dropout", "native_group_norm", "native_layer_norm",
                                "set_anomaly_enabled"), "_root.lowlevel")}
_DEFERRED = frozenset(("Event", "PyTorchFileReader", "PyTorchFileWriter", "Stream", "Tag", "_assert", "_assert_async", "bits8", "get_device_module", "jagged", "per_channel_affine", "per_channel_symmetric",
                   "per_tensor_affine", "per_tensor_symmetric", "qint32", "qint8", "quint2x4", "quint4x2", "quint8", "dsmm", "hsmm", "hspmm", "saddmm", "smm", "spmm", "sspaddmm",
                   "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo",
                   "_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_", "_check", "_check_index", "_check_tensor_all", "_check_is_size", "_check_not_implemented", "_check_type", "_check_value", "_check_with",
                   "_shape_as_tensor", "eig", "lstsq", "matrix_rank", "solve", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum", "symeig"))

_others, _dir = _more_names(__name__, _LAZY)


def __getattr__(name: str):
    if name == "Storage":  # of the default dtype, which may be another one at the next call
        return _default_storage()
    if name in _LAZY_NAMES:
        value = getattr(_load(f"{_own_name}.{_LAZY_NAMES[name]}"), name)
    elif name in _DEFERRED:
        value = getattr(_load(f"{_own_name}._root.deferred"), name)
    elif name.startswith("_foreach_") and (made := _load(f"{_own_name}._root.foreach").make(name)):
        value = made
    else:
        value = _others(name)
    globals()[name] = value
    return value


def __dir__():
    """What people use. Names for old programs and for compilers, copies of views and in-place forms of functions are there and not listed."""
    old = {*_load(f"{_own_name}._root.legacy").__all__, *_load(f"{_own_name}.storage").__all__, "SymBool", "SymFloat", "SymInt", "annotations", *_DEFERRED}
    old |= {name for name, module in _LAZY_NAMES.items() if module in ("_root.lowlevel", "amp._state", "futures", "jit")}
    return sorted(n for n in {*_dir(), *_LAZY_NAMES} - old if n.startswith("_") or not n.endswith(("_", "_copy")))


if _ours := [_n for _n in _importlib.import_module("os").environ if _n.startswith("TAPEGRAD_")]:
    _environment = _load(f"{_own_name}._root.environment")
    _environment.warn_of_unknown(_ours)
    if _environment.flag("TAPEGRAD_RECORD"):
        _load(f"{_own_name}.record").modules(True)
_C._whole = True  # an import that was interrupted before this line may be repeated
