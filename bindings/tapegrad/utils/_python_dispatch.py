"""TorchDispatchMode, and `__torch_dispatch__` of subclasses of Tensor: Python functions that are given operators by PyTorch's names.

A class or a mode with `__torch_dispatch__(func, types, args=(), kwargs=None)` is called with `func` an operator as `ops.aten` has them
(`aten.mm.default`, `aten.add.Tensor`), which it may call with arguments of its own making. What is made of others is seen as its parts:
`linear` as `t` and `addmm`, `matmul` as products of matrices, `x[0, 1:]` as `select` and `slice`.

In PyTorch this happens below the tape, here above it: operators are seen where the program calls them. So their tensors belong to the tape,
the operators of a backward pass are not seen, and gradients do not reach a tensor without memory of its own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types as _types

from .. import _C, ops, overrides
from ._pytree import tree_flatten

Tensor = _C.Tensor
__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "is_traceable_wrapper_subclass", "return_and_correct_aliasing", "transform_subclass"]

# --- which operator a call is ---

_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pow": "pow", "and": "bitwise_and",
           "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "__lshift__", "rshift": "__rshift__", "matmul": "matmul"}
_METHODS = {f"__{python}__": name for python, name in _BINARY.items()} | {f"__i{python}__": f"{name}_" for python, name in _BINARY.items()}
_METHODS |= {f"__{name}__": name for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs")} | {
    "__invert__": "bitwise_not", "item": "_local_scalar_dense", "__bool__": "_local_scalar_dense", "__int__": "_local_scalar_dense",
    "__float__": "_local_scalar_dense", "__index__": "_local_scalar_dense"}
_REFLECTED = {"__radd__": "add", "__rmul__": "mul", "__rsub__": "rsub", "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor"}
_OF_VALUES = {"__bool__": bool, "__int__": int, "__float__": float, "__index__": int}
# Methods that describe a tensor, or belong to Python and the tape: never dispatched.
_QUESTIONS = frozenset("size stride dim ndimension numel nelement storage_offset data_ptr element_size is_contiguous is_floating_point is_complex is_signed "
                       "is_inference is_conj is_neg is_set_to is_same_size get_device is_pinned backward requires_grad_ retain_grad register_hook "
                       "register_post_accumulate_grad_hook has_names is_shared storage untyped_storage dim_order type __len__ __repr__ __format__ "
                       "__deepcopy__ __reduce_ex__ __hash__ tolist numpy as_subclass is_nonzero".split())
_OF_TWO = frozenset("add sub mul div remainder fmod bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge".split())
_ALWAYS_TENSOR = frozenset(("add", "sub", "mul", "div"))  # PyTorch makes a tensor of the number
_OVERLOADS = {"transpose": "int", "select": "int", "slice": "Tensor", "index": "Tensor", "split": "Tensor", "where": "self", "empty": "memory_format",
              "rsub": "Scalar", "_softmax": "default", "sort": "default", "argsort": "default"}
_BY_DIM = {"sum": "dim_IntList", "mean": "dim", "max": "dim", "min": "dim", "squeeze": "dim", "prod": "dim_int", "any": "dim", "all": "dim",
           "median": "dim", "std": "correction", "var": "correction", "logsumexp": "default", "norm": "ScalarOpt_dim"}


def _overload(name: str, args, kwargs) -> str:
    """PyTorch's name for the form of an operator that such arguments call, of the common ones."""
    base = name.removesuffix("_")
    if base in _OVERLOADS:
        return _OVERLOADS[base]
    if base in _BY_DIM:
        named = len(args) > 1 or "dim" in kwargs
        return _BY_DIM[base] if named or base in ("std", "var") else "default"
    number = len(args) > 1 and not isinstance(args[1], Tensor)
    if base == "pow":
        return "Tensor_Scalar" if number else "Tensor_Tensor" if isinstance(args[0], Tensor) else "Scalar"
    if base == "masked_fill":
        return "Scalar" if len(args) > 2 and not isinstance(args[2], Tensor) else "Tensor"
    if base in _OF_TWO:
        return "Tensor" if base in _ALWAYS_TENSOR or not number else "Scalar"
    return "default"


