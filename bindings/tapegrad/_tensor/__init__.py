"""Methods of Tensor that are not hot: copies, pickling, printing, storages, types by name."""

import copy as _copy
import copyreg as _copyreg

from .. import _C
from .._hints import ABSENT_METHODS, mark_absent_methods
from .._warn import warn
from ..storage import _STORAGE_OF, TypedStorage, UntypedStorage, storage_of
from .text import tensor_str

Tensor = _C.Tensor
Parameter = _C.Parameter
_rebuild = _C._tensor_over


def _rebuild_tensor(storage, dtype, sizes, strides, offset, requires_grad):
    """A tensor over a storage, as pickle keeps it; over none, of the meta device."""
    tensor = _C._functions[""]["empty_strided"](sizes, strides, dtype=dtype, device="meta") if storage is None else \
        _rebuild(storage._bytes, dtype, sizes, strides, offset)
    if requires_grad:
        tensor.requires_grad_(True)
    return tensor


def _rebuild_subclass(cls, args, state):
    """An instance of a subclass with its attributes."""
    if cls is Parameter:
        result = Parameter(_rebuild_tensor(*args[:-1], False), args[-1])
    else:
        result = Tensor._make_subclass(cls, _rebuild_tensor(*args[:-1], False), args[-1])
    set_attributes(result, state)
    return result


def _slots_of(tensor) -> dict:
    """What a subclass keeps in its slots."""
    return {} if type(tensor) is Tensor else {name: getattr(tensor, name) for name in _copyreg._slotnames(type(tensor)) if hasattr(tensor, name)}


def attributes_of(tensor):
    """All attributes, and with them, where a subclass has any, what it keeps in its slots; None if there is nothing."""
    state = dict(getattr(tensor, "__dict__", None) or ())
    slots = _slots_of(tensor)
    return (state, slots) if slots else state or None


def set_attributes(tensor, state) -> None:
    """What attributes_of gave, of another tensor."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    if attributes:
        tensor.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(tensor, name, value)


def _storage_args(tensor):
    return (None if tensor.is_meta else storage_of(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(),
            tensor.requires_grad)


def _rebuild_sparse(indices, values, size, coalesced):
    return _C._sparse_make(indices, values, size, coalesced)


def _rebuild_compressed(layout, starts, others, values, size):
    return _C._sparse_compressed(layout, starts, others, values, size, False)


class DisableTorchFunctionSubclass:
    """A context in which `__torch_function__` of subclasses of Tensor is disabled; modes stay active."""

    _state = 1

    def __enter__(self) -> None:
        self._before = _C._get_override_state()
        _C._set_override_state(max(self._before, self._state))

    def __exit__(self, *error) -> None:
        _C._set_override_state(self._before)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A context in which `__torch_function__` is disabled."""

    _state = 2


_C.DisableTorchFunctionSubclass, _C.DisableTorchFunction = DisableTorchFunctionSubclass, DisableTorchFunction


def _asking(method):
    """A method written in Python that asks its tensor's type first."""

    def asking(self, *args, **kwargs):
        if _C._has_torch_function_unary(self):
            return _C._handle_torch_function(getattr(Tensor, method.__name__), (self,), self, *args, **kwargs)
        return method(self, *args, **kwargs)

    asking.__name__, asking.__doc__, asking.__wrapped__ = method.__name__, method.__doc__, method
    return asking


def __reduce_ex__(self, protocol):
    if self.is_sparse:
        return _rebuild_sparse, (self._indices(), self._values().detach(), tuple(self.shape), self.is_coalesced())
    if self._is_any_sparse:
        from .._root.sparse import compressed_parts

        return _rebuild_compressed, (*compressed_parts(self.detach()), tuple(self.shape))
    state, args = attributes_of(self), _storage_args(self)
    if type(self) is Tensor and not state:
        return _rebuild_tensor, args
    return _rebuild_subclass, (type(self), args, state)


