"""How tensors and storages are pickled for another process: as handles of shared memory.

Importing this module registers them with multiprocessing's ForkingPickler, which every Queue, Pipe, Pool and Process uses.
Plain pickle.dumps still writes values.
"""

import copyreg
import io
import pickle
from multiprocessing.reduction import ForkingPickler

from .. import _C
from .._tensor import _to_shared_memory
from ..storage import UntypedStorage
from ._lingering import note

__all__ = ["dumps", "init_reductions", "reduce_storage", "reduce_tensor", "share_read_only"]

_Tensor = _C.Tensor
_Parameter = _C.Parameter
_receive = _C._shared_receive
_over = _C._tensor_over


def _rebuild_tensor(handle, dtype, sizes, strides, offset, requires_grad):
    tensor = _over(_receive(handle), dtype, sizes, strides, offset)
    if requires_grad:
        tensor.requires_grad_(True)
    return tensor


def _rebuild_parameter(args, requires_grad):
    return _Parameter(_rebuild_tensor(*args, False), requires_grad)


def _rebuild_storage(handle):
    return UntypedStorage._over(_receive(handle))


def _handle_of(tensor) -> bytes:
    if not _C._shared_is(tensor):
        _to_shared_memory(tensor)
    try:
        handle = _C._shared_give(tensor)
    except RuntimeError as error:
        if "has ended" not in str(error):
            raise
        # The owner is gone: what lives on here is moved to memory of this process.
        tensor.data = tensor.detach().clone(memory_format=_C.preserve_format)
        _to_shared_memory(tensor)
        handle = _C._shared_give(tensor)
    note(handle)
    return handle


def reduce_tensor(tensor):
    """The shared form of a Tensor or Parameter; the tensor itself lies in shared memory afterwards."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("multiprocessing: a tensor with a history on the tape (requires_grad, and no leaf) cannot pass to another process: got the result "
                           f"of {tensor.grad_fn.name() if hasattr(tensor.grad_fn, 'name') else tensor.grad_fn}\n"
                           "send tensor.detach()")
    if tensor._is_any_sparse or tensor.is_meta or getattr(tensor, "__dict__", None):
        return tensor.__reduce_ex__(2)
    plain = tensor.detach() if tensor.requires_grad else tensor
    handle = _handle_of(tensor)
    if plain is not tensor:
        plain = tensor.detach()  # the move may have given the tensor other memory
    args = handle, plain.dtype, tuple(plain.shape), plain.stride(), plain.storage_offset()
    if type(tensor) is _Parameter:
        return _rebuild_parameter, (args, tensor.requires_grad)
    return _rebuild_tensor, (*args, tensor.requires_grad)


def reduce_storage(storage):
    """The shared form of an UntypedStorage."""
    if not _C._shared_is(storage._bytes):
        storage._to_shared_memory()
    handle = _C._shared_give(storage._bytes)
    note(handle)
    return _rebuild_storage, (handle,)


class _Reducers(dict):
    """How ForkingPickler reduces a type, looked up when it is met: its own table is copied for every message, which takes longer
    than most messages."""

    def __missing__(self, kind):
        return ForkingPickler._extra_reducers.get(kind) or copyreg.dispatch_table[kind]


_reducers = _Reducers()


def dumps(obj):
    """What ForkingPickler.dumps gives."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.dispatch_table = _reducers
    pickler.dump(obj)
    return buffer.getbuffer()


def share_read_only(tensor):
    source = tensor.detach().contiguous()
    if source.device.type != "cpu":
        raise RuntimeError(f"share_read_only: only CPU tensors can be shared: got one on {tensor.device}")
    nbytes = source.numel() * source.element_size()
    shared = _over(_C._shared_empty(nbytes, True), source.dtype, tuple(source.shape), source.stride(), 0)
    return shared.copy_(source)


def init_reductions() -> None:
    """Registers tensors and storages with multiprocessing's pickler."""
    ForkingPickler.register(_Tensor, reduce_tensor)
    ForkingPickler.register(_Parameter, reduce_tensor)
    ForkingPickler.register(UntypedStorage, reduce_storage)


init_reductions()
