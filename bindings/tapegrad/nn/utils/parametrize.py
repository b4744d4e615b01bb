"""Parametrisations: parameters and buffers that are functions of other ones.

A module with one gets a class of its own, on which the tensor's name is a property that computes it; `module.parametrizations`
holds, by name, the modules to be applied and the originals.
"""

import contextlib
from copy import deepcopy

from ... import Tensor, no_grad
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
           "transfer_parametrizations_and_params", "type_before_parametrizations"]

_cache_depth = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextlib.contextmanager
def cached():
    """Within this block each parametrised tensor is computed once."""
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


def _register(module, name: str, value) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _replace(target, value) -> None:
    """The target takes the value over and stays the same object, so that optimizers keep it."""
    with no_grad():
        target.data = value.detach()


def _check_same(new, old, what: str, flag: str) -> None:
    """A parametrisation must keep dtype and shape unless it was registered as unsafe."""
    if not isinstance(new, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(new).__name__}.")
    for attribute in ("dtype", "shape"):
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after:
            raise ValueError(f"Registering a parametrization may not change the {attribute} of the tensor, unless {flag} flag is "
                             f"enabled.\n{what[0]}{attribute}: {before}\n{what[1]}{attribute}: {after}")


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, first applied first, and what they are applied to: `original`, or `original0`,
    `original1` ... where the first one's right_inverse gave several."""

    def __init__(self, modules, original, unsafe: bool = False) -> None:
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, list, tuple)):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                             f"{type(new).__name__}")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            for attribute in ("dtype", "device"):
                if getattr(original, attribute) != getattr(new, attribute):
                    raise ValueError(f"When `right_inverse` outputs one tensor, it may not change the {attribute}.\n"
                                     f"original.{attribute}: {getattr(original, attribute)}\n"
                                     f"right_inverse(original).{attribute}: {getattr(new, attribute)}")
            if new is not original:
                _replace(original, new)
            _register(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                                     f"{i} of the sequence with type {type(part).__name__}.")
                if isinstance(original, Parameter):
                    part = Parameter(part.detach(), original.requires_grad)
                _register(self, f"original{i}", part.requires_grad_(original.requires_grad))
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            for attribute, before in (("dtype", dtype), ("shape", shape)):
                if getattr(made, attribute) != before:
                    raise ValueError(f"Registering a parametrization may not change the {attribute} of the tensor, unless `unsafe` flag "
                                     f"is enabled.\nunparametrized {attribute}: {before}\nparametrized {attribute}: "
                                     f"{getattr(made, attribute)}")

    def _originals(self) -> list:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value) -> None:
        """Sets the originals so that the parametrised tensor becomes the value: what assigning to it does."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
        if self.is_tensor:
            if not isinstance(value, Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
            if value.dtype != self.original.dtype:
                raise ValueError(f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                                 f"{self.original.dtype}")
            _replace(self.original, value)
            return
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
        if len(value) != self.ntensors:
            raise ValueError(f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length "
                             f"{len(value)}.")
        for i, (part, original) in enumerate(zip(value, self._originals(), strict=True)):
            if not isinstance(part, Tensor):
                raise ValueError(f"`right_inverse` must return a sequence of tensors. Got element {i} of type {type(part).__name__}")
            if part.dtype != original.dtype:
                raise ValueError(f"Tensor {i} returned by `right_inverse` has dtype {part.dtype} while `original{i}` has dtype "
                                 f"{original.dtype}")
            _replace(original, part)

    def forward(self):
        first, *others = self
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


def _forbidden(self):
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")


def _copied(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    replica = self.__new__(type(self))
    memo[id(self)] = replica
    replica.__dict__.update(deepcopy(self.__dict__, memo))
    return replica


def _give_own_class(module) -> None:
    kind = type(module)
    members = {"__getstate__": _forbidden, "__module__": kind.__module__}
    if not hasattr(kind, "__deepcopy__"):
        members["__deepcopy__"] = _copied
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), members)


def _give_property(module, name: str) -> None:
    if hasattr(module, name):
        raise AssertionError(f"Module already has an attribute named '{name}'")

    def get(self):
        if not _cache_depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def assign(self, value) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, assign))


def register_parametrization(module, tensor_name: str, parametrization, *, unsafe: bool = False):
    """Makes module.tensor_name the result of `parametrization` applied to what it was. Further ones are applied to the result.

    A parametrisation may have `right_inverse(value)`, which finds the originals of a value. unsafe: dtype and shape may change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            old = getattr(module, tensor_name)
            new = parametrization(old)
            _check_same(new, old, (f"module.{tensor_name}.", f"parametrization(module.{tensor_name})."), "the `unsafe`")
            if hasattr(parametrization, "right_inverse"):
                with contextlib.suppress(NotImplementedError):
                    back = parametrization.right_inverse(new)
                    if not isinstance(back, Tensor):
                        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
                    for attribute in ("dtype", "shape"):
                        if getattr(back, attribute) != getattr(old, attribute):
                            raise ValueError(f"The tensor returned by parametrization.right_inverse must have the same {attribute} as "
                                             f"module.{tensor_name}, unless the `unsafe` flag is enabled.\nmodule.{tensor_name}."
                                             f"{attribute}: {getattr(old, attribute)}\nreturned {attribute}: "
                                             f"{getattr(back, attribute)}")
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _give_own_class(module)
        module.parametrizations = ModuleDict()
    _give_property(module, tensor_name)
    module.parametrizations[tensor_name] = made
    return module


def is_parametrized(module, tensor_name: str | None = None) -> bool:
    """Whether the module, or one of its tensors, is parametrised."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module, tensor_name: str, leave_parametrized: bool = True):
    """Makes the tensor an ordinary one again: with its present value, or with its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    made = module.parametrizations[tensor_name]
    if made.is_tensor:
        original = made.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            _replace(original, value)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence "
                         "of tensors.")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module) -> type:
    """The module's class without its parametrisations."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Gives to_module the parametrisations of from_module, all or one tensor's, and their originals."""
    if not is_parametrized(from_module):
        return to_module
    for name in (from_module.parametrizations if tensor_name is None else [tensor_name]):
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        if source.is_tensor:
            target.original = source.original
        else:
            for i in range(source.ntensors):
                setattr(target, f"original{i}", getattr(source, f"original{i}"))
    return to_module
