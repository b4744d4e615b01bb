"""What PyTorch keeps in torch._utils, for the scripts and the pickles that name it."""

import traceback

from . import _C
from ._tensor import set_attributes

_ops = _C._functions[""]


def _flatten_dense_tensors(tensors):
    """One vector of all elements."""
    return _ops["cat"]([t.contiguous().view(-1) for t in tensors]) if len(tensors) else _ops["empty"](0)


def _unflatten_dense_tensors(flat, tensors) -> tuple:
    """Views of a vector in the shapes of the tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view_as(t) for part, t in zip(parts, tensors))


def _take_tensors(tensors, size_limit: int):
    """The tensors in lists of one type and of no more than so many bytes."""
    open_lists: dict = {}
    for t in tensors:
        kept = open_lists.setdefault(t.type(), [])
        if kept and sum(k.numel() * k.element_size() for k in kept) + t.numel() * t.element_size() > size_limit:
            yield kept
            kept = open_lists[t.type()] = []
        kept.append(t)
    yield from (kept for kept in open_lists.values() if kept)


def _reorder_tensors_as(tensors, ordered_tensors) -> tuple:
    """The tensors in the order of types of others."""
    by_type: dict = {}
    for t in tensors:
        by_type.setdefault(t.type(), []).append(t)
    queues = {kind: iter(kept) for kind, kept in by_type.items()}
    return tuple(next(queues[t.type()]) for t in ordered_tensors)


def _rebuild_sparse_tensor(layout, data):
    """A sparse tensor of a layout from its parts, as PyTorch's files name it."""
    from ._files.torch_names import _rebuild_sparse

    return _rebuild_sparse(layout, data)


def _element_size(dtype) -> int:
    """Bytes of an element."""
    return dtype.itemsize


def _get_device_index(device, optional: bool = False, allow_cpu: bool = False):
    """The number of a device: of None (if `optional`) none, of the CPU (if `allow_cpu`) -1."""
    if device is None and optional:
        return None
    if isinstance(device, str):
        device = _C.device(device)
    if not isinstance(device, _C.device):
        return device
    if device.type == "cpu" and not allow_cpu:
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    return -1 if device.type == "cpu" else device.index


def _get_available_device_type() -> str | None:
    """"cuda" where there is a GPU, else None."""
    from . import cuda

    return "cuda" if cuda.is_available() else None


def _get_device_module(device_type: str):
    """The module of a kind of devices: tapegrad.cuda."""
    from ._root.deferred import get_device_module

    return get_device_module(device_type)


def _rebuild_tensor(storage, storage_offset, size, stride):
    """The tensor of a pickle: a typed storage and how to look into it."""
    return _C._tensor_over(storage.untyped()._bytes, storage.dtype, tuple(size), tuple(stride), storage_offset)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    """The tensor of a pickle, with its state on the tape."""
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    return tensor.requires_grad_(True) if requires_grad else tensor


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """The parameter of a pickle."""
    return _C.Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    """The parameter of a pickle, with its attributes."""
    parameter = _C.Parameter(data, requires_grad)
    set_attributes(parameter, state)
    return parameter


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised in another thread or process."""

    def __init__(self, exc_info=None, where="in background"):
        import sys

        exc_info = exc_info or sys.exc_info()
        self.exc_type, self.where = exc_info[0], where
        self.exc_msg = "".join(traceback.format_exception(*exc_info))

    def reraise(self):
        """Raises the exception with both tracebacks in its text."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = _Text(text)
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error


class _Text(str):
    """A text whose repr is itself: KeyError shows its repr."""

    def __repr__(self) -> str:
        return str(self)
