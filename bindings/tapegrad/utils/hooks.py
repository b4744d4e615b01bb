"""Handles that remove hooks, and the pair of tape nodes behind full backward hooks of modules."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict

from .._warn import warn

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook"]

_ids = itertools.count()


def unserializable_hook(f):
    """Marks a hook that need not be in a file; none is."""
    f.__torch_unserializable__ = True
    return f


class RemovableHandle:
    """Removes one hook from the dictionary (or dictionaries) that hold it; also a context manager."""

    next_id = 0

    def __init__(self, hooks_dict, *, extra_dict=None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = next(_ids)
        extra = extra_dict if isinstance(extra_dict, list) else [extra_dict] if extra_dict is not None else []
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)

    def remove(self) -> None:
        """Takes the hook away; a second call does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        return (self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref))

    def __setstate__(self, state) -> None:
        global _ids
        hooks, self.id, extra = state
        _ids = itertools.count(max(next(_ids), self.id + 1))  # the hooks that came along keep their places
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extra)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception) -> None:
        self.remove()


def _identity():
    """A node that passes tensors through, on which the hooks hang; made on first use."""
    global _identity_class
    if _identity_class is None:
        from ..autograd import Function

        class BackwardHookFunction(Function):
            @staticmethod
            def forward(ctx, *tensors):
                return tuple(t.view_as(t) for t in tensors)

            @staticmethod
            def backward(ctx, *grads):
                return grads

        _identity_class = BackwardHookFunction
    return _identity_class


_identity_class = None


class BackwardHook:
    """Calls a module's full backward hooks once the gradients of its outputs and of its inputs are known.

    One identity node stands before the module and one behind it. The hook of the later node keeps the gradients of the
    outputs, that of the earlier one sees the gradients of the inputs and calls the user.
    """

    def __init__(self, module, user_hooks, user_pre_hooks) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs = None
        self.num_inputs = 0
        self.inputs_at = None   # positions of the tensors among the arguments; None: none needs a gradient
        self.outputs_at = None

    def _through_node(self, values, on_node):
        from .. import Tensor, is_grad_enabled

        at = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        tensors = [values[i] for i in at]
        if not (is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return values, None
        passed = _identity().apply(*tensors)
        on_node(next(t.grad_fn for t in passed if t.grad_fn is not None))
        result = list(values)
        for i, tensor, through in zip(at, tensors, passed, strict=True):
            if tensor.requires_grad:  # the others have no gradient to be seen, and stay themselves
                result[i] = through
        return (tuple(result) if type(values) is tuple else type(values)(*result)), at

    @staticmethod
    def _spread(at, values, n):
        result = [None] * n
        for i, value in zip(at, values, strict=True):
            result[i] = value
        return tuple(result)

    def setup_input_hook(self, args):
        self.num_inputs = len(args)
        args, self.inputs_at = self._through_node(args, lambda node: node.register_hook(self._at_inputs))
        return args

    def setup_output_hook(self, result):
        values = result if isinstance(result, tuple) else (result,)
        self.num_outputs = len(values)
        values, self.outputs_at = self._through_node(values, lambda node: node.register_hook(self._at_outputs))
        return values if isinstance(result, tuple) else values[0]

    def _at_outputs(self, _, grad_outputs):
        self.grad_outputs = self._spread(self.outputs_at, grad_outputs, self.num_outputs)
        for hook in self.user_pre_hooks:
            changed = hook(self.module, self.grad_outputs)
            if changed is None:
                continue
            if not isinstance(changed, tuple):
                changed = (changed,)
            if len(changed) != self.num_outputs:
                raise RuntimeError("Backward pre hook returned an invalid number of grad_output, "
                                   f"got {len(changed)}, but expected {self.num_outputs}")
            self.grad_outputs = changed
        grads = self.grad_outputs
        if self.inputs_at is None:  # nothing flows back to the inputs: this is the only moment to call
            if self.user_hooks:
                warn("Full backward hook is firing when gradients are computed with respect to module outputs since "
                     "no inputs require gradients.")
            nothing = (None,) * self.num_inputs
            for hook in self.user_hooks:
                changed = hook(self.module, nothing, grads)
                if changed is not None and not (isinstance(changed, tuple) and all(g is None for g in changed)):
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always return "
                                       "None or None for all gradients.")
            self.grad_outputs = None
        return tuple(grads[i] for i in self.outputs_at)

    def _at_inputs(self, grad_inputs, _):
        if self.grad_outputs is None:  # the gradient came here on a way that does not lead through the outputs
            return None
        grads = self._spread(self.inputs_at, grad_inputs, self.num_inputs)
        for hook in self.user_hooks:
            changed = hook(self.module, grads, self.grad_outputs)
            if changed is None:
                continue
            if not isinstance(changed, tuple):
                changed = (changed,)
            if len(changed) != len(grads):
                raise RuntimeError(f"Backward hook returned an invalid number of grad_input, got {len(changed)}, but "
                                   f"expected {len(grads)}")
            grads = changed
        self.grad_outputs = None
        return tuple(grads[i] for i in self.inputs_at)
