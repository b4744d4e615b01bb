"""Lists of tensors by device and dtype, as optimizers of other libraries sort them before they call `_foreach_` functions."""

from .. import _C

_DEVICES = ("cuda", "xpu", "mtia", "privateuseone")
_foreach_supported_types = [_C.Tensor]  # optimizers add to it
_STEPS = (_C.float32, _C.float64)  # the dtypes of counters of steps, which may stay on the CPU


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Device types for which optimizers take their form over lists by themselves."""
    return list(_DEVICES)


def _get_fused_kernels_supported_devices() -> list[str]:
    """Device types whose optimizers can have fused=True."""
    return ["mps", "hpu", "cpu", *_DEVICES]


def _device_has_foreach_support(device) -> bool:
    """Whether there are functions over lists for a device."""
    return device.type in (*_DEVICES, "cpu")


def _has_foreach_support(tensors, device) -> bool:
    """Whether all tensors (or None) are plain ones on such a device."""
    return _device_has_foreach_support(device) and all(t is None or type(t) in _foreach_supported_types for t in tensors)


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices: bool = False) -> dict:
    """{(device, dtype): (lists, places)}: the lists taken apart by the tensors of the first one; the others may be empty or hold None.

    Raises RuntimeError for lists of two lengths, and for a tensor that is elsewhere than the first list's in its place.
    """
    lists = [list(tensors) for tensors in tensorlistlist]
    if not lists or not lists[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: expected a first list with tensors: got none")
    first = lists[0]
    if lengths := {len(tensors) for tensors in lists} - {0, len(first)}:
        raise RuntimeError(f"_group_tensors_by_device_and_dtype: lists must be empty or as long as the first of {len(first)}: got {sorted(lengths)}")
    groups: dict = {}
    for place, key_tensor in enumerate(first):
        if key_tensor is None:
            raise RuntimeError(f"Tensors of the first list of nested Tensor lists are supposed to be defined but the {place}-th Tensor is not.")
        row = [tensors[place] if tensors else None for tensors in lists]
        for tensor in row:
            if not _fits(tensor, key_tensor):
                raise RuntimeError("Tensors of the same index must be on the same device and the same dtype except `step` tensors that can be CPU and "
                                   "float32/64, and optimizer states that can be bfloat16 for mixed-precision training")
        parts, places = groups.setdefault((key_tensor.device, key_tensor.dtype), ([[] for _ in lists], []))
        for part, tensors, tensor in zip(parts, lists, row):
            if tensors:
                part.append(tensor)
        if with_indices:
            places.append(place)
    return groups


def _fits(tensor, like) -> bool:
    if tensor is None:
        return True
    if not isinstance(tensor, _C.Tensor):
        raise TypeError(f"_group_tensors_by_device_and_dtype: expected tensors: got {type(tensor).__name__}")
    if tensor.device.type == "cpu" and tensor.dtype in _STEPS:
        return True
    return tensor.device == like.device and tensor.dtype in (like.dtype, _C.bfloat16)
