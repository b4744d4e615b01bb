"""Types of the root module, which is filled when it is imported: functions of the op table are in _stubs/root.pyi, the rest is named here."""

import builtins
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import (
    accelerator as accelerator,
)
from . import (
    amp as amp,
)
from . import (
    autograd as autograd,
)
from . import (
    backends as backends,
)
from . import (
    checkpoint as checkpoint,
)
from . import (
    compat as compat,
)
from . import (
    cpu as cpu,
)
from . import (
    cuda as cuda,
)
from . import (
    datasets as datasets,
)
from . import (
    distributed as distributed,
)
from . import (
    distributions as distributions,
)
from . import (
    fft as fft,
)
from . import (
    func as func,
)
from . import (
    futures as futures,
)
from . import (
    hub as hub,
)
from . import (
    jit as jit,
)
from . import (
    library as library,
)
from . import (
    linalg as linalg,
)
from . import (
    masked as masked,
)
from . import (
    multiprocessing as multiprocessing,
)
from . import (
    nn as nn,
)
from . import (
    ops as ops,
)
from . import (
    optim as optim,
)
from . import (
    overrides as overrides,
)
from . import (
    profiler as profiler,
)
from . import (
    quasirandom as quasirandom,
)
from . import (
    random as random,
)
from . import (
    serialization as serialization,
)
from . import (
    signal as signal,
)
from . import (
    sparse as sparse,
)
from . import (
    special as special,
)
from . import (
    storage as storage,
)
from . import (
    testing as testing,
)
from . import (
    torch_version as torch_version,
)
from . import (
    types as types,
)
from . import (
    utils as utils,
)
from . import (
    version as version,
)
from . import (
    vision as vision,
)
from ._C import (
    Generator as Generator,
)
from ._C import (
    OutOfMemoryError as OutOfMemoryError,
)
from ._C import (
    Size as Size,
)
from ._C import (
    Tensor as Tensor,
)
from ._C import (
    __version__ as __version__,
)
from ._C import (
    bfloat16 as bfloat16,
)
from ._C import (
    bool as bool,
)
from ._C import (
    cdouble as cdouble,
)
from ._C import (
    cfloat as cfloat,
)
from ._C import (
    chalf as chalf,
)
from ._C import (
    channels_last as channels_last,
)
from ._C import (
    complex32 as complex32,
)
from ._C import (
    complex64 as complex64,
)
from ._C import (
    complex128 as complex128,
)
from ._C import (
    contiguous_format as contiguous_format,
)
from ._C import (
    default_generator as default_generator,
)
from ._C import (
    device as device,
)
from ._C import (
    double as double,
)
from ._C import (
    dtype as dtype,
)
from ._C import (
    float as float,
)
from ._C import (
    float8_e4m3fn as float8_e4m3fn,
)
from ._C import (
    float8_e4m3fnuz as float8_e4m3fnuz,
)
from ._C import (
    float8_e5m2 as float8_e5m2,
)
from ._C import (
    float8_e5m2fnuz as float8_e5m2fnuz,
)
from ._C import (
    float8_e8m0fnu as float8_e8m0fnu,
)
from ._C import (
    float16 as float16,
)
from ._C import (
    float32 as float32,
)
from ._C import (
    float64 as float64,
)
from ._C import (
    half as half,
)
from ._C import (
    int as int,
)
from ._C import (
    int8 as int8,
)
from ._C import (
    int16 as int16,
)
from ._C import (
    int32 as int32,
)
from ._C import (
    int64 as int64,
)
from ._C import (
    layout as layout,
)
from ._C import (
    long as long,
)
from ._C import (
    memory_format as memory_format,
)
from ._C import (
    preserve_format as preserve_format,
)
from ._C import (
    short as short,
)
from ._C import (
    sparse_bsc as sparse_bsc,
)
from ._C import (
    sparse_bsr as sparse_bsr,
)
from ._C import (
    sparse_coo as sparse_coo,
)
from ._C import (
    sparse_csc as sparse_csc,
)
from ._C import (
    sparse_csr as sparse_csr,
)
from ._C import (
    strided as strided,
)
from ._C import (
    uint8 as uint8,
)
from ._C import (
    uint16 as uint16,
)
from ._C import (
    uint32 as uint32,
)
from ._C import (
    uint64 as uint64,
)
from ._root import (
    SymBool as SymBool,
)
from ._root import (
    SymFloat as SymFloat,
)
from ._root import (
    SymInt as SymInt,
)
from ._root import (
    batch_norm as batch_norm,
)
from ._root import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from ._root import (
    broadcast_shapes as broadcast_shapes,
)
from ._root import (
    conv_tbc as conv_tbc,
)
from ._root import (
    convolution as convolution,
)
from ._root import (
    cosine_embedding_loss as cosine_embedding_loss,
)
from ._root import (
    embedding as embedding,
)
from ._root import (
    feature_dropout as feature_dropout,
)
from ._root import (
    feature_dropout_ as feature_dropout_,
)
from ._root import (
    grid_sampler as grid_sampler,
)
from ._root import (
    hinge_embedding_loss as hinge_embedding_loss,
)
from ._root import (
    histogramdd as histogramdd,
)
from ._root import (
    instance_norm as instance_norm,
)
from ._root import (
    kl_div as kl_div,
)
from ._root import (
    margin_ranking_loss as margin_ranking_loss,
)
from ._root import (
    norm_except_dim as norm_except_dim,
)
from ._root import (
    poisson_nll_loss as poisson_nll_loss,
)
from ._root import (
    to_dlpack as to_dlpack,
)
from ._root import (
    triplet_margin_loss as triplet_margin_loss,
)
from ._root.deferred import (
    Event as Event,
)
from ._root.deferred import (
    PyTorchFileReader as PyTorchFileReader,
)
from ._root.deferred import (
    PyTorchFileWriter as PyTorchFileWriter,
)
from ._root.deferred import (
    Stream as Stream,
)
from ._root.deferred import (
    Tag as Tag,
)
from ._root.deferred import (
    cond as cond,
)
from ._root.deferred import (
    dsmm as dsmm,
)
from ._root.deferred import (
    get_device_module as get_device_module,
)
from ._root.deferred import (
    spmm as spmm,
)
from ._root.deferred import (
    sym_float as sym_float,
)
from ._root.deferred import (
    sym_int as sym_int,
)
from ._root.deferred import (
    sym_ite as sym_ite,
)
from ._root.deferred import (
    sym_max as sym_max,
)
from ._root.deferred import (
    sym_min as sym_min,
)
from ._root.deferred import (
    sym_not as sym_not,
)
from ._root.deferred import (
    sym_sum as sym_sum,
)
from ._root.deferred import (
    while_loop as while_loop,
)
from ._root.lowrank import lu as lu
from ._root.lowrank import pca_lowrank as pca_lowrank
from ._root.lowrank import svd_lowrank as svd_lowrank
from ._root.overloads import tensordot as tensordot
from ._root.segments import segment_reduce as segment_reduce
from ._root.segments import vander as vander
from ._root.settings import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
)
from ._root.settings import (
    compile as compile,
)
from ._root.settings import (
    get_deterministic_debug_mode as get_deterministic_debug_mode,
)
from ._root.settings import (
    get_float32_matmul_precision as get_float32_matmul_precision,
)
from ._root.settings import (
    get_num_interop_threads as get_num_interop_threads,
)
from ._root.settings import (
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
)
from ._root.settings import (
    is_storage as is_storage,
)
from ._root.settings import (
    is_warn_always_enabled as is_warn_always_enabled,
)
from ._root.settings import (
    set_default_tensor_type as set_default_tensor_type,
)
from ._root.settings import (
    set_deterministic_debug_mode as set_deterministic_debug_mode,
)
from ._root.settings import (
    set_float32_matmul_precision as set_float32_matmul_precision,
)
from ._root.settings import (
    set_flush_denormal as set_flush_denormal,
)
from ._root.settings import (
    set_num_interop_threads as set_num_interop_threads,
)
from ._root.settings import (
    set_warn_always as set_warn_always,
)
from ._root.settings import (
    typename as typename,
)
from ._root.settings import (
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from ._root.sparse import (
    sparse_compressed_tensor as sparse_compressed_tensor,
)
from ._root.sparse import (
    sparse_coo_tensor as sparse_coo_tensor,
)
from ._root.sparse import (
    sparse_csc_tensor as sparse_csc_tensor,
)
from ._root.sparse import (
    sparse_csr_tensor as sparse_csr_tensor,
)
from ._root.strict import strict as strict
from ._root.summary import summary as summary
from ._root.type_info import finfo as finfo
from ._root.type_info import iinfo as iinfo
from ._root.unique import unique as unique
from ._root.unique import unique_consecutive as unique_consecutive
from ._stubs import Number as _Number
from ._stubs import return_types as return_types
from ._stubs.root import *
from ._tensor.text import get_printoptions as get_printoptions
from ._tensor.text import printoptions as printoptions
from ._tensor.text import set_printoptions as set_printoptions
from .amp._state import (
    autocast_decrement_nesting as autocast_decrement_nesting,
)
from .amp._state import (
    autocast_increment_nesting as autocast_increment_nesting,
)
from .amp._state import (
    clear_autocast_cache as clear_autocast_cache,
)
from .amp._state import (
    get_autocast_cpu_dtype as get_autocast_cpu_dtype,
)
from .amp._state import (
    get_autocast_dtype as get_autocast_dtype,
)
from .amp._state import (
    get_autocast_gpu_dtype as get_autocast_gpu_dtype,
)
from .amp._state import (
    is_autocast_cache_enabled as is_autocast_cache_enabled,
)
from .amp._state import (
    is_autocast_cpu_enabled as is_autocast_cpu_enabled,
)
from .amp._state import (
    is_autocast_enabled as is_autocast_enabled,
)
from .amp._state import (
    set_autocast_cache_enabled as set_autocast_cache_enabled,
)
from .amp._state import (
    set_autocast_cpu_dtype as set_autocast_cpu_dtype,
)
from .amp._state import (
    set_autocast_cpu_enabled as set_autocast_cpu_enabled,
)
from .amp._state import (
    set_autocast_dtype as set_autocast_dtype,
)
from .amp._state import (
    set_autocast_enabled as set_autocast_enabled,
)
from .amp._state import (
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from .amp.autocast_mode import autocast as autocast
from .amp.grad_scaler import GradScaler as GradScaler
from .autograd import (
    enable_grad as enable_grad,
)
from .autograd import (
    inference_mode as inference_mode,
)
from .autograd import (
    is_grad_enabled as is_grad_enabled,
)
from .autograd import (
    is_inference_mode_enabled as is_inference_mode_enabled,
)
from .autograd import (
    no_grad as no_grad,
)
from .autograd import (
    set_grad_enabled as set_grad_enabled,
)
from .func._vmap import vmap as vmap
from .futures import Future as Future
from .jit import ScriptModule as ScriptModule
from .serialization import load as load
from .serialization import save as save
from .storage import (
    BFloat16Storage as BFloat16Storage,
)
from .storage import (
    BoolStorage as BoolStorage,
)
from .storage import (
    ByteStorage as ByteStorage,
)
from .storage import (
    CharStorage as CharStorage,
)
from .storage import (
    ComplexDoubleStorage as ComplexDoubleStorage,
)
from .storage import (
    ComplexFloatStorage as ComplexFloatStorage,
)
from .storage import (
    DoubleStorage as DoubleStorage,
)
from .storage import (
    FloatStorage as FloatStorage,
)
from .storage import (
    HalfStorage as HalfStorage,
)
from .storage import (
    IntStorage as IntStorage,
)
from .storage import (
    LongStorage as LongStorage,
)
from .storage import (
    ShortStorage as ShortStorage,
)
from .storage import (
    TypedStorage as TypedStorage,
)
from .storage import (
    UntypedStorage as UntypedStorage,
)
from .storage import (
    from_file as from_file,
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
