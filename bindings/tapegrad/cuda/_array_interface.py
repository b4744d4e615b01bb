"""__cuda_array_interface__, version 3, both ways: arrays of CuPy, Numba and others over the same memory."""

from .. import _C

_TYPES = {_C.float64: "<f8", _C.float32: "<f4", _C.float16: "<f2", _C.int64: "<i8", _C.int32: "<i4", _C.int16: "<i2", _C.int8: "|i1",
          _C.uint64: "<u8", _C.uint32: "<u4", _C.uint16: "<u2", _C.uint8: "|u1", _C.bool: "|b1", _C.complex64: "<c8", _C.complex128: "<c16"}
_DTYPES = {text[1:]: dtype for dtype, text in _TYPES.items()}
_LEGACY_STREAM = 1


def describe(tensor) -> dict:
    """What __cuda_array_interface__ of a tensor says.

    Raises AttributeError for tensors that are not on a CUDA device, are sparse, or of a dtype without a letter there (bfloat16), and
    RuntimeError for one that requires a gradient.
    """
    if not tensor.is_cuda:
        raise AttributeError(f"__cuda_array_interface__: the tensor is on {tensor.device}\nuse tensor.cuda() for a copy on a CUDA device")
    if tensor._is_any_sparse:
        raise AttributeError("__cuda_array_interface__: a sparse tensor has no dense data\nuse tensor.to_dense()")
    if tensor.dtype not in _TYPES:
        raise AttributeError(f"__cuda_array_interface__: {tensor.dtype} has no name there")
    if tensor.requires_grad:
        raise RuntimeError("__cuda_array_interface__: the tensor requires grad, which no other library can follow\nuse tensor.detach()")
    from . import current_stream

    size = tensor.element_size()
    strides = None if tensor.is_contiguous() else tuple(step * size for step in tensor.stride())
    return {"typestr": _TYPES[tensor.dtype], "shape": tuple(tensor.shape), "strides": strides, "version": 3,
            "data": (tensor.data_ptr() if tensor.numel() else 0, False),
            "stream": current_stream(tensor.device).cuda_stream or _LEGACY_STREAM}


def from_interface(source):
    """A tensor over the memory of an object with __cuda_array_interface__, on the device where that lies; the object is kept alive.

    That device's current stream waits for the stream that the object names. An empty array lies on the current device. Raises TypeError
    for element types that tensors do not have, ValueError for strides that they do not have, for masked arrays, and for memory that is
    on no CUDA device.
    """
    facts = source.__cuda_array_interface__
    op = "tensor"
    text = facts["typestr"]
    dtype = _DTYPES.get(text[1:])
    if dtype is None or text[0] == ">":
        raise TypeError(f"{op}: tensors have no dtype for the elements {text!r}")
    if facts.get("mask") is not None:
        raise ValueError(f"{op}: masked arrays cannot be taken")
    shape, size = tuple(facts["shape"]), int(text[2:])
    strides = facts.get("strides")
    steps = []
    if strides is None:
        step = 1
        for n in reversed(shape):
            steps.insert(0, step)
            step *= max(n, 1)
    else:
        if any(step % size or step < 0 for step in strides):
            raise ValueError(f"{op}: strides must be multiples of the element size of {size} bytes, and not negative: got {tuple(strides)}")
        steps = [step // size for step in strides]
    reach = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    from . import ExternalStream, current_device, current_stream

    device = _C._cuda_device_of(facts["data"][0]) if reach else current_device()
    if device < 0:
        raise ValueError(f"{op}: the memory of __cuda_array_interface__ is on no CUDA device: got the address {facts['data'][0]:#x}")
    memory = _C._cuda_over(facts["data"][0] if reach else 0, reach * size, device, source)
    stream = facts.get("stream")
    mine = current_stream(device)
    if stream is not None and (0 if stream == _LEGACY_STREAM else stream) != mine.cuda_stream:
        mine.wait_stream(ExternalStream(0 if stream == _LEGACY_STREAM else stream, device))
    return _C._tensor_over(memory, dtype, shape, tuple(steps), 0)
