"""Which modules of a model become units of their own."""

import contextlib
import functools

__all__ = ["CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy", "size_based_auto_wrap_policy",
           "transformer_auto_wrap_policy", "wrap"]


def always_wrap_policy(*args, **kwargs) -> bool:
    """Every module."""
    return True


def lambda_auto_wrap_policy(module, recurse: bool, nonwrapped_numel: int, lambda_fn) -> bool:
    """Modules for which lambda_fn says so."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls) -> bool:
    """Modules of some classes."""
    return True if recurse else isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(module, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8), force_leaf_modules=None,
                                exclude_wrap_modules=None) -> bool:
    """Modules with so many parameters that no inner unit has."""
    from ...nn import ModuleDict, ModuleList, MultiheadAttention

    leaves = force_leaf_modules if force_leaf_modules is not None else {MultiheadAttention}
    excluded = exclude_wrap_modules if exclude_wrap_modules is not None else {ModuleList, ModuleDict}
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(leaves))
    return large and not isinstance(module, tuple(excluded))


class ModuleWrapPolicy:
    """Modules of some classes."""

    def __init__(self, module_classes):
        self._classes = set(module_classes)

    def __call__(self, module, recurse: bool, *args, **kwargs) -> bool:
        return True if recurse else isinstance(module, tuple(self._classes))


class CustomPolicy:
    """Modules for which lambda_fn(module) is true (options in a dictionary are not taken)."""

    def __init__(self, lambda_fn):
        self._function = lambda_fn

    def __call__(self, module, recurse: bool, *args, **kwargs) -> bool:
        if recurse:
            return True
        result = self._function(module)
        if isinstance(result, dict):
            raise NotImplementedError("CustomPolicy: options of single modules are not supported")
        return bool(result)


def _wrap_children(module, policy, wrapper) -> int:
    """Wraps inner modules that the policy names, the innermost first. Gives the number of parameters in units of their own."""
    from ..tensor import DTensor

    wrapped = 0
    if isinstance(policy, (set, frozenset)):
        policy = ModuleWrapPolicy(policy)
    for name, child in list(module.named_children()):
        total = sum(p.numel() for p in child.parameters() if not isinstance(p, DTensor))
        if not policy(module=child, recurse=True, nonwrapped_numel=total):
            inner = 0
        else:
            inner = _wrap_children(child, policy, wrapper)
        if policy(module=child, recurse=False, nonwrapped_numel=total - inner) and total - inner > 0:
            setattr(module, name, wrapper(child))
            inner = total
        wrapped += inner
    return wrapped


_options: list = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls, **wrapper_kwargs):
    """Inside, wrap(module) makes a wrapper_cls of a module."""
    _options.append(functools.partial(wrapper_cls, **wrapper_kwargs))
    try:
        yield
    finally:
        _options.pop()


def wrap(module, **wrap_overrides):
    """The module, wrapped where enable_wrap says how."""
    return _options[-1](module, **wrap_overrides) if _options else module
