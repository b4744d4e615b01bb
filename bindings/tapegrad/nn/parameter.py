"""Parameter and Buffer: tensors that a Module registers when they are assigned to one of its attributes."""

from .. import _C, Tensor, empty
from .._tensor import attributes_of, set_attributes

Parameter = _C.Parameter  # the type is native, so that operators recognise it at once; its cold methods are these


def _repr(self) -> str:
    return "Parameter containing:\n" + Tensor.__repr__(self)


def _deepcopy(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    copy = type(self)(self.data.clone(), self.requires_grad)
    memo[id(self)] = copy
    return copy


def _reduce_ex(self, protocol):
    state = attributes_of(self)
    return _rebuild, (type(self), self.data, self.requires_grad, *([state] if state else []))


Parameter.__repr__ = _repr
Parameter.__deepcopy__ = _deepcopy
Parameter.__reduce_ex__ = _reduce_ex


class Buffer(Tensor):
    """A tensor that is not trained. Assigned to an attribute of a Module it joins the module's buffers."""

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data=None, *, persistent: bool = True):
        if data is None:
            data = empty(0)
        buffer = Tensor._make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        copy = Buffer(self.data.clone(), persistent=self.persistent)
        memo[id(self)] = copy
        return copy


def _rebuild(cls, data, requires_grad, state=None):
    # A subclass's own constructor may take other arguments, and is not run, as for any object that is unpickled.
    parameter = Parameter(data, requires_grad) if cls is Parameter else Tensor._make_subclass(cls, data, requires_grad)
    set_attributes(parameter, state)
    return parameter


class _Uninitialized:
    """What tensors without a shape share: materialize gives them one."""

    cls_to_become: type = Tensor
    _allowed = tuple(getattr(Tensor, name) for name in ("__hash__", "size", "copy_", "is_complex", "is_floating_point", "half", "float", "double", "char", "short",
                                                        "int", "long", "cuda", "cpu", "to", "get_device", "requires_grad_"))  # fmt: skip

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls._allowed or type(func).__name__ == "method-wrapper":  # the latter: attributes
            return super().__torch_function__(func, types, args, kwargs or {})
        raise ValueError(f"Attempted to use an uninitialized parameter in {func}. It has no shape before its module's first forward(): call that with an "
                         "example, or materialize() it")

    def materialize(self, shape, device=None, dtype=None) -> None:
        """Makes this tensor an ordinary one of the given shape, with values that are still to be set."""
        self.data = empty(shape, device=self.data.device if device is None else device,
                          dtype=self.data.dtype if dtype is None else dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
                           "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
                           "to initialize the parameters before accessing their attributes.")

    def share_memory_(self):
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
                           "before calling `module.share_memory()`.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad,)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter that gets its shape later, from materialize."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device=None, dtype=None):
        return Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, *args, **kwargs) -> None:
        pass


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer that gets its shape later, from materialize."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device=None, dtype=None, persistent: bool = True):
        buffer = Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype), requires_grad)
        buffer.persistent = persistent
        return buffer

    def __init__(self, *args, **kwargs) -> None:
        pass


def is_lazy(param) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, _Uninitialized)


UninitializedTensorMixin = _Uninitialized
