"""Module: the base class of all layers and networks.

Attribute access, assignment and calls are native (`_C._ModuleBase`): with no hook in place `module(x)` runs no Python
code but `forward`. This file holds registration, traversal, conversion and the slow path of calls with hooks; state_dict
and load_state_dict are in _state.py.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .. import _C, Tensor, empty_like, no_grad
from .. import device as _device_type
from .. import dtype as _dtype_type
from .._warn import warn
from ..utils.hooks import BackwardHook, RemovableHandle
from ._state import StateDict
from .parameter import Parameter

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]

# Hooks of all modules. The native call looks whether one of the first four is filled.
_global_forward_pre_hooks: OrderedDict = OrderedDict()
_global_forward_hooks: OrderedDict = OrderedDict()
_global_backward_pre_hooks: OrderedDict = OrderedDict()
_global_backward_hooks: OrderedDict = OrderedDict()
_global_forward_hooks_always_called: OrderedDict = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict = OrderedDict()
_global_buffer_registration_hooks: OrderedDict = OrderedDict()
_global_module_registration_hooks: OrderedDict = OrderedDict()
_global_parameter_registration_hooks: OrderedDict = OrderedDict()


def _add(hooks, hook, *extra):
    """Adds the hook, and its id to further dictionaries (the flags that it was registered with)."""
    handle = RemovableHandle(hooks, extra_dict=list(extra) if extra else None)
    hooks[handle.id] = hook
    for flags in extra:
        flags[handle.id] = True
    return handle


def register_module_forward_pre_hook(hook):
    """Calls hook(module, args) before the forward of every module."""
    return _add(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs: bool = False, always_call: bool = False):
    """Calls hook(module, args, output) after the forward of every module."""
    flags = [_global_forward_hooks_with_kwargs] if with_kwargs else []
    return _add(_global_forward_hooks, hook, *flags, *([_global_forward_hooks_always_called] if always_call else []))


def register_module_full_backward_pre_hook(hook):
    """Calls hook(module, grad_output) before the backward of every module."""
    return _add(_global_backward_pre_hooks, hook)


_global_is_full_backward_hook: bool | None = None


def _set_global_kind(full: bool) -> None:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError("Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only "
                           "one of them.")
    _global_is_full_backward_hook = full


def register_module_full_backward_hook(hook):
    """Calls hook(module, grad_input, grad_output) after the backward of every module."""
    _set_global_kind(True)
    return _add(_global_backward_hooks, hook)


def register_module_backward_hook(hook):
    """The old backward hook of every module, on the node that made its output."""
    _set_global_kind(False)
    return _add(_global_backward_hooks, hook)


def register_module_buffer_registration_hook(hook):
    """Calls hook(module, name, buffer) when any module registers a buffer; what it returns is registered instead."""
    return _add(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Calls hook(module, name, submodule) when any module registers a child."""
    return _add(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook):
    """Calls hook(module, name, parameter) when any module registers a parameter."""
    return _add(_global_parameter_registration_hooks, hook)


def _through(hooks, module, name, value):
    for hook in hooks.values():
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value


def _typename(o) -> str:
    kind = type(o)
    return kind.__name__ if kind.__module__ in ("builtins", "") else f"{kind.__module__}.{kind.__name__}"


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def _parse_to(*args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """The arguments of Module.to: (device, dtype, non_blocking, memory_format)."""
    args = list(args)
    if args and isinstance(args[0], Tensor):
        other = args.pop(0)
        device, dtype = other.device, other.dtype
    elif args and isinstance(args[0], _dtype_type):
        dtype = args.pop(0)
    elif args and (args[0] is None or isinstance(args[0], (str, int, _device_type))):
        given = args.pop(0)
        device = given if given is not None else device
        if args and (args[0] is None or isinstance(args[0], _dtype_type)):
            dtype = args.pop(0) or dtype
    if args and isinstance(args[0], bool):
        non_blocking = args.pop(0)
    if args:
        raise TypeError(f"to(): received an invalid combination of arguments: got {[_typename(a) for a in args]}, expected a "
                        "device, a dtype or a tensor")
    if isinstance(device, (str, int)):
        device = _device_type(device)
    return device, dtype, non_blocking, memory_format


class _CallSignature:
    """`__signature__` of modules: inspect.signature(module) cannot see through a native `__call__`. Classes have none of their own."""

    def __get__(self, module, kind):
        if module is None:
            return None
        import inspect

        call = kind.__call__
        if call is Module.__call__:
            return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL), inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])
        return inspect.signature(call.__get__(module))