@functools.cache
def _rows() -> frozenset:
    """Names of the operators that are not written in Python."""
    names = {name for table in _C._functions.values() for name in table}
    return frozenset(names | {name for name, value in vars(Tensor).items() if isinstance(value, _types.MethodDescriptorType)}) - _QUESTIONS


@functools.cache
def _hidden_rows() -> dict:
    """{function: name} of rows that a Python function stands before."""
    return {f: f"{module}.{name}".strip(".") for module, table in _C._functions.items() for name, f in table.items()}


def _name_of(func) -> str | None:
    """aten's name for a function of tapegrad; None if it is not an operator of its own."""
    full = overrides._tables()[2].get(func) or _hidden_rows().get(func)
    if full is None and isinstance(func, _types.MethodDescriptorType):  # one that a Python function stands before
        full = f"Tensor.{func.__name__}"
    if full is None:
        return None
    space, _, name = full.rpartition(".")
    if name in _QUESTIONS or not isinstance(func, (_types.BuiltinFunctionType, _types.MethodDescriptorType, _types.WrapperDescriptorType)):
        return None
    if space == "Tensor":
        return _METHODS.get(name) or (name if name in _rows() and not name.startswith("__") else None)
    prefix = {"linalg": "linalg_", "special": "special_", "fft": ""}.get(space, "")
    return f"{prefix}{name}" if name in _rows() else None


# --- operators that are made of others ---


def _linear(x, weight, bias=None):
    aten = ops.aten
    rows = x if x.dim() == 2 else aten.view.default(x, [-1, x.size(-1)])
    across = aten.t.default(weight)
    out = aten.mm.default(rows, across) if bias is None else aten.addmm.default(bias, rows, across)
    return out if x.dim() == 2 else aten.view.default(out, [*x.shape[:-1], weight.size(0)])


def _matmul(a, b):
    aten = ops.aten
    if a.dim() == 1 and b.dim() == 1:
        return aten.dot.default(a, b)
    if a.dim() == 2 and b.dim() == 1:
        return aten.mv.default(a, b)
    if a.dim() == 1:
        return aten.squeeze_.dim(_matmul(aten.unsqueeze.default(a, 0), b), -2)
    if b.dim() == 1:
        return aten.squeeze_.dim(_matmul(a, aten.unsqueeze.default(b, 1)), -1)
    if a.dim() == 2 and b.dim() == 2:
        return aten.mm.default(a, b)
    if b.dim() == 2:
        return aten._unsafe_view.default(aten.mm.default(aten.reshape(a, [-1, a.size(-1)]), b), [*a.shape[:-1], b.size(1)])
    from .. import broadcast_shapes

    batch = list(broadcast_shapes(a.shape[:-2], b.shape[:-2]))

    def stacked(x):
        return aten.reshape(aten.expand.default(x, [*batch, *x.shape[-2:]]), [-1, *x.shape[-2:]])

    return aten._unsafe_view.default(aten.bmm.default(stacked(a), stacked(b)), [*batch, a.size(-2), b.size(-1)])


