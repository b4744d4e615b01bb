"""state_dict and load_state_dict: the half of Module that reads and writes its state."""

import itertools
import weakref
from collections import OrderedDict, namedtuple

from .. import Tensor, no_grad
from .._warn import warn
from ..utils.hooks import RemovableHandle
from .parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns: the keys that did not meet."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _WithModule:
    """A hook that is also given the module, which owns it: it is known weakly, so that it dies with its last owner."""

    def __init__(self, hook, module) -> None:
        self.hook, self.module = hook, None if module is None else weakref.ref(module)

    def __call__(self, *args, **kwargs):
        return self.hook(*args, **kwargs) if self.module is None else self.hook(self.module(), *args, **kwargs)

    def __getstate__(self):
        return {"hook": self.hook, "module": None if self.module is None else self.module()}

    def __setstate__(self, state) -> None:
        self.__init__(state["hook"], state.get("module"))


class StateDict:
    """Mixed into Module."""

    _version: int = 1

    # Hooks.
    def _register_state_dict_hook(self, hook):
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = hook
        return handle

    def register_state_dict_post_hook(self, hook):
        """Calls hook(module, state_dict, prefix, local_metadata) after state_dict; it may change the dictionary in place."""
        hook._from_public_api = True
        return self._register_state_dict_hook(hook)

    def register_state_dict_pre_hook(self, hook):
        """Calls hook(module, prefix, keep_vars) before state_dict."""
        handle = RemovableHandle(self._state_dict_pre_hooks)
        self._state_dict_pre_hooks[handle.id] = hook
        return handle

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        handle = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[handle.id] = _WithModule(hook, self) if with_module else hook
        return handle

    def register_load_state_dict_pre_hook(self, hook):
        """Calls hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) first."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook):
        """Calls hook(module, incompatible_keys) after load_state_dict; it may change the lists of keys in place."""
        handle = RemovableHandle(self._load_state_dict_post_hooks)
        self._load_state_dict_post_hooks[handle.id] = hook
        return handle

    # State beside parameters and buffers.
    def get_extra_state(self):
        """Further state for state_dict, in a subclass that has some; it goes under the key `_extra_state`."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called. Please override it "
                           "in your module.")

    def set_extra_state(self, state) -> None:
        """The reverse of get_extra_state."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called. Please override it "
                           "in your module.")

    def _overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(StateDict, name)

    # Writing.
    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        skip = self._non_persistent_buffers_set
        buffers = ((k, b) for k, b in self._buffers.items() if k not in skip)
        for name, value in itertools.chain(self._parameters.items(), buffers):
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        if self._overrides("get_extra_state"):
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """All parameters and persistent buffers by their names, detached unless keep_vars."""
        if args:
            warn("Positional args are being deprecated, use kwargs instead.", FutureWarning)
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and not prefix else prefix
            keep_vars = args[2] if len(args) > 2 and not keep_vars else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if result is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = result
        return destination

    # Reading.
    def _load_one(self, key, name, target, given, assign: bool, error_msgs) -> None:
        if not isinstance(given, Tensor):
            error_msgs.append(f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                              f"checkpoint but received {type(given)}")
            return
        if is_lazy(target) and is_lazy(given):  # there is nothing to copy yet
            return
        if len(target.shape) == 0 and tuple(given.shape) == (1,):  # files from before scalars existed
            given = given[0]
        if given.shape != target.shape:
            error_msgs.append(f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape "
                              f"in current model is {target.shape}.")
            return
        if target.is_meta and not given.is_meta and not assign:
            warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                 "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state "
                 "dictionary to their corresponding key in the module instead of copying them in place?)")
        try:
            with no_grad():
                if not assign:
                    target.copy_(given)
                    return
                if isinstance(target, Parameter):
                    if isinstance(given, Parameter):
                        given.requires_grad_(target.requires_grad)
                    else:
                        given = Parameter(given, requires_grad=target.requires_grad)
                setattr(self, name, given)
        except Exception as error:
            error_msgs.append(f'While copying the parameter named "{key}", whose dimensions in the model are {target.size()} '
                              f"and whose dimensions in the checkpoint are {given.size()}, an exception occurred : "
                              f"{error.args}.")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """Loads what belongs to this module itself, not to its children."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        skip = self._non_persistent_buffers_set
        own = {k: p for k, p in self._parameters.items() if p is not None}
        own.update((k, b) for k, b in self._buffers.items() if b is not None and k not in skip)
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_one(key, name, target, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA_STATE
        if self._overrides("set_extra_state"):
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if not strict:
            return
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                first, _, rest = key[len(prefix):].partition(".")
                if (first not in self._modules) if rest else (first not in own):
                    unexpected_keys.append(key)

    def load_state_dict(self, state_dict, strict: bool = True, assign: bool = False):
        """Copies (or with assign: takes over) parameters and buffers; strict refuses when the keys differ.

        Returns the missing and the unexpected keys. Everything that does not fit is collected into one RuntimeError.
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module, state, prefix="") -> None:
            local = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local["assign_to_params_buffers"] = assign
            module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    start = f"{prefix}{name}."
                    load(child, {k: v for k, v in state.items() if k.startswith(start)}, start)
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                                         "return new values, if incompatible_keys need to be modified, it should be done "
                                         "inplace.")

        load(self, state_dict)
        if strict:
            for keys, kind in ((unexpected, "Unexpected"), (missing, "Missing")):
                if keys:
                    listing = ", ".join(f'"{k}"' for k in keys)
                    errors.insert(0, f"{kind} key(s) in state_dict: {listing}. ")
        if errors:
            listing = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listing}")
        return _IncompatibleKeys(missing, unexpected)