def __deepcopy__(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    if self._is_any_sparse:
        memo[id(self)] = result = self.detach().clone()
        if self.is_leaf and self.requires_grad:
            result.requires_grad_(True)
        if self.is_leaf and self.grad is not None:
            result.grad = _copy.deepcopy(self.grad, memo)
        return result
    if not self.is_leaf:
        raise RuntimeError("deepcopy: only tensors that the user made (leaves) can be copied with their place on the tape: "
                           f"got the result of {self.grad_fn.name() if hasattr(self.grad_fn, 'name') else self.grad_fn}\n"
                           "use tensor.detach().clone()")
    if self.is_meta or "_wrapper_device" in (getattr(self, "__dict__", None) or ()):
        result = memo[id(self)] = _copy_without_memory(self)
        _copy_attributes(self, result, memo)
        return result
    args = _storage_args(self)
    storage = _copy.deepcopy(storage_of(self), memo)
    if type(self) is Tensor:
        result = _rebuild_tensor(storage, *args[1:])
    else:
        result = _rebuild_subclass(type(self), (storage, *args[1:]), None)
    memo[id(self)] = result
    if self.grad is not None:
        result.grad = _copy.deepcopy(self.grad, memo)
    _copy_attributes(self, result, memo)
    return result


def _copy_without_memory(self):
    """A meta tensor, or a wrapper, whose own clone() makes the copy."""
    plain = type(self) in (Tensor, Parameter)
    result = (self.detach() if plain else self).clone()
    if not plain and type(result) is not type(self):
        raise RuntimeError("The default implementation of __deepcopy__() for wrapper subclasses only works for subclass types that properly implement "
                           f"clone(), i.e. return an instance of their type: got {type(result).__name__} from {type(self).__name__}")
    return result.detach().requires_grad_(self.requires_grad) if result.requires_grad != self.requires_grad or not result.is_leaf else result


def _copy_attributes(self, result, memo) -> None:
    """What a subclass keeps in its slots, and all other attributes."""
    for name, value in (*_slots_of(self).items(), *(getattr(self, "__dict__", None) or {}).items()):
        setattr(result, name, _copy.deepcopy(value, memo))


def __repr__(self, *, tensor_contents=None):
    return tensor_str(self, tensor_contents)


def __format__(self, spec):
    if self.dim() == 0 and not self.is_meta and type(self) in (Tensor, Parameter):
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def _parameter_repr(self):
    return "Parameter containing:\n" + tensor_str(self)


def __contains__(self, element):
    if not isinstance(element, (Tensor, int, float, complex)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


def __complex__(self):
    if self.numel() != 1:
        raise ValueError(f"complex: only a tensor with one element can be converted: got shape {list(self.shape)}")
    if self.requires_grad:
        warn("Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior. Its gradient ends there: consider using tensor.detach() first, or .item().")
    return complex(self.item())


def __reversed__(self):
    """The tensor with its first dimension reversed."""
    return self.flip(0) if self.dim() else self


def __array_wrap__(self, array, context=None, return_scalar=False):
    if array.dtype == bool:
        array = array.astype("uint8")
    return _C._functions[""]["from_numpy"](array.copy() if not array.flags.writeable else array)


def __dir__(self):
    names = {*dir(type(self)), *(getattr(self, "__dict__", None) or ())} - ABSENT_METHODS.keys()
    return sorted(names if self.is_cuda else names - {"__cuda_array_interface__"})  # which raises AttributeError elsewhere


def _repr_html_(self):
    from .html import tensor_html

    return tensor_html(self)


def untyped_storage(self):
    """The bytes that this tensor looks into."""
    return storage_of(self)


def storage(self):
    """The elements that this tensor looks into, in the order of memory."""
    return TypedStorage(storage_of(self), self.dtype)


_TYPE_NAMES = {_C.float32: "Float", _C.float64: "Double", _C.float16: "Half", _C.bfloat16: "BFloat16", _C.uint8: "Byte",
               _C.int8: "Char", _C.int16: "Short", _C.int32: "Int", _C.int64: "Long", _C.bool: "Bool",
               _C.uint16: "UInt16", _C.uint32: "UInt32", _C.uint64: "UInt64",
               _C.complex64: "ComplexFloat", _C.complex128: "ComplexDouble", _C.complex32: "ComplexHalf",
               **{getattr(_C, f"float8_{kind}"): f"Float8_{kind}" for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")}}


_root_name = "tapegrad"  # "torch" while tapegrad.compat is installed


def type_(self, dtype=None, non_blocking=False):
    """Without arguments the name of the type ("tapegrad.FloatTensor"); else the tensor in that type."""
    if dtype is None:
        place = f"{_root_name}.cuda" if self.is_cuda else _root_name
        return f"{place}{'.sparse' if self.is_sparse else ''}.{_TYPE_NAMES[self.dtype]}Tensor"
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        found = [t for t, n in _TYPE_NAMES.items() if f"{n}Tensor" == name]
        if not found:
            raise ValueError(f"type: unknown type: {dtype!r}")
        return self.to("cuda" if ".cuda." in dtype else "cpu", found[0])
    if isinstance(dtype, type):  # an old class: of a GPU or of the CPU
        return self.to("cuda" if getattr(dtype, "is_cuda", False) else "cpu", dtype.dtype)
    return self.to(dtype)


def is_shared(self):
    """Whether the memory is shared with other processes. Always true on CUDA devices: nothing has to be done before sending."""
    return self.is_cuda or _C._shared_is(self)


def share_memory_(self):
    """Moves the data to memory that other processes can share; returns the tensor. Views of the same memory follow, but where
    it belongs to another library (NumPy, DLPack): then this tensor alone moves. On CUDA devices nothing happens before the tensor
    is sent."""
    return self if self.is_cuda else _to_shared_memory(self)


def _to_shared_memory(self):
    if not _C._shared_is(self):
        shared = _C._shared_share(self)
        if shared._storage_id() != self._storage_id():
            self.data = _rebuild(shared, self.dtype, tuple(self.shape), self.stride(), self.storage_offset())
    return self


def pin_memory(self, device=None):
    """The tensor in host memory that a GPU reads on its own, so that to("cuda", non_blocking=True) does not wait; itself where it
    is already, and without a GPU."""
    if self.device.type != "cpu":
        raise RuntimeError(f"pin_memory: only dense CPU tensors can be pinned: got one on {self.device}")
    if _C._cuda_device_count() == 0 or self.is_pinned():
        return self
    with _no_grad():
        memory = _C._cuda_pinned_empty(self.numel() * self.element_size())
        dense = self if self.is_contiguous() else self.contiguous()
        return _rebuild(memory, self.dtype, tuple(self.shape), dense.stride(), 0).copy_(dense)


def _cuda_array_interface(self):
    from ..cuda._array_interface import describe

    return describe(self)


def record_stream(self, stream) -> None:
    """Says that work on `stream` uses the tensor. Every operator says so itself; only foreign code on the tensor's address has
    a need to."""
    if self.is_cuda:
        _C._cuda_record_stream(self, stream.cuda_stream)


def apply_(self, callable):
    """Replaces each element by the function's value of it; slow, for the CPU only."""
    _check_elementwise("apply_", self)
    with _no_grad():
        values = [callable(x) for x in self.detach().reshape(-1).tolist()]
        return self.copy_(_C._functions[""]["tensor"](values, dtype=self.dtype).reshape(self.shape))


def map_(self, other, callable):
    """Replaces each element by the function's value of it and of the other tensor's; slow, for the CPU only."""
    return _map("map_", self, callable, other)


def map2_(self, x, y, callable):
    """map_ with two other tensors."""
    return _map("map2_", self, callable, x, y)


def _no_grad():
    from ..autograd import no_grad

    return no_grad()


def _check_elementwise(name, self, *others):
    if not self.is_cpu:
        raise TypeError(f"{name}: only tensors on the CPU: got one on {self.device}")
    if any(t.requires_grad for t in (self, *others)):
        raise RuntimeError(f"{name}: a Python function has no gradient, and a tensor requires grad\nuse detach() first")


def _map(name, self, callable, *others):
    _check_elementwise(name, self, *others)
    with _no_grad():
        lists = [t.detach().expand(self.shape).reshape(-1).tolist() for t in (self, *others)]
        values = [callable(*row) for row in zip(*lists)]
        return self.copy_(_C._functions[""]["tensor"](values, dtype=self.dtype).reshape(self.shape))


def _fix_weakref(self) -> None:
    """For programs of PyTorch, where a weak reference to a tensor can go stale; here none does."""


def is_nonzero(self):
    """Whether the one element is not zero."""
    return _C._functions[""]["is_nonzero"](self)


def is_distributed(self):
    """False."""
    return False


def dense_dim(self):
    """All dimensions are dense."""
    return self.dim()


def sparse_dim(self):
    """No dimension is sparse."""
    return 0


_set_to = Tensor.set_
_absent = object()


def set_(self, source=_absent, storage_offset=None, size=None, stride=None):
    """Makes the tensor see other memory; without arguments none.

    A tensor as `source` gives its memory with its sizes, strides and offset, a storage all of its memory in one dimension. With
    `storage_offset` and `size` (a tuple) the elements of such sizes from there on are seen, a tensor's offset added; without `stride`
    they lie one after another. A storage that is too short grows. The tensor keeps its dtype: a tensor as a whole, or a storage
    with elements, must have the same. Raises RuntimeError for a tensor that requires grad, but under no_grad.
    """
    part = storage_offset is not None
    if part != (size is not None) or (stride is not None and not part) or (source is _absent and part):
        raise TypeError("set_: expected nothing, a source, or a source, storage_offset, size and, if need be, stride")
    for name, value in (("size", size), ("stride", stride)):
        if value is not None and not isinstance(value, (tuple, list)):
            raise TypeError(f"set_: {name} must be a tuple of ints: got {type(value).__name__}")
    if source is _absent:
        return _set_to(self, _C._functions[""]["empty"](0, dtype=self.dtype, device=self.device))
    if isinstance(source, Tensor):
        if not part:
            return _set_to(self, source)
        if _C._vmap_level(source):
            raise RuntimeError("set_: vmap: a tensor that is mapped over cannot get other memory")
        storage, storage_offset = storage_of(source), storage_offset + source.storage_offset()
    elif isinstance(source, (UntypedStorage, TypedStorage)):
        if isinstance(source, TypedStorage) and source.dtype != self.dtype:
            raise RuntimeError(f"set_: Expected a Storage of type {self.dtype}: got {source.dtype}")
        storage = source.untyped()
        if not part:
            storage_offset, size = 0, (storage.nbytes() // self.dtype.itemsize,)
    else:
        raise TypeError(f"set_: source must be a tensor or a storage: got {type(source).__name__}")
    return _C._set_over(self, storage._bytes, size, stride, storage_offset)


def new(self, *args, size=None, device=None):
    """A tensor of this one's dtype and device, by sizes, from data or over a storage, as old programs make one."""
    if device is not None and _C.device(device).type != self.device.type:
        raise RuntimeError(f"new: legacy constructor expects device type: {self.device.type} but device type: {_C.device(device).type} was passed")
    return legacy_tensor("new", self.dtype, args, size).to(self.device if device is None else device)


def legacy_tensor(name, dtype, args, size):
    """What new and the old classes make of their arguments."""
    if size is not None:
        if args:
            raise TypeError(f"{name}(): size is given twice: as an argument and by name")
        args = (_C.Size(size),)
    if len(args) == 1 and isinstance(args[0], TypedStorage):
        if args[0].dtype != dtype:
            raise (RuntimeError if name == "new" else TypeError)(f"{name}: expected a storage of dtype {dtype}: got {args[0].dtype}")
        return args[0]._tensor()
    return _C._functions[""]["_legacy_tensor"](dtype, name, args)


def storage_type(self):
    """The class of its storage: FloatStorage of float32."""
    return _STORAGE_OF[self.dtype]


def _is_view(self):
    """Whether the tensor is a view of another for the tape."""
    return self._base is not None


def _backward_hooks(self):
    """The hooks that register_hook has put on, by number, or None."""
    from collections import OrderedDict

    return OrderedDict(self._hooks()) or None


def module_load(self, other, assign=False):
    """What a parameter becomes when a state is loaded: itself with other's values, or other with assign."""
    return other.detach() if assign else self.copy_(other).detach()


def dim_order(self, *, ambiguity_check=False):
    """The dimensions from the slowest to the fastest. With ambiguity_check, True or a list of memory formats, a RuntimeError where
    sizes of 1 or equal strides allow several orders, unless the tensor has exactly one of the formats."""
    if not isinstance(ambiguity_check, bool) and not (isinstance(ambiguity_check, list) and all(isinstance(f, _C.memory_format) for f in ambiguity_check)):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    if self._is_any_sparse:
        raise AttributeError(f"dim_order: a tensor of layout {self.layout} has no order of dimensions")
    strides = self.stride()
    if ambiguity_check is not False and (1 in self.shape or len(set(strides)) < len(strides)):
        if ambiguity_check is True or sum(self.is_contiguous(memory_format=f) for f in ambiguity_check) != 1:
            raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    return tuple(sorted(range(self.dim()), key=lambda d: (-self.stride(d), d)))


def resize(self, *sizes):
    """Another shape with as many elements, by PyTorch's old name for it: use reshape."""
    warn("non-inplace resize is deprecated")
    return _resize(self, sizes)


def _resize(self, sizes):
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    count = 1
    for size in sizes:
        count *= size
    if count != self.numel():
        raise RuntimeError(f"requested resize to {'x'.join(map(str, sizes))} ({count} elements in total), but the given tensor has a size of "
                           f"{'x'.join(map(str, self.shape))} ({self.numel()} elements). autograd's resize can only change the shape of a "
                           "given tensor, while preserving the number of elements. ")
    return self.contiguous().view(sizes)


def resize_as(self, tensor):
    """resize to the shape of another tensor."""
    warn("non-inplace resize_as is deprecated")
    return _resize(self, tensor.shape)


def to_sparse_coo(self):
    """The tensor as coordinates and values."""
    return self.to_sparse()


def xpu(self, device=None, non_blocking=False, memory_format=None):
    """Refused: Intel's GPUs are not supported."""
    raise RuntimeError("xpu: Intel's GPUs are not supported\nuse device='cpu', or ask tapegrad.xpu.is_available() first")


def _removed(name: str):
    def method(self, *args, **kwargs):
        from .._root import deferred

        return getattr(deferred, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = "Removed, as in PyTorch; the error says what to use."
    return method


def _subclassed(cls, **kwargs):
    super(Tensor, cls).__init_subclass__(**kwargs)
    if "__torch_dispatch__" in cls.__dict__:
        from ..utils._python_dispatch import adopt

        adopt(cls)


def _torch_dispatch(cls, func, types, args=(), kwargs=None):
    """The operator runs as for any tensor."""
    from ..utils._python_dispatch import disabled_dispatch

    return disabled_dispatch(cls, func, types, args, kwargs)


def _make_wrapper_subclass(cls, size, *args, **kwargs):
    """A tensor of a shape and a dtype without memory (utils._python_dispatch.make_wrapper_subclass)."""
    from ..utils._python_dispatch import make_wrapper_subclass

    return make_wrapper_subclass(cls, size, *args, **kwargs)


def _install():
    methods = [resize, resize_as, to_sparse_coo, xpu, *map(_removed, ("eig", "lstsq", "solve", "symeig")), __reduce_ex__, __deepcopy__, __repr__, __format__, __complex__, __contains__, __reversed__, __array_wrap__, __dir__, _repr_html_,
               untyped_storage, storage, is_shared, share_memory_, pin_memory, dim_order, set_, apply_, map_, map2_, is_nonzero, _fix_weakref,
               is_distributed, new, record_stream, storage_type, dense_dim, sparse_dim, module_load, _is_view]
    silent = {"__array_wrap__", "__dir__", "_repr_html_", "is_distributed", "eig", "lstsq", "solve", "symeig"}
    for method in methods:
        if method.__name__ not in silent:
            method = _asking(method)
        method.__qualname__ = f"Tensor.{method.__name__}"
        setattr(Tensor, method.__name__, method)
    type_.__name__, type_.__qualname__ = "type", "Tensor.type"
    Tensor.type = _asking(type_)
    Tensor.__array_priority__ = 1000
    Tensor._backward_hooks = property(_backward_hooks, doc=_backward_hooks.__doc__)
    Tensor.__init_subclass__ = classmethod(_subclassed)
    Tensor.__torch_dispatch__ = classmethod(_torch_dispatch)
    Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
    Tensor.__cuda_array_interface__ = property(_cuda_array_interface, doc="Where the elements of a tensor on a CUDA device lie, for other libraries.")
    # Python 2's names, which old scripts and PyTorch still spell.
    Tensor.__div__, Tensor.__rdiv__, Tensor.__idiv__ = Tensor.__truediv__, Tensor.__rtruediv__, Tensor.__itruediv__
    Tensor.__nonzero__, Tensor.__long__ = Tensor.__bool__, Tensor.__int__
    Tensor.const_data_ptr = Tensor.data_ptr
    Parameter.__repr__ = _parameter_repr
    mark_absent_methods(Tensor)


_install()