def _convolution(dims: int):
    def several(value) -> list:
        return [value] * dims if isinstance(value, int) else list(value)

    def conv(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        if isinstance(padding, str):
            return NotImplemented
        single = x.dim() == dims + 1
        out = ops.aten.convolution.default(ops.aten.unsqueeze.default(x, 0) if single else x, weight, bias, several(stride), several(padding),
                                           several(dilation), False, [0] * dims, groups)
        return ops.aten.squeeze.dim(out, 0) if single else out

    return conv


def _parts_of_index(x, index):
    """x[index] as views, one dimension after the other; what has tensors in it last, as one operator."""
    aten, index = ops.aten, index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, (list, bool)) for i in index):
        return NotImplemented
    used = sum(i.dim() if isinstance(i, Tensor) and i.dtype == _C.bool else 1 for i in index if i is not None and i is not Ellipsis)
    dim, places = 0, []
    for i in index:
        if i is Ellipsis:
            dim = x.dim() - used
            continue
        if i is None:
            x, dim = aten.unsqueeze.default(x, dim), dim + 1
            continue
        used -= i.dim() if isinstance(i, Tensor) and i.dtype == _C.bool else 1
        if isinstance(i, Tensor):
            places.append((dim, i))
            dim += i.dim() if i.dtype == _C.bool else 1
        elif isinstance(i, slice):
            if i != slice(None):
                start, stop, step = i.indices(x.size(dim))
                x = aten.slice.Tensor(x, dim, start, stop, step)
            dim += 1
        else:
            x = aten.select.int(x, dim, i.__index__())
    if not places:
        return aten.alias.default(x) if index in ((), (Ellipsis,)) else x
    listed: list = []
    for at, i in places:
        listed += [None] * (at - sum(p.dim() if p is not None and p.dtype == _C.bool else 1 for p in listed)) + [i]
    return aten.index.Tensor(x, listed)


def _setitem(x, index, value):
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, (Tensor, list, bool)) for i in parts):
        return NotImplemented
    view = _parts_of_index(x, index)
    (ops.aten.copy_ if isinstance(value, Tensor) else ops.aten.fill_).default(view, value)
    return None


def _to(x, *args, **kwargs):
    kwargs = dict(kwargs)
    for a in args:
        if isinstance(a, Tensor):
            kwargs |= {"dtype": a.dtype, "device": a.device}
        elif isinstance(a, _C.dtype):
            kwargs["dtype"] = a
        elif isinstance(a, (str, _C.device)):
            kwargs["device"] = a
        else:
            return NotImplemented
    if kwargs.pop("non_blocking", None) or kwargs.get("memory_format") is not None:
        return NotImplemented
    copy = kwargs.pop("copy", False)
    from .. import device

    same = kwargs.get("dtype") in (None, x.dtype) and ("device" not in kwargs or device(kwargs["device"]).type == x.device.type)
    return x if same and not copy else ops.aten._to_copy.default(x, **{k: v for k, v in kwargs.items() if v is not None})


def _decompositions() -> dict:
    """{function of tapegrad: how it is composed of others}."""
    from .. import nn

    f, root = nn.functional, _root()
    aten = ops.aten
    found = {f.linear: _linear, root.matmul: _matmul, Tensor.matmul: _matmul, Tensor.__matmul__: _matmul,
             Tensor.__rmatmul__: lambda a, b: _matmul(b, a), f.conv1d: _convolution(1), f.conv2d: _convolution(2), f.conv3d: _convolution(3),
             root.conv1d: _convolution(1), root.conv2d: _convolution(2), root.conv3d: _convolution(3),
             Tensor.__getitem__: _parts_of_index, Tensor.__setitem__: _setitem, Tensor.to: _to,
             Tensor.T.__get__: lambda x: aten.permute.default(x, list(range(x.dim()))[::-1]),
             Tensor.mT.__get__: lambda x: aten.transpose.int(x, -2, -1), Tensor.data.__get__: lambda x: aten.detach.default(x),
             Tensor.__rtruediv__: lambda x, y: aten.mul.Tensor(aten.reciprocal.default(x), y),
             Tensor.__rpow__: lambda x, y: aten.pow.Scalar(y, x)}
    for name, dtype in (("float", _C.float32), ("double", _C.float64), ("half", _C.float16), ("long", _C.int64), ("int", _C.int32), ("bool", _C.bool)):
        found[getattr(Tensor, name)] = functools.partial(lambda x, dtype: _to(x, dtype), dtype=dtype)
    for python, name in _REFLECTED.items():
        found[getattr(Tensor, python)] = functools.partial(lambda x, y, name: getattr(getattr(aten, name), _overload(name, (x, y), {}))(x, y), name=name)

    def reshaped(x, *shape):
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return aten.view.default(x if x.is_contiguous() else aten.clone.default(x), list(shape))

    def flat(x, start_dim=0, end_dim=-1):
        first, last = start_dim % max(x.dim(), 1), end_dim % max(x.dim(), 1)
        return reshaped(x, (*x.shape[:first], -1, *x.shape[last + 1:])) if x.dim() else reshaped(x, (1,))

    return {**found, Tensor.reshape: reshaped, root.reshape: reshaped, Tensor.flatten: flat, root.flatten: flat,
            Tensor.view: lambda x, *size: NotImplemented if not size or not isinstance(size[0], int) else aten.view.default(x, list(size))}