def _forward_unimplemented(self, *input) -> None:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(_C._ModuleBase, StateDict):
    """A network or a part of one: parameters, buffers and child modules by name, and a forward.

    Tensors of type Parameter and modules that are assigned to an attribute are registered.
    """

    dump_patches: bool = False
    training: bool
    call_super_init: bool = False
    __signature__ = _CallSignature()

    def __init__(self, *args, **kwargs) -> None:
        if not self.call_super_init and (args or kwargs):
            given = next(iter(kwargs)) if kwargs else None
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{given}'" if kwargs else
                            f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        # Straight into the instance's dictionary: nothing here has to be looked at by __setattr__.
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(),
            _backward_pre_hooks=OrderedDict(), _backward_hooks=OrderedDict(), _is_full_backward_hook=None,
            _forward_hooks=OrderedDict(), _forward_hooks_with_kwargs=OrderedDict(),
            _forward_hooks_always_called=OrderedDict(), _forward_pre_hooks=OrderedDict(),
            _forward_pre_hooks_with_kwargs=OrderedDict(), _state_dict_hooks=OrderedDict(),
            _state_dict_pre_hooks=OrderedDict(), _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(), _modules={})
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented  # of a type that any forward of a subclass goes with

    # Registration.
    def _check_name(self, name, kind: str, table: dict) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f"{kind} name can't contain \".\"" + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f"{kind} name can't be empty string \"\"")
        if hasattr(self, name) and name not in table:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor, persistent: bool = True) -> None:
        """Adds a tensor that belongs to the state but is not trained; state_dict leaves it out unless persistent."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_name(name, "buffer", self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = _through(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param) -> None:
        """Adds a parameter, or None for one that is left out."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_name(name, "parameter", self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                                "(torch.nn.Parameter or None required)")
            if param.grad_fn is not None:
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                                 f"explicitly. To express '{name}' as a function of another Tensor, compute the value in the "
                                 "forward() method.")
            param = _through(_global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module) -> None:
        """Adds a child module."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, "module", self._modules)
        self._modules[name] = _through(_global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module) -> None:
        """The same as add_module."""
        self.add_module(name, module)

    # Look-up by dotted name.
    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; "" is this module."""
        module = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module in the place of a dotted name; strict demands that there is one already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        if not isinstance(module, Module):
            raise ValueError(f'"module" is not an nn.Module, found {type(module)}')
        setattr(parent, name, module)

    def _owner(self, target: str) -> tuple[Module, str]:
        """The module that has the attribute of a dotted name, and the attribute's name there."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name."""
        module, name = self._owner(target)
        param = getattr(module, name)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name."""
        module, name = self._owner(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return getattr(module, name)

    # Traversal.
    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True):
        """(name, parameter) of this module and, with recurse, of all below it."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True):
        """The parameters of this module and, with recurse, of all below it."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True):
        """(name, buffer), as named_parameters."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True):
        """The buffers, as parameters."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_children(self):
        """(name, module) of the direct children."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        """The direct children."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo=None, prefix: str = "", remove_duplicate: bool = True):
        """(dotted name, module) of this module and all below it."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True):
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def apply(self, fn):
        """Calls fn on every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # Conversion.
    def _apply(self, fn, recurse=True):
        """Replaces the data of parameters, gradients and buffers by what fn makes of them."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            grad = param.grad
            with no_grad():
                data = fn(param)
                new_grad = None if grad is None else fn(grad)
            if data.device.type == param.device.type:
                param.data = data
            else:
                param = Parameter(data, param.requires_grad)
                self._parameters[name] = param
            if new_grad is not None:
                if new_grad.device.type == grad.device.type and param.grad is grad and not grad.is_sparse:
                    grad.data = new_grad
                else:
                    param.grad = new_grad.requires_grad_(grad.requires_grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Moves and casts in place: to(device), to(dtype), to(device, dtype), to(tensor), to(memory_format=...)."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(t):
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
                                          "when moving module from meta to a different device.")
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device=device, dtype=wanted, non_blocking=non_blocking, memory_format=memory_format)
            return t.to(device=device, dtype=wanted, non_blocking=non_blocking)

        return self._apply(convert)

    def type(self, dst_type):
        """Casts all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self):
        """Casts the floating ones to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self):
        """Casts the floating ones to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self):
        """Casts the floating ones to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self):
        """Casts the floating ones to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def cuda(self, device=None):
        """Moves to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self):
        """Moves to the CPU."""
        return self._apply(lambda t: t.cpu())

    def to_empty(self, *, device, recurse: bool = True):
        """Moves to a device without copying the values."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)

    def share_memory(self):
        """Moves the storage of all tensors to shared memory."""
        return self._apply(lambda t: t.share_memory_())

    # Modes.
    def train(self, mode: bool = True):
        """Sets training mode on this module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Sets evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True):
        """Sets requires_grad of all parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets (or zeroes) the gradients of all parameters."""
        for param in self.parameters():
            grad = param.grad
            if grad is None:
                continue
            if set_to_none:
                param.grad = None
                continue
            if grad.grad_fn is not None:
                grad.detach_()
            else:
                grad.requires_grad_(False)
            grad.zero_()

    def compile(self, *args, **kwargs) -> None:
        """Records this module's forward and replays it: `tapegrad.compile(self)`."""
        from ..record._compile import compile

        compile(self, *args, **kwargs)

    # Hooks.
    def register_forward_pre_hook(self, hook, *, prepend: bool = False, with_kwargs: bool = False):
        """Calls hook(module, args) before forward; what it returns replaces the arguments."""
        handle = _add(self._forward_pre_hooks, hook, *([self._forward_pre_hooks_with_kwargs] if with_kwargs else []))
        if prepend:
            self._forward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_forward_hook(self, hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False):
        """Calls hook(module, args, output) after forward; what it returns replaces the output."""
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        flags += [self._forward_hooks_always_called] if always_call else []
        handle = _add(self._forward_hooks, hook, *flags)
        if prepend:
            self._forward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(self, hook, prepend: bool = False):
        """Calls hook(module, grad_output) before the module's backward; what it returns replaces grad_output."""
        handle = _add(self._backward_pre_hooks, hook)
        if prepend:
            self._backward_pre_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_hook(self, hook, prepend: bool = False):
        """Calls hook(module, grad_input, grad_output) after the module's backward; it may return another grad_input."""
        if self._is_full_backward_hook is False:
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. Please use "
                               "only one of them.")
        self._is_full_backward_hook = True
        handle = _add(self._backward_hooks, hook)
        if prepend:
            self._backward_hooks.move_to_end(handle.id, last=False)
        return handle

    def register_backward_hook(self, hook):
        """The old backward hook, on the node that made the output; register_full_backward_hook is the better one."""
        if self._is_full_backward_hook is True:
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module. Please use "
                               "only one of them.")
        self._is_full_backward_hook = False
        return _add(self._backward_hooks, hook)

    # Calls with hooks; the native __call__ comes here when one is in place.
    def _call_impl(self, *args, **kwargs):
        state = {"args": args, "kwargs": kwargs, "result": None, "called": set()}
        try:
            return self._call_with_hooks(state)
        except Exception:
            self._call_always_hooks(state)
            raise

    def _call_with_hooks(self, state):
        args, kwargs = state["args"], state["kwargs"]
        with_kwargs = self._forward_pre_hooks_with_kwargs
        for key, hook in [*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()]:
            if key in with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                                           f"{changed}.")
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        full, old = [], []
        (old if _global_is_full_backward_hook is False else full).extend(_global_backward_hooks.values())
        (old if self._is_full_backward_hook is False else full).extend(self._backward_hooks.values())
        before = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
        backward = BackwardHook(self, full, before) if full or before else None
        if backward is not None:
            args = backward.setup_input_hook(args)
        state["args"], state["kwargs"] = args, kwargs

        result = self.forward(*args, **kwargs)
        with_kwargs = {**_global_forward_hooks_with_kwargs, **self._forward_hooks_with_kwargs}
        for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
            state["called"].add(key)
            changed = hook(self, args, kwargs, result) if key in with_kwargs else hook(self, args, result)
            if changed is not None:
                result = changed
            state["result"] = result
        if backward is not None:
            if isinstance(result, (Tensor, tuple)):
                result = backward.setup_output_hook(result)
            else:
                warn("For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                     f"received {type(result)}")
        if old:
            self._hang_on_output(result, old, args)
        return result

    def _hang_on_output(self, result, hooks, args) -> None:
        value = result
        while not isinstance(value, Tensor):
            value = next(v for v in value.values() if isinstance(v, Tensor)) if isinstance(value, dict) else value[0]
        if value.grad_fn is not None:
            sources = {x.grad_fn for x in args if isinstance(x, Tensor) and x.grad_fn is not None}
            if not isinstance(result, Tensor) or sources != {node for node, _ in value.grad_fn.next_functions}:
                warn("Using a non-full backward hook on a module of several tape nodes is deprecated: this hook will be missing some grad_input. "
                     "Please use register_full_backward_hook to get the documented behavior.", FutureWarning)
            for hook in hooks:
                value.grad_fn.register_hook(functools.partial(hook, self))

    def _call_always_hooks(self, state) -> None:
        """After an exception: the hooks that were registered with always_call and have not been called."""
        with_kwargs = self._forward_hooks_with_kwargs
        always = {**_global_forward_hooks_always_called, **self._forward_hooks_always_called}
        for key, hook in [*_global_forward_hooks.items(), *self._forward_hooks.items()]:
            if key not in always or key in state["called"]:
                continue
            try:
                extra = (state["kwargs"],) if key in with_kwargs else ()
                changed = hook(self, state["args"], *extra, state["result"])
                if changed is not None:
                    state["result"] = changed
            except Exception as error:
                warn("module forward hook with ``always_call=True`` raised an exception that was silenced as another "
                     f"error was raised in forward: {error}")

    # Copies.
    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state) -> None:
        self.__dict__.update(state)
        for name in ("_forward_hooks", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs",
                     "_forward_hooks_always_called", "_state_dict_hooks", "_state_dict_pre_hooks",
                     "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_backward_pre_hooks", "_backward_hooks"):
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)
        self._own_forward()

    def _own_forward(self) -> None:
        """After copy.copy a recorded forward (`compile`) is that of the module that was copied."""
        bind = getattr(self.__dict__.get("forward"), "_bound_to", None)
        if bind is not None:
            self.__dict__["forward"] = bind(self)

    def _replicate_for_data_parallel(self):
        """A copy without parameters, for a device of its own; buffers and children are held in tables of its own."""
        replica = self.__new__(type(self))
        replica.__dict__ = {**self.__dict__, "_parameters": {}, "_buffers": {**self._buffers}, "_modules": {**self._modules}, "_is_replica": True}
        if hasattr(replica.__dict__.get("forward"), "_bound_to"):
            del replica.__dict__["forward"]  # is made anew for each call: nothing would be replayed
        return replica

    # Printing.
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What __repr__ shows in the brackets; to be overridden."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + _addindent(repr(module), 2) for name, module in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        lines += children
        body = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({body})"

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())
