"""Types of the root module, which is filled when it is imported: functions of the op table are in _stubs/root.pyi, the rest is named here."""

import builtins
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ._stubs import Number as _Number
from ._stubs import return_types as return_types
from ._stubs.root import *
from . import (
    amp as amp, autograd as autograd, backends as backends, checkpoint as checkpoint, compat as compat, cpu as cpu, cuda as cuda,
    datasets as datasets, distributed as distributed, distributions as distributions, fft as fft, func as func, futures as futures,
    hub as hub, jit as jit, library as library, linalg as linalg, masked as masked, multiprocessing as multiprocessing, nn as nn,
    ops as ops, optim as optim, overrides as overrides, profiler as profiler, quasirandom as quasirandom, random as random, record as record,
    serialization as serialization, signal as signal, sparse as sparse, special as special, storage as storage, testing as testing,
    torch_version as torch_version, types as types, utils as utils, version as version, vision as vision, accelerator as accelerator,
)
from ._C import (
    Generator as Generator, OutOfMemoryError as OutOfMemoryError, Size as Size, Tensor as Tensor, bfloat16 as bfloat16, bool as bool,
    cdouble as cdouble, cfloat as cfloat, chalf as chalf, channels_last as channels_last, complex32 as complex32, complex64 as complex64,
    complex128 as complex128, contiguous_format as contiguous_format, default_generator as default_generator, device as device,
    double as double, dtype as dtype, float as float, float8_e4m3fn as float8_e4m3fn, float8_e4m3fnuz as float8_e4m3fnuz,
    float8_e5m2 as float8_e5m2, float8_e5m2fnuz as float8_e5m2fnuz, float8_e8m0fnu as float8_e8m0fnu, float16 as float16,
    float32 as float32, float64 as float64, half as half, int as int, int8 as int8, int16 as int16, int32 as int32, int64 as int64,
    layout as layout, long as long, memory_format as memory_format, preserve_format as preserve_format, short as short,
    sparse_bsc as sparse_bsc, sparse_bsr as sparse_bsr, sparse_coo as sparse_coo, sparse_csc as sparse_csc, sparse_csr as sparse_csr,
    strided as strided, uint8 as uint8, uint16 as uint16, uint32 as uint32, uint64 as uint64, __version__ as __version__,
)
from ._higher_order_ops import cond as cond, while_loop as while_loop
from ._root import (
    batch_norm as batch_norm, binary_cross_entropy_with_logits as binary_cross_entropy_with_logits, broadcast_shapes as broadcast_shapes,
    conv_tbc as conv_tbc, convolution as convolution, cosine_embedding_loss as cosine_embedding_loss, embedding as embedding,
    feature_dropout as feature_dropout, feature_dropout_ as feature_dropout_, grid_sampler as grid_sampler,
    hinge_embedding_loss as hinge_embedding_loss, histogramdd as histogramdd, instance_norm as instance_norm, kl_div as kl_div,
    margin_ranking_loss as margin_ranking_loss, norm_except_dim as norm_except_dim, poisson_nll_loss as poisson_nll_loss,
    to_dlpack as to_dlpack, triplet_margin_loss as triplet_margin_loss, SymBool as SymBool, SymFloat as SymFloat, SymInt as SymInt,
)
from ._root.deferred import (
    Event as Event, Stream as Stream, Tag as Tag, PyTorchFileReader as PyTorchFileReader, PyTorchFileWriter as PyTorchFileWriter,
    dsmm as dsmm, get_device_module as get_device_module, hsmm as hsmm, hspmm as hspmm, saddmm as saddmm, smm as smm, spmm as spmm,
    sspaddmm as sspaddmm, sym_float as sym_float, sym_int as sym_int,
    sym_ite as sym_ite, sym_max as sym_max, sym_min as sym_min, sym_not as sym_not, sym_sum as sym_sum,
)
from ._root.lobpcg import lobpcg as lobpcg
from ._root.lowlevel import (
    affine_grid_generator as affine_grid_generator, embedding_renorm_ as embedding_renorm_,
    fake_quantize_per_channel_affine as fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine,
    has_lapack as has_lapack, has_mkl as has_mkl, has_openmp as has_openmp, has_spectral as has_spectral,
    bilinear as bilinear, ctc_loss as ctc_loss, embedding_bag as embedding_bag, is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
    is_anomaly_enabled as is_anomaly_enabled, native_batch_norm as native_batch_norm, native_channel_shuffle as native_channel_shuffle,
    native_dropout as native_dropout, native_group_norm as native_group_norm, native_layer_norm as native_layer_norm,
    set_anomaly_enabled as set_anomaly_enabled,
)
from ._root.lowrank import lu as lu, pca_lowrank as pca_lowrank, svd_lowrank as svd_lowrank
from ._root.overloads import einsum as einsum, frobenius_norm as frobenius_norm, nuclear_norm as nuclear_norm, tensordot as tensordot
from ._root.segments import segment_reduce as segment_reduce, vander as vander
from ._root.settings import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled, compile as compile,
    get_deterministic_debug_mode as get_deterministic_debug_mode, get_float32_matmul_precision as get_float32_matmul_precision,
    get_num_interop_threads as get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled, is_storage as is_storage,
    is_warn_always_enabled as is_warn_always_enabled, set_default_tensor_type as set_default_tensor_type,
    set_deterministic_debug_mode as set_deterministic_debug_mode, set_float32_matmul_precision as set_float32_matmul_precision,
    set_flush_denormal as set_flush_denormal, set_num_interop_threads as set_num_interop_threads, set_warn_always as set_warn_always,
    typename as typename, use_deterministic_algorithms as use_deterministic_algorithms,
)
from ._root.sparse import (
    sparse_compressed_tensor as sparse_compressed_tensor, sparse_coo_tensor as sparse_coo_tensor, sparse_csc_tensor as sparse_csc_tensor,
    sparse_bsc_tensor as sparse_bsc_tensor, sparse_bsr_tensor as sparse_bsr_tensor, sparse_csr_tensor as sparse_csr_tensor,
)
from ._root.strict import strict as strict
from ._root.summary import summary as summary
from ._root.type_info import finfo as finfo, iinfo as iinfo
from ._root.unique import unique as unique, unique_consecutive as unique_consecutive
from ._tensor.text import get_printoptions as get_printoptions, printoptions as printoptions, set_printoptions as set_printoptions
from .amp._state import (
    autocast_decrement_nesting as autocast_decrement_nesting, autocast_increment_nesting as autocast_increment_nesting,
    clear_autocast_cache as clear_autocast_cache, get_autocast_cpu_dtype as get_autocast_cpu_dtype,
    get_autocast_dtype as get_autocast_dtype, get_autocast_gpu_dtype as get_autocast_gpu_dtype,
    is_autocast_cache_enabled as is_autocast_cache_enabled, is_autocast_cpu_enabled as is_autocast_cpu_enabled,
    is_autocast_enabled as is_autocast_enabled, set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_cpu_dtype as set_autocast_cpu_dtype, set_autocast_cpu_enabled as set_autocast_cpu_enabled,
    set_autocast_dtype as set_autocast_dtype, set_autocast_enabled as set_autocast_enabled, set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from .amp.autocast_mode import autocast as autocast
from .amp.grad_scaler import GradScaler as GradScaler
from .autograd import (
    enable_grad as enable_grad, inference_mode as inference_mode, is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled, no_grad as no_grad, set_grad_enabled as set_grad_enabled,
)
from .func._vmap import vmap as vmap
from .futures import Future as Future
from .jit import ScriptModule as ScriptModule
from .serialization import load as load, save as save
from .storage import (
    TypedStorage as TypedStorage, UntypedStorage as UntypedStorage, BFloat16Storage as BFloat16Storage, BoolStorage as BoolStorage,
    ByteStorage as ByteStorage, CharStorage as CharStorage, ComplexDoubleStorage as ComplexDoubleStorage,
    ComplexFloatStorage as ComplexFloatStorage, DoubleStorage as DoubleStorage, FloatStorage as FloatStorage, HalfStorage as HalfStorage,
    IntStorage as IntStorage, LongStorage as LongStorage, ShortStorage as ShortStorage, from_file as from_file,
)

e: builtins.float
inf: builtins.float
nan: builtins.float
pi: builtins.float
newaxis: None
channels_last_3d: memory_format
legacy_contiguous_format: memory_format

# What stands for a type of PyTorch's old programs, or for a part that tapegrad does not have.
BFloat16Tensor: type[Tensor]
BoolTensor: type[Tensor]
ByteTensor: type[Tensor]
CharTensor: type[Tensor]
DoubleTensor: type[Tensor]
FloatTensor: type[Tensor]
HalfTensor: type[Tensor]
IntTensor: type[Tensor]
LongTensor: type[Tensor]
ShortTensor: type[Tensor]
ao: ModuleType
classes: ModuleType
compiler: ModuleType
export: ModuleType
functional: ModuleType
fx: ModuleType
mps: ModuleType
mtia: ModuleType
numa: ModuleType
onnx: ModuleType
package: ModuleType
quantization: ModuleType
xpu: ModuleType

_Device = device | str | builtins.int

def tensor(data: Any, *, dtype: dtype | None = None, device: _Device | None = None, requires_grad: builtins.bool = False,
           pin_memory: builtins.bool = False) -> Tensor:
    """A new tensor of numbers, nested lists of them or an array."""
def as_tensor(data: Any, dtype: dtype | None = None, device: _Device | None = None) -> Tensor: """The data as a tensor, over the same memory where that is possible."""
def asarray(obj: Any, *, dtype: dtype | None = None, device: _Device | None = None, copy: builtins.bool | None = None,
            requires_grad: builtins.bool = False) -> Tensor:
    """The object as a tensor, over the same memory unless copy says otherwise."""
def from_numpy(ndarray: Any) -> Tensor: """A tensor over the memory of a NumPy array."""
def from_dlpack(ext_tensor: Any, *, device: _Device | None = None, copy: builtins.bool | None = None) -> Tensor: """A tensor over the memory of another library's."""
def frombuffer(buffer: Any, *, dtype: dtype, count: builtins.int = -1, offset: builtins.int = 0, requires_grad: builtins.bool = False) -> Tensor:
    """A vector over the memory of an object with the buffer protocol."""
def can_cast(from_: dtype, to: dtype) -> builtins.bool: ...
def promote_types(type1: dtype, type2: dtype) -> dtype: ...
def result_type(tensor1: Tensor | _Number, tensor2: Tensor | _Number) -> dtype: ...
def is_tensor(obj: object) -> builtins.bool: ...
def is_complex(input: Tensor) -> builtins.bool: ...
def is_conj(input: Tensor) -> builtins.bool: ...
def is_neg(input: Tensor) -> builtins.bool: ...
def is_floating_point(input: Tensor) -> builtins.bool: ...
def is_signed(input: Tensor) -> builtins.bool: ...
def is_inference(input: Tensor) -> builtins.bool: ...
def is_distributed(input: Tensor) -> builtins.bool: ...
def is_nonzero(input: Tensor) -> builtins.bool: ...
def is_same_size(input: Tensor, other: Tensor) -> builtins.bool: ...
def numel(input: Tensor) -> builtins.int: """The number of elements."""
def get_device(input: Tensor) -> builtins.int: ...
def get_default_dtype() -> dtype: ...
def set_default_dtype(d: dtype) -> None: """The dtype of new tensors of real numbers."""
def get_default_device() -> device: ...
def set_default_device(device: _Device | None) -> None: """The device of new tensors."""
def get_num_threads() -> builtins.int: ...
def set_num_threads(num: builtins.int) -> None: ...
def manual_seed(seed: builtins.int) -> Generator: """Starts all generators anew from a seed."""
def seed() -> builtins.int: ...
def initial_seed() -> builtins.int: ...
def get_rng_state() -> Tensor: ...
def set_rng_state(new_state: Tensor) -> None: ...
def dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor: ...
def dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor: ...
def alpha_dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor: ...
def alpha_dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor: ...
def feature_alpha_dropout(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor: ...
def feature_alpha_dropout_(input: Tensor, p: builtins.float, train: builtins.bool) -> Tensor: ...
def detach(input: Tensor) -> Tensor: ...
def detach_(input: Tensor) -> Tensor: ...
def fill_(input: Tensor, value: Tensor | _Number) -> Tensor: ...
def resolve_conj(input: Tensor) -> Tensor: ...
def resolve_neg(input: Tensor) -> Tensor: ...
grid_sampler_2d: Callable[..., Tensor]
grid_sampler_3d: Callable[..., Tensor]

# Views, copied.
alias_copy: Callable[..., Tensor]
as_strided_copy: Callable[..., Tensor]
detach_copy: Callable[..., Tensor]
diagonal_copy: Callable[..., Tensor]
expand_copy: Callable[..., Tensor]
permute_copy: Callable[..., Tensor]
select_copy: Callable[..., Tensor]
split_copy: Callable[..., tuple[Tensor, ...]]
split_with_sizes_copy: Callable[..., tuple[Tensor, ...]]
squeeze_copy: Callable[..., Tensor]
t_copy: Callable[..., Tensor]
transpose_copy: Callable[..., Tensor]
unbind_copy: Callable[..., tuple[Tensor, ...]]
unfold_copy: Callable[..., Tensor]
unsqueeze_copy: Callable[..., Tensor]
view_as_complex_copy: Callable[..., Tensor]
view_as_real_copy: Callable[..., Tensor]
view_copy: Callable[..., Tensor]