def _root():
    import sys

    return sys.modules[__package__.rpartition(".")[0]]


_made_of: dict = {}


def _dispatch(hook, again, func, types, args, kwargs):
    """Hands a call to `hook(op, types, args, kwargs)`, or its parts to whom `again()` puts on."""
    kwargs = kwargs or {}
    if isinstance(func, ops.Overload):
        return hook(func, types, args, kwargs)
    if not _made_of:
        _made_of.update(_decompositions())
    made_of = _made_of.get(func)
    if made_of is not None:
        with again():
            result = made_of(*args, **kwargs)
        if result is not NotImplemented:
            return result
    name = _name_of(func)
    if name is None:
        if isinstance(func, _types.FunctionType):
            with again():
                return _C._call_unasked(func, tuple(args), kwargs)
        with _C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    op = getattr(getattr(ops.aten, name), _overload(name, args, kwargs))
    result = hook(op, types, tuple(args), kwargs)
    cast = _OF_VALUES.get(getattr(func, "__name__", None))
    return cast(result) if cast and isinstance(func, _types.WrapperDescriptorType) else result


# --- modes ---


class _Asking(overrides.TorchFunctionMode):
    """What is on the stack of modes while a TorchDispatchMode is on."""

    def __init__(self, mode: TorchDispatchMode):
        self.mode = mode

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return _dispatch(self.mode.__torch_dispatch__, lambda: self, func, types, args, kwargs)


