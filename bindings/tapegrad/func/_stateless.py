"""Modules without their tensors, as functorch had them before `functional_call`, for older programs that `import functorch`."""

import copy

from ..nn import Module
from ._modules import functional_call, stack_module_state

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "make_functional", "make_functional_with_buffers"]


class FunctionalModuleWithBuffers(Module):
    """A module that is called with its parameters and buffers: f(params, buffers, *args, **kwargs)."""

    def __init__(self, stateless_model: Module, param_names: tuple[str, ...], buffer_names: tuple[str, ...]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = param_names, buffer_names

    def forward(self, params, buffers, *args, **kwargs):
        """What the module gives with these tensors, in the order of its named_parameters() and named_buffers()."""
        tensors = dict(zip((*self.param_names, *self.buffer_names), (*params, *buffers), strict=True))
        return functional_call(self.stateless_model, tensors, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module that is called with its parameters: f(params, *args, **kwargs)."""

    def forward(self, params, *args, **kwargs):
        """What the module gives with these parameters, in the order of its named_parameters()."""
        return super().forward(params, (), *args, **kwargs)


def _taken(model: Module, disable_autograd_tracking: bool, kind: type):
    own = copy.deepcopy(model)
    params, buffers = dict(own.named_parameters()), dict(own.named_buffers())
    function = kind(own, tuple(params), tuple(buffers) if kind is FunctionalModuleWithBuffers else ())
    if disable_autograd_tracking:
        for p in params.values():
            p.requires_grad_(False)
    return function, tuple(p.detach().requires_grad_(p.requires_grad) for p in params.values()), tuple(buffers.values())


def make_functional(model: Module, disable_autograd_tracking: bool = False):
    """(f, params): f(params, *args, **kwargs) is a copy of the module with these parameters. Raises RuntimeError for a module with buffers."""
    if next(model.buffers(), None) is not None:
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return _taken(model, disable_autograd_tracking, FunctionalModule)[:2]


def make_functional_with_buffers(model: Module, disable_autograd_tracking: bool = False):
    """(f, params, buffers): f(params, buffers, *args, **kwargs) is a copy of the module with these tensors."""
    return _taken(model, disable_autograd_tracking, FunctionalModuleWithBuffers)


def combine_state_for_ensemble(models):
    """(f, params, buffers) of modules of one class, each tensor stacked along a new first dimension: vmap(f, in_dims=(0, 0, None)) runs all.

    Raises RuntimeError for none, for modules of different classes, and for some in training and some not.
    """
    models = list(models)
    params, buffers = stack_module_state(models)
    return make_functional_with_buffers(models[0])[0], *(tuple(t.detach() for t in tensors.values()) for tensors in (params, buffers))
