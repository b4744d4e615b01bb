"""Modules whose activations are computed again in the backward pass (utils.checkpoint) or kept on the host, as wrappers.

Names of parameters and of states are those of the model without wrappers. Inside, modules may be sharded, tensor-parallel or a stage
of a pipeline: what the forward pass gathers or reduces is gathered or reduced again, in the same order on all ranks.
"""

import enum
import functools

from ....autograd.graph import save_on_cpu
from ....nn import Module
from ....utils.checkpoint import checkpoint

__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing", "checkpoint_wrapper",
           "offload_wrapper"]

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(enum.Enum):
    """How activations are computed again: by a function on the tape, or when what was saved is asked for."""

    REENTRANT, NO_REENTRANT = 1, 2


class ActivationWrapper(Module):
    """What the wrappers share: the names of the module inside."""

    def __init__(self, mod):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(self._post_state_dict_hook)
        self.register_load_state_dict_pre_hook(self._pre_load_state_dict_hook)

    def forward(self, *args, **kwargs):
        """The module's result."""
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_CHECKPOINT_WRAPPED_MODULE), name)

    def __getitem__(self, key):
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args, **kwargs):
        """Names as without wrappers."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter

    @staticmethod
    def _post_state_dict_hook(module, state_dict, prefix, *args):
        own = prefix + _CHECKPOINT_PREFIX
        for key in [k for k in state_dict if k.startswith(own)]:
            state_dict[prefix + key[len(own):]] = state_dict.pop(key)
        return state_dict

    @staticmethod
    def _pre_load_state_dict_hook(module, state_dict, prefix, *args):
        own = prefix + _CHECKPOINT_PREFIX
        for key in [k for k in state_dict if k.startswith(prefix) and not k.startswith(own)]:
            state_dict[own + key[len(prefix):]] = state_dict.pop(key)


class OffloadWrapper(ActivationWrapper):
    """Keeps what the backward pass needs on the host."""

    def forward(self, *args, **kwargs):
        """The module's result."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Computes activations again in the backward pass. checkpoint_fn: another function for it, with checkpoint's arguments."""

    def __init__(self, mod, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = functools.partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args, **kwargs):
        """The module's result."""
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            names, n = list(kwargs), len(args)  # that way takes no keywords
            inner = self._checkpoint_wrapped_module
            return self.checkpoint_fn(lambda *given: inner(*given[:n], **dict(zip(names, given[n:], strict=True))), *args, *kwargs.values())
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


def offload_wrapper(module) -> OffloadWrapper:
    """Wraps a module so that what its backward pass needs is kept on the host."""
    return OffloadWrapper(module)


def checkpoint_wrapper(module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn=None,
                       **checkpoint_fn_kwargs) -> CheckpointWrapper:
    """Wraps a module so that its activations are computed again in the backward pass; keywords go to checkpoint()."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda _: True, auto_wrap_policy=None) -> None:
    """Puts wrappers around the submodules for which check_fn says so, or which an auto_wrap_policy of fsdp.wrap chooses; inner ones first."""
    if auto_wrap_policy is None:
        from ...fsdp.wrap import lambda_auto_wrap_policy

        auto_wrap_policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    if isinstance(auto_wrap_policy, (set, frozenset)):
        from ...fsdp.wrap import ModuleWrapPolicy

        auto_wrap_policy = ModuleWrapPolicy(auto_wrap_policy)
    _wrap_children(model, auto_wrap_policy, checkpoint_wrapper_fn, {})


def _wrap_children(module, policy, wrapper, made: dict) -> int:
    """Gives the number of parameters' elements inside wrappers. made: wrappers of modules that stand in several places."""
    wrapped = 0
    for name, child in list(module.named_children()):
        if id(child) in made:
            setattr(module, name, made[id(child)])
            continue
        total = sum(p.numel() for p in child.parameters())
        inner = _wrap_children(child, policy, wrapper, made) if policy(module=child, recurse=True, nonwrapped_numel=total) else 0
        if policy(module=child, recurse=False, nonwrapped_numel=total - inner):
            made[id(child)] = wrapper(child)
            setattr(module, name, made[id(child)])
            inner = total
        wrapped += inner
    return wrapped