class TorchDispatchMode:
    """Is given every operator that its thread calls within `with mode:`.

    Subclasses define `__torch_dispatch__(self, func, types, args=(), kwargs=None)`, mostly with `return func(*args, **(kwargs or {}))` in it, which
    reaches the mode below it, or the operator; while it runs the mode is off. Operators of a backward pass are not seen (utils.flop_counter
    counts those, too).
    """

    def __init__(self, _dispatch_key=None) -> None:
        if _dispatch_key is not None:
            raise NotImplementedError("TorchDispatchMode: there are no dispatch keys here\nleave _dispatch_key out")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__}: a TorchDispatchMode needs a __torch_dispatch__")

    def __enter__(self):
        _C._push_function_mode(_Asking(self))
        return self

    def __exit__(self, exc_type, exc_val, exc_tb) -> None:
        _C._pop_function_mode()

    @classmethod
    def push(cls, *args, **kwargs):
        """The former way to make a mode for `with`."""
        return cls(*args, **kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """Lets everything through."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode_stack() -> list:
    return [m.mode for m in _C._function_modes() if isinstance(m, _Asking)]


def _get_current_dispatch_mode():
    modes = _get_current_dispatch_mode_stack()
    return modes[-1] if modes else None


@contextlib.contextmanager
def _disable_current_modes():
    """Without any mode."""
    before = _C._set_override_state(2)
    try:
        yield _get_current_dispatch_mode_stack()
    finally:
        _C._set_override_state(before)


# --- subclasses ---


def _hook_of(cls, args, kwargs):
    """cls.__torch_dispatch__; where it is a plain method, of the first argument of the class."""
    hook = cls.__torch_dispatch__
    if not isinstance(hook, _types.FunctionType) or isinstance(inspect.getattr_static(cls, "__torch_dispatch__"), staticmethod):
        return hook
    return hook.__get__(next(v for v in tree_flatten((args, kwargs))[0] if isinstance(v, cls)))


def adopt(cls) -> None:
    """Called for a new subclass of Tensor that defines `__torch_dispatch__`: makes operators ask it."""
    own = next((c.__dict__["__torch_function__"] for c in cls.__mro__ if c is not Tensor and "__torch_function__" in c.__dict__), None)
    if own is not None and own is not _C._disabled_torch_function_impl and not getattr(own, "_asks_dispatch", False):
        return  # a class with an answer of its own gives it

    class asked(classmethod):
        _asks_dispatch = True

    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in _places() and (device := args[0].__dict__.get("_wrapper_device")) is not None:
            return device if func == Tensor.device.__get__ else device.type == func.__self__.__name__.removeprefix("is_")
        return _dispatch(_hook_of(cls, args, kwargs or {}), contextlib.nullcontext, func, types, args, kwargs)

    cls.__torch_function__ = asked(__torch_function__)


@functools.cache
def _places() -> frozenset:
    return frozenset((Tensor.device.__get__, Tensor.is_cuda.__get__, Tensor.is_cpu.__get__, Tensor.is_meta.__get__))


def disabled_dispatch(cls, func, types, args=(), kwargs=None):
    """`Tensor.__torch_dispatch__`: the operator runs as for any tensor."""
    with _C.DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def make_wrapper_subclass(cls, size, strides=None, storage_offset=None, memory_format=None, dtype=None, layout=None, device=None, pin_memory=False,
                          requires_grad=False, **options):
    """Tensor._make_wrapper_subclass: a tensor of a shape and a dtype without memory, whose operators `cls.__torch_dispatch__` does.

    NotImplementedError for requires_grad=True: the tape is in the operators that `__torch_dispatch__` calls, so gradients reach the tensors that it
    is made of.
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor) and cls is not Tensor):
        raise TypeError(f"_make_wrapper_subclass: expected a subclass of Tensor: got {cls!r}")
    if requires_grad:
        raise NotImplementedError("_make_wrapper_subclass: requires_grad=True is not available: the tape does not see a tensor without memory\n"
                                  "let the tensors that it wraps require gradients")
    if cls.__dict__.get("__torch_function__") is None and not hasattr(cls.__torch_function__, "__func__"):
        raise TypeError(f"_make_wrapper_subclass: {cls.__name__} needs a __torch_dispatch__ or a __torch_function__")
    root = _root()
    from .. import device as make_device

    made = root.empty(tuple(size), dtype=dtype, device="meta") if strides is None else root.empty_strided(tuple(size), tuple(strides), dtype=dtype, device="meta")
    wrapper = Tensor._make_subclass(cls, made)
    wrapper._wrapper_device = make_device(device if device is not None else "cpu")
    return wrapper


def is_traceable_wrapper_subclass(t) -> bool:
    """Whether an object, or a class, is a wrapper that can be taken apart and put together (`__tensor_flatten__`, `__tensor_unflatten__`)."""
    kind = t if isinstance(t, type) else type(t)
    return issubclass(kind, Tensor) and kind is not Tensor and all(hasattr(kind, n) for n in ("__tensor_flatten__", "__tensor_unflatten__"))


def is_traceable_wrapper_subclass_type(t) -> bool:
    """The same of a class."""
    return is_traceable_wrapper_subclass(t)


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """A wrapper with callback(name, tensor) in place of each tensor that it is made of."""
    names, context = t.__tensor_flatten__()
    return type(t).__tensor_unflatten__({n: callback(n, getattr(t, n)) for n in names}, context, outer_size or t.size(), outer_stride or t.stride())


def return_and_correct_aliasing(func, args, kwargs, out):
    """The result of `__torch_dispatch__`: of an operator that writes to its first argument, that argument."""
    name = getattr(func, "_schema", None)
    return args[0] if name is not None and name.is_mutable else out
