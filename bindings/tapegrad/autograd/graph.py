"""The recorded graph: nodes, hooks on what is saved for backward, edges."""

from __future__ import annotations

import threading
from typing import NamedTuple

from .._C import Tensor, _autograd
from .._C._autograd import FunctionCtx
from .._C._autograd import Node as _Node

__all__ = ["GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
           "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


class _NodeType(type):
    """The types of nodes do not derive from Node, and those of custom Functions are two: of the node, and of `ctx`."""

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, (_Node, FunctionCtx))

    def __subclasscheck__(cls, subclass) -> bool:
        return subclass is cls or getattr(subclass, "_stands_for_node", False) or issubclass(subclass, (_Node, FunctionCtx))


class Node(metaclass=_NodeType):
    """A recorded operator of the tape: `isinstance(y.grad_fn, Node)`, and so is the ctx of a custom Function."""


class GradientEdge(NamedTuple):
    """An output of a node. backward and grad take it in place of its tensor."""

    node: Node
    output_nr: int
    ownership_token: object | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge of a tensor that needs a gradient; raises RuntimeError for others."""
    if not tensor.requires_grad:
        raise RuntimeError("get_gradient_edge: the tensor does not require a gradient")
    node = tensor.grad_fn
    if node is None:  # a leaf: the node that accumulates its gradient
        node = tensor.view_as(tensor).grad_fn.next_functions[0][0]
    return GradientEdge(node, tensor.output_nr)


class saved_tensors_hooks:
    """Inside, `pack_hook(tensor)` runs for each tensor saved for backward and `unpack_hook(packed)` when it is used.

    unpack_hook must return a tensor of the same contents; pack_hook may return anything.
    """

    def __init__(self, pack_hook, unpack_hook) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if _disabled is not None:
            raise RuntimeError(_disabled)
        _autograd.push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        _scopes.open += 1

    def __exit__(self, *exception) -> None:
        _autograd.pop_saved_tensors_hooks()
        _scopes.open -= 1


class save_on_cpu(saved_tensors_hooks):
    """Inside, what is saved for backward is kept in CPU memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor):
            return (tensor.device, tensor.cpu())

        def unpack(packed):
            device, tensor = packed
            return tensor.to(device)

        super().__init__(pack, unpack)


class disable_saved_tensors_hooks(saved_tensors_hooks):
    """Inside, saving a tensor under saved_tensors_hooks raises RuntimeError with the given message."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        global _disabled
        if _scopes.open:
            raise RuntimeError(self.error_message)
        self._outer, _disabled = _disabled, self.error_message

    def __exit__(self, *exception) -> None:
        global _disabled
        _disabled = self._outer


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Inside, what is saved for backward is saved as a copy, so that the tensors themselves may be written to."""

    def __init__(self) -> None:
        super().__init__(lambda tensor: tensor.clone(), lambda copy: copy)

    def __enter__(self) -> allow_mutation_on_saved_tensors:
        super().__enter__()
        return self


def increment_version(tensor) -> None:
    """Counts a write to a tensor, or to each of several, that is not tracked otherwise: backward through what saved it raises."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        _autograd.bump_version(t)


_disabled: str | None = None


class _Scopes(threading.local):
    """How many scopes of saved_tensors_hooks are open in this thread."""

    open = 0


_scopes = _Scopes()


def _saved_tensors_hooks_is_enabled() -> bool:
    return _disabled is None


_autograd._saved_tensors_hooks_is_enabled = _saved_tensors_hooks_is_enabled  # PyTorch's place of it


class _MultiHandle:
    def __init__(self, handles) -> None:
        self._handles = tuple(handles)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exception) -> None:
        self.remove()


class _Pass(threading.local):
    """The backward pass of this thread that a hook of several tensors waits for: its number, and the gradients that have come; None
    when the hook has been called."""

    number = -1
    grads: list | None = None


def register_multi_grad_hook(tensors, fn, *, mode: str = "all"):
    """Calls fn(grads) once all gradients of `tensors` are there ("all"; one whose gradient never comes counts as None
    at the end of backward), or fn(grad) at the first ("any"), once in each backward. Returns a handle with remove()."""
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    state = _Pass()

    def finish() -> None:
        grads, state.grads = state.grads, None
        if mode == "all" and grads is not None:
            fn(grads)

    def hook_for(index):
        def hook(grad):
            number = _autograd._current_graph_task_id()
            if state.number != number:  # whatever the one before left: an error may have ended it
                state.number, state.grads = number, [None] * len(tensors)
                _autograd.queue_callback(finish)
            grads = state.grads
            if grads is None or (mode == "any" and grad is None):
                return
            grads[index] = grad
            if mode == "any" or all(g is not None for g in grads):
                state.grads = None
                fn(grad if mode == "any" else grads)

        return hook

    return _MultiHandle(t.register_hook(hook_for(i)) for i, t in enumerate(tensors))


class SavedTensor:
    """A tensor that a node keeps for backward: `y.grad_fn._raw_saved_self`, `_raw_saved_result`, and `_raw_saved_tensors` of custom
    Functions."""

    __slots__ = ("_node", "_place")

    def __init__(self, *args, **kwargs) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden: take one from a node")

    def register_hooks(self, *hooks) -> None:
        """register_hooks(pack_hook, unpack_hook): what saved_tensors_hooks does, to this one tensor: it is packed now, and unpacked when it
        is read. Once for each.

        Raises TypeError for what cannot be called, RuntimeError for None and where there are hooks already."""
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError("register_hooks(): incompatible function arguments: expected two functions: got "
                            f"{', '.join(type(hook).__name__ for hook in hooks) or 'none'}")
        _autograd._hook_saved(self._node, self._place, *hooks)


_autograd.SavedTensor = SavedTensor  # PyTorch's place for it


def _saved_tensor(node, place: int) -> SavedTensor:
    saved = SavedTensor.__new__(SavedTensor)
    saved._node, saved._place = node, place
    return saved
