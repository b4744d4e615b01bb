"""Making a batch of samples."""

import collections.abc
import copy
import functools

import numpy as np

from ... import _C, OutOfMemoryError, Tensor, as_tensor, float64, stack, tensor

__all__ = ["default_collate", "default_convert"]

_TEXT_KINDS = "SU"  # NumPy's kinds of strings
_LEAST_SHARED = 4096  # bytes; smaller results are moved when they are sent

_shared_results = False


def in_worker_process() -> None:
    """From here on results are made in shared memory, where they have to go anyhow."""
    global _shared_results
    _shared_results = True


def result_like(sample, count: int):
    """Where `count` samples like this one go, for `out=`; None: anywhere."""
    nbytes = count * sample.numel() * sample.element_size()
    if not _shared_results or nbytes < _LEAST_SHARED or sample.requires_grad or sample._is_any_sparse or not sample.is_cpu:
        return None
    sizes = (count, *sample.shape)
    try:
        memory = _C._shared_empty(nbytes, False)
    except OutOfMemoryError:
        return None  # sending waits until there is space
    return _C._tensor_over(memory, sample.dtype, sizes, _dense_strides(sizes), 0)


@functools.lru_cache(64)
def _dense_strides(sizes: tuple) -> tuple:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _stacked(arrays):
    """np.stack as a tensor; in a worker process the arrays are copied once, to where the batch has to go."""
    first = arrays[0]
    if _shared_results and first.dtype.isnative and all(a.shape == first.shape and a.dtype == first.dtype for a in arrays):
        out = result_like(as_tensor(np.empty(first.shape, first.dtype)), len(arrays))
        if out is not None:
            np.stack(arrays, out=out.numpy())
            return out
    return as_tensor(np.stack(arrays))


def default_convert(data):
    """NumPy arrays inside a sample become tensors; everything else stays."""
    if isinstance(data, Tensor) or (isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind in _TEXT_KINDS + "O"):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(d) for d in data])
    return data


def _like(original, values):
    """The values in a container of the original's type, or a plain one where that cannot be made."""
    try:
        if isinstance(original, collections.abc.MutableMapping):
            clone = copy.copy(original)
            clone.update(values)
            return clone
        return type(original)(values)
    except TypeError:
        return values


def default_collate(batch):
    """One batch of a list of samples: tensors, arrays and numbers are stacked, containers are gone into."""
    first = batch[0]
    if isinstance(first, Tensor):
        out = None
        if _shared_results and all(t.shape == first.shape and t.dtype == first.dtype and not t.requires_grad for t in batch):
            out = result_like(first, len(batch))
        return stack(list(batch), 0, out=out)
    if isinstance(first, np.ndarray):
        if first.dtype.kind in _TEXT_KINDS + "O":
            raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                            f"{first.dtype}")
        return _stacked(batch)
    if isinstance(first, np.generic) and first.dtype.kind not in _TEXT_KINDS:
        return as_tensor(np.asarray(batch))
    if isinstance(first, bool):
        return tensor(batch)
    if isinstance(first, float):
        return tensor(batch, dtype=float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return _like(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(values) for values in zip(*batch, strict=True)))
    if isinstance(first, collections.abc.Sequence):
        size = len(first)
        if any(len(sample) != size for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(values) for values in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _like(first, columns)
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first)}")
