"""Names of PyTorch's private native module that scripts call: switches of compilers, which change nothing here."""

import weakref

from .. import _C, _hints, _root
from .._root import settings
from . import native_modules, places
from .kinds import borrowed, classes

_SWITCHES = ("_jit_set_", "_jit_override_", "_jit_pass_", "_set_graph_executor_optimize", "_log_api_usage", "_debug_set_", "_set_cublas_", "_set_cudnn_",
             "_set_mkldnn_")


class _WeakTensorRef:
    """A tensor that is not kept alive."""

    def __init__(self, tensor) -> None:
        self._tensor = weakref.ref(tensor)

    def expired(self) -> bool:
        return self._tensor() is None


class _TensorBaseType(type):
    """The type of TensorBase: it has no objects and no subclasses of its own, and every tensor is one of it."""

    def __new__(mcls, name, bases, namespace):
        if bases:
            raise RuntimeError(f"Cannot subclass {bases[0].__name__} directly: derive from Tensor")
        return super().__new__(mcls, name, bases, namespace)

    def __call__(cls, *args, **kwargs):
        raise RuntimeError(f"Cannot construct a {cls.__name__} directly: use Tensor")

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, _C.Tensor)

    def __subclasscheck__(cls, subclass) -> bool:
        return subclass is cls or issubclass(subclass, _C.Tensor)


class TensorBase(metaclass=_TensorBaseType):
    """What PyTorch's Tensor is derived from: `isinstance(x, torch._C.TensorBase)`."""


_VALUES = {"TensorBase": TensorBase, "_jit_can_fuse_on_cpu": lambda *a: False, "_jit_can_fuse_on_gpu": lambda *a: False, "_get_tracing_state": lambda *a: None,
           "_get_privateuse1_backend_name": lambda *a: "privateuseone", "_cuda_getDeviceCount": lambda *a: 0, "_cuda_isInBadFork": False, "_has_mps": False,
           "_is_mps_available": lambda *a: False, "has_cuda": False, "has_mkl": False, "has_lapack": True, "_infer_size": lambda a, b: _root.broadcast_shapes(a, b), "has_openmp": True, "has_mkldnn": _C._functions[""]["_has_onednn"](),
           "_set_deterministic_algorithms": settings.use_deterministic_algorithms,
           "_get_deterministic_fill_uninitialized_memory": lambda: settings._deterministic["fill"],
           "_set_deterministic_fill_uninitialized_memory": lambda fill: settings._set_deterministic(fill=fill),
           "_GLIBCXX_USE_CXX11_ABI": True, "_WeakTensorRef": _WeakTensorRef, "_are_functorch_transforms_active": lambda: _C._vmap_depth() > 0,
           "_is_torch_function_mode_enabled": lambda: bool(_C._function_modes()), "_len_torch_function_stack": lambda: len(_C._function_modes()),
           "_is_alias_of": lambda a, b: a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr(),
           "_current_graph_task_id": lambda: _C._autograd._current_graph_task_id(), "_current_autograd_node": lambda: _C._autograd.current_node()}

# What editors import from here instead of the public name, and types of TorchScript, which some libraries name by such an import alone.
ROWS = {
    **borrowed("", "StorageBase=UntypedStorage AcceleratorError Event Stream Tag finfo iinfo get_default_dtype get_num_interop_threads get_num_threads qscheme set_num_interop_threads "
                   "set_num_threads"),
    **borrowed("futures", "Future"), **borrowed("jit", "CompilationUnit JITException=Error ScriptFunction ScriptModule"),
    **classes("AliasDb AnyType Argument AwaitType Block BoolType BufferDict CallStack ClassType Code ComplexType ConcreteModuleType DeviceObjType DictType "
              "EnumType ErrorReport FatalError FileCheck FloatType FunctionSchema FutureType Gradient Graph GraphExecutorState InferredType IntType "
              "InterfaceType ListType ModuleDict Node NoneType NumberType OperatorInfo OptionalType ParameterDict PyObjectType RRefType ScriptClass ScriptDict "
              "ScriptList ScriptMethod ScriptObject StreamObjType StringType SymBoolType SymIntType TensorType TracingState TupleType Type UnionType Use Value",
              _hints.NO_GRAPHS)}


class Functions(dict):
    """The functions of each module, which the native module has by this name; as attributes the nodes that `torch._C._functions` has."""

    @property
    def AccumulateGrad(self):
        """The type of the nodes that end at leaves."""
        from .. import zeros

        leaf = zeros(1, requires_grad=True)
        return type(leaf.view_as(leaf).grad_fn.next_functions[0][0])

    @property
    def UndefinedGrad(self):
        """`UndefinedGrad()(tensor)` passes a tensor through; its gradient is absent."""
        from ..autograd.function import UndefinedGrad

        return lambda: UndefinedGrad.apply

    @property
    def DelayedError(self):
        """`DelayedError(message, count)(*tensors)` passes tensors through; their gradients are a RuntimeError."""
        return _delayed_error


def _delayed_error(message: str, count: int):
    from ..autograd import Function

    class DelayedError(Function):
        @staticmethod
        def forward(ctx, *tensors):
            return tuple(t.detach() for t in tensors) if count > 1 else tensors[0].detach()

        @staticmethod
        def backward(ctx, *grads):
            raise RuntimeError(message)

    return DelayedError.apply


_delayed_error._stands_for_node = True  # `torch._C._functions.DelayedError` is a type of nodes there


def _nothing(*args, **kwargs) -> None:
    """Accepted; changes nothing."""


def _computed(attribute: str):
    """Names that need another module."""
    if attribute == "_LinAlgError":
        from .. import linalg

        return linalg.LinAlgError
    if attribute == "_set_fwd_grad_enabled":
        from ..autograd.forward_ad import _set_fwd_grad_enabled

        return _set_fwd_grad_enabled
    if attribute in ("is_grad_enabled", "is_inference_mode_enabled"):
        return getattr(_C._autograd, attribute)
    if attribute == "_TensorMeta":
        return type(_C.Tensor)
    if attribute == "_get_default_device":
        from .. import get_default_device

        return lambda: str(get_default_device())
    return native_modules.get(attribute)


def name(attribute: str):
    """What `torch._C` has under a name that the native module has not."""
    if attribute in _VALUES:
        return _VALUES[attribute]
    if attribute.startswith(_SWITCHES):
        return _nothing
    found = _computed(attribute)
    if found is not None:
        return found
    if attribute in ROWS:
        return places.renamed(_VALUES.setdefault(attribute, ROWS[attribute].make(_C.__name__)))
    raise AttributeError(f"module 'torch._C' has no attribute '{attribute}'\ntorch._C is tapegrad._C here, the native part of another "
                         "library: what programs of PyTorch call in theirs is not in it", name=attribute)
