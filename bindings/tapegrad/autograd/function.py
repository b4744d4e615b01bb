"""Custom functions: operators with a forward and a backward of their own."""

import functools
import inspect
import types

from .._C import Tensor, _vmap_depth
from .._C._autograd import FunctionCtx
from .._C._autograd import apply as _apply
from .grad_mode import no_grad

BackwardCFunction = FunctionCtx  # PyTorch's name for what ctx is
__all__ = ["Function", "FunctionCtx", "InplaceFunction", "NestedIOFunction", "once_differentiable"]


class _FunctionMeta(type):
    """Gives each subclass the class of its contexts, whose name is that of the node: NameBackward."""

    def __init__(cls, name, bases, namespace) -> None:
        super().__init__(name, bases, namespace)
        if not bases:
            return
        sets_context = cls.setup_context is not Function.setup_context if "Function" in globals() else False
        if "vjp" in namespace and "backward" in namespace:
            cls.backward = staticmethod(_both)
        elif "vjp" in namespace:
            cls.backward = staticmethod(namespace["vjp"].__func__ if isinstance(namespace["vjp"], staticmethod) else namespace["vjp"])
        cls._sets_context = sets_context
        cls._backward_cls = types.new_class(
            f"{name}Backward", (FunctionCtx,), {}, lambda ns: ns.update(_forward_cls=cls, __module__=cls.__module__))


def _both(ctx, *grad_outputs):
    raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them.")


class _Apply:
    """`Function.apply`: the native entry, bound to the class it is taken from."""

    def __get__(self, instance, owner):
        if owner.forward is Function.forward:
            raise NotImplementedError(f"{owner.__name__}: You must implement the forward function for custom autograd.Function: a static forward(ctx, *args)")
        return functools.partial(_call, owner)


def _bound(cls, args: tuple, kwargs: dict) -> tuple:
    """The arguments as forward names them, with its defaults."""
    code = getattr(cls.forward, "__code__", None) or getattr(getattr(cls.forward, "__func__", None), "__code__", None)
    if not kwargs and code is not None and not code.co_flags & inspect.CO_VARARGS and code.co_argcount - hasattr(cls.forward, "__self__") == len(args):
        return args  # nothing is missing
    bound = inspect.signature(cls.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"{cls.__name__}.apply: forward may not take keyword-only arguments: got {', '.join(bound.kwargs)}")
    return bound.args


def _call(cls, *args, **kwargs):
    if cls._sets_context:  # setup_context is given the defaults of forward, too
        args, kwargs = _bound(cls, args, kwargs), {}
    if kwargs:
        raise TypeError(f"{cls.__name__}.apply: takes no keyword arguments: got {', '.join(kwargs)}")
    if _vmap_depth():
        from ..func._functions import apply_mapped

        return apply_mapped(cls, args)
    return _run(cls, args)


def _run(cls, args):
    """The call itself, at the level of vmap that is there."""
    return _apply(cls, *args) if _in_forward_mode is None else _in_forward_mode(cls, args)


# What runs a call while a level of forward mode is open (autograd.forward_ad sets it).
_in_forward_mode = None


class Function(metaclass=_FunctionMeta):
    """Base class of custom operators.

    Derive from it and write static methods `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`; call it as
    `MyFunction.apply(*args)`. forward runs unrecorded. backward returns one gradient per argument of forward, None for
    those without. In a second form forward takes no ctx and `setup_context(ctx, inputs, output)` fills it.
    Raises RuntimeError when backward returns the wrong number of gradients.
    """

    apply = _Apply()
    generate_vmap_rule = False  # or True; without it and without vmap below, vmap maps forward and backward over the samples, too

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with "
                           f"static forward method: call {type(self).__name__}.apply")

    @staticmethod
    def forward(*args, **kwargs):
        """The operator: `forward(ctx, *args)`, or `forward(*args)` together with setup_context."""
        raise NotImplementedError("a custom Function must implement a static forward")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keeps in `ctx` what backward needs."""
        raise NotImplementedError("setup_context is not implemented")

    @staticmethod
    def jvp(ctx, *grad_inputs):
        """The tangents of the outputs of forward, given those of its arguments (None for those that are no tensors): for forward mode.
        Without it the derivative in forward mode is that of backward."""
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info, in_dims, *args):
        """What vmap calls in place of forward, where a subclass defines it: the arguments hold all samples, of a tensor along the dimension
        that its place in `in_dims` says (None: it is the same for all); `info` has batch_size and randomness. Returns (output, out_dims)."""
        raise NotImplementedError("Function.vmap: this Function has no rule of its own")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """The gradients of the arguments of forward, given those of its outputs."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD")


Function._backward_cls = FunctionCtx
Function._sets_context = False


class InplaceFunction(Function):
    """Function with an `inplace` attribute, as older scripts use it."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


NestedIOFunction = Function


def once_differentiable(backward):
    """Decorates a backward that is not made of differentiable operators: differentiating its results raises."""

    @functools.wraps(backward)
    def wrapper(ctx, *grads):
        from .grad_mode import is_grad_enabled

        with no_grad():
            results = backward(ctx, *grads)
        if not is_grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return results
        single = not isinstance(results, tuple)
        marked = _RaiseWhenDifferentiated.apply(*[g for g in ((results,) if single else results) if isinstance(g, Tensor)],
                                                *[g for g in grads if isinstance(g, Tensor)])
        marked = iter(marked if isinstance(marked, tuple) else (marked,))
        replaced = tuple(next(marked) if isinstance(g, Tensor) else g for g in ((results,) if single else results))
        return replaced[0] if single else replaced

    return wrapper


class UndefinedGrad(Function):
    """Passes tensors through; the gradients of what they were made of are absent (None)."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(t.view_as(t) for t in tensors) if len(tensors) != 1 else tensors[0].view_as(tensors[0])

    @staticmethod
    def backward(ctx, *grads):
        return (None,) * len(grads)


class _RaiseWhenDifferentiated(Function):
    """Passes tensors through; its backward raises."""

    @staticmethod
    def forward(ctx, *tensors):
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
