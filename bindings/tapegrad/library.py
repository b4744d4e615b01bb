"""Custom operators under names: `tapegrad.ops.mine.add_one` after `library.custom_op("mine::add_one", ...)`.

An operator is a Python function with, if wanted, a formula for its gradient. There is no compiler that would need fake results or
schemas; they are kept or ignored.
"""

from __future__ import annotations

import inspect

from ._warn import warn

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "impl_abstract", "register_autograd", "register_autocast", "register_fake",
           "register_kernel", "register_vmap", "triton_op", "wrap_triton"]

_known: dict[str, CustomOpDef] = {}


def _split(name: str) -> tuple[str, str]:
    space, mark, op = name.partition("::")
    if not mark or not space or not op:
        raise ValueError(f"library: a name is written namespace::name: got {name!r}")
    return space, op.partition(".")[0]


class CustomOpDef:
    """An operator: a function by device, and the formula of its gradient."""

    def __init__(self, name: str, function=None):
        self._space, self._op = _split(name)
        self._name = f"{self._space}::{self._op}"
        self._kernels: dict = {None: function} if function is not None else {}
        self._setup = self._backward = self._fake = None
        self._recorded = None  # what is called instead where a gradient is wanted: its own operators are recorded
        self.__name__ = self._op
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function
        _known[self._name] = self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._name})>"

    @property
    def default(self):
        """The operator itself: there is one form of it."""
        return self

    def _kernel(self, device: str):
        kernel = self._kernels.get(device, self._kernels.get(None))
        if kernel is None:
            raise NotImplementedError(f"{self._name}: there is no function for tensors on {device}: got {sorted(map(str, self._kernels))}")
        return kernel

    def _run(self, args, kwargs):
        from ._C import Tensor

        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        device = tensors[0].device.type if tensors else "cpu"
        if device == "meta" and self._fake is not None:
            return self._fake(*args, **kwargs)
        return self._kernel(device)(*args, **kwargs)

    def _bound(self, args, kwargs) -> list:
        """All arguments in order, as the formula of the gradient sees them."""
        function = self.__wrapped__
        if function is None:
            return [*args, *kwargs.values()]
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return list(bound.arguments.values())

    def __call__(self, *args, **kwargs):
        from ._C import Tensor
        from .autograd import Function, is_grad_enabled

        values = self._bound(args, kwargs)
        flat = [t for v in values for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, Tensor)]
        if not (is_grad_enabled() and any(t.requires_grad for t in flat)):
            return self._run(args, kwargs)
        if self._recorded is not None:
            return self._recorded(*args, **kwargs)
        op, listed = self, []

        class Recorded(Function):
            @staticmethod
            def forward(ctx, *given):
                output = op._run(given, {})
                if isinstance(output, list):
                    listed.append(True)
                if op._setup is not None:
                    names = inspect.signature(op._setup).parameters
                    op._setup(ctx, given, output) if len(names) == 3 and "keyword_only_inputs" not in names else \
                        op._setup(ctx=ctx, inputs=given, output=output, keyword_only_inputs={})
                return tuple(output) if listed else output

            @staticmethod
            def backward(ctx, *grads):
                if op._backward is None:
                    raise RuntimeError(f"{op._name}: Trying to backward through an operator without a formula for its gradient\n"
                                       "hint: register_autograd gives it one; detach() what needs none")
                return op._backward(ctx, list(grads)) if listed else op._backward(ctx, *grads)

        result = Recorded.apply(*values)
        return list(result) if listed else result

    def register_kernel(self, device_types, func=None, /):
        """A function for some devices; as a decorator without one."""
        def register(function):
            for device in [device_types] if isinstance(device_types, str) or device_types is None else device_types:
                self._kernels[device] = function
            self.__wrapped__ = self.__wrapped__ or function
            return function

        return register if func is None else register(func)

    def register_fake(self, fn, /):
        """A function for tensors without data (device meta)."""
        self._fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None) -> None:
        """backward(ctx, *grads), as in autograd.Function; setup_context(ctx, inputs, output) keeps what it needs."""
        self._backward, self._setup = backward, setup_context

    def register_vmap(self, func=None, /):
        """Accepted: a function over batches; as a decorator without one."""
        return (lambda f: f) if func is None else func

    def register_torch_dispatch(self, torch_dispatch_class, fn=None, /):
        """Accepted: there is no dispatch to Python classes."""
        return (lambda f: f) if fn is None else fn

    def register_autocast(self, device_type, cast_inputs):
        """Accepted."""

    def set_kernel_enabled(self, device_type, enabled=True):
        """Refused: a kernel that is registered is used."""
        raise NotImplementedError("set_kernel_enabled: a kernel that is registered is used")


def custom_op(name: str, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Makes an operator `namespace::name` of a function; as a decorator without one. It is callable, and in `ops`."""
    def make(function):
        op = CustomOpDef(name)
        op.__wrapped__, op.__doc__ = function, function.__doc__
        op.register_kernel(device_types, function)
        return op

    return make if fn is None else make(fn)


def triton_op(name: str, fn=None, /, *, mutates_args, schema=None):
    """custom_op for functions that call Triton's kernels."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(kernel, /):
    """The kernel itself."""
    return kernel


def _found(op) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if not isinstance(op, str):
        raise ValueError(f"library: expected the name of an operator: got {type(op).__name__}")
    name = "::".join(_split(op))
    if name not in _known:
        raise RuntimeError(f"library: there is no operator {op}: define it first")
    return _known[name]


def define(qualname: str, schema=None, *, lib=None, tags=()):
    """Makes an operator without a function; `impl` gives it one. As a decorator for its function with the name only."""
    name = qualname if "(" not in qualname else qualname.partition("(")[0]
    op = CustomOpDef(name)
    return (lambda function: op.register_kernel(None, function)) if schema is None else None


_DEVICES = {"default": None, "CompositeExplicitAutograd": None, "CompositeImplicitAutograd": None, "": None, "CPU": "cpu", "CUDA": "cuda",
            "Meta": "meta", "cpu": "cpu", "cuda": "cuda"}


def impl(qualname: str, types=None, func=None, *, lib=None):
    """A function for an operator that `define` made, for some devices; as a decorator without one."""
    kinds = [types] if isinstance(types, str) or types is None else list(types)
    return _found(qualname).register_kernel([_DEVICES.get(k, k) for k in kinds], *([] if func is None else [func]))


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """A function for some devices; as a decorator without one."""
    return _found(op).register_kernel(device_types, *([] if func is None else [func]))


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """A function for tensors without data; as a decorator without one. Names that are not there are ignored."""
    def register(function):
        name = op if isinstance(op, str) else op._name
        if name.partition(".")[0] in _known or not isinstance(op, str):
            _found(op).register_fake(function)
        return function

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(op, backward, /, *, setup_context=None, lib=None) -> None:
    """The formula of an operator's gradient."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_autocast(op, device_type, cast_inputs, /, *, lib=None) -> None:
    """Accepted."""


def register_vmap(op, func=None, /, *, lib=None):
    """Accepted: a function over batches; as a decorator without one."""
    return (lambda f: f) if func is None else func


class Library:
    """A set of operators under one namespace."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Library: kind is DEF, IMPL or FRAGMENT: got {kind!r}")
        self.ns, self.kind, self._key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis="", *, tags=()) -> str:
        """Makes an operator from its schema, "name(Tensor x) -> Tensor"; the result is its name."""
        name = schema.partition("(")[0].strip()
        CustomOpDef(f"{self.ns}::{name}")
        return name

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False) -> None:
        """Gives an operator its function for a device ("CPU", "CUDA", "Meta"), for all ("CompositeImplicitAutograd" has gradients by what it
        calls), or for operands that need a gradient ("Autograd"); keys of autocast are accepted."""
        key = dispatch_key or self._key
        name = op_name if isinstance(op_name, str) else op_name._op
        if key.startswith("Autocast"):
            return
        full = name if "::" in name else f"{self.ns}::{name}"
        op, device = _found(full), _DEVICES.get(key, key.lower())
        if key.startswith("Autograd") or key == "CompositeImplicitAutograd":
            op._recorded = fn
        if key == "Meta":
            op.register_fake(fn)
        elif not key.startswith("Autograd"):
            if device in op._kernels and not allow_override:
                warn(f"{full}: this function takes the place of one that was registered for {key or 'every device'} before")
            op.register_kernel(device, fn)

    def _destroy(self) -> None:
        """Forgets the operators of the namespace."""
        for name in [n for n in _known if n.startswith(f"{self.ns}::")]:
            del _known[name]
