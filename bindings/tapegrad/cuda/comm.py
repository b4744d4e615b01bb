"""Tensors spread over several GPUs: copied to all, cut into parts, added up, put together. Gradients pass through all of them."""

from ._core import device_index, why

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _places(op: str, devices) -> list:
    from .. import _C, device

    if _C._cuda_device_count() == 0:
        raise RuntimeError(why(f"cuda.{op}"))
    if not devices:
        raise ValueError(f"{op}: at least one device is needed")
    return [device("cuda", device_index(d, op)) for d in devices]


def _only_one(op: str, first: str, a, second: str, b) -> None:
    if (a is None) == (b is None):
        raise RuntimeError(f"{op}: exactly one of '{first}' and '{second}' must be given: got {first}={a} and {second}={b}")


def _filled(op: str, out, parts: list) -> tuple:
    if len(out) != len(parts):
        raise ValueError(f"{op}: expected {len(parts)} outputs: got {len(out)}")
    for i, (target, part) in enumerate(zip(out, parts)):
        if not target.is_cuda or target.shape != part.shape:
            raise RuntimeError(f"{op}: output {i} must be a CUDA tensor of {list(part.shape)}: got {list(target.shape)} on {target.device}")
    for target, part in zip(out, parts):
        target.copy_(part)
    return tuple(out)


def broadcast(tensor, devices=None, *, out=None) -> tuple:
    """Copies of the tensor on all devices, or in the tensors of `out`."""
    _only_one("comm.broadcast", "devices", devices, "out", out)
    if out is not None:
        return _filled("comm.broadcast", out, [tensor] * len(out))
    return tuple(tensor.to(place) for place in _places("comm.broadcast", devices))


def broadcast_coalesced(tensors, devices, buffer_size: int = 10 << 20) -> tuple:
    """For each device copies of all tensors."""
    return tuple(tuple(t.to(place) for t in tensors) for place in _places("comm.broadcast_coalesced", devices))


def reduce_add(inputs, destination=None):
    """The sum of tensors of one shape from different GPUs, on the GPU `destination` (the current one)."""
    (place,) = _places("comm.reduce_add", [destination])
    if not inputs:
        raise ValueError("comm.reduce_add: at least one tensor is needed")
    for i, t in enumerate(inputs):
        if not t.is_cuda:
            raise ValueError("reduce_add expects all inputs to be on GPUs")
        if t.shape != inputs[0].shape:
            raise ValueError(f"input {i} has invalid size: got {tuple(t.shape)}, but expected {tuple(inputs[0].shape)}")
    total = inputs[0].to(place)
    for t in inputs[1:]:
        total = total + t.to(place)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size: int = 10 << 20) -> tuple:
    """The sums of the first, the second ... tensors of all lists, one list per GPU."""
    return tuple(reduce_add(row, destination) for row in zip(*inputs, strict=True))


def scatter(tensor, devices=None, chunk_sizes=None, dim: int = 0, streams=None, *, out=None) -> tuple:
    """Parts of the tensor along `dim`, of `chunk_sizes` or as equal as can be, one for each device, or in the tensors of `out`."""
    _only_one("comm.scatter", "devices", devices, "out", out)
    if out is not None:
        if chunk_sizes is not None:
            raise RuntimeError(f"comm.scatter: 'chunk_sizes' must not be given with 'out': got {chunk_sizes}")
        return _filled("comm.scatter", out, list(tensor.split([t.size(dim) for t in out], dim)))
    places = _places("comm.scatter", devices)
    parts = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    if chunk_sizes is not None and len(parts) != len(places):
        raise ValueError(f"comm.scatter: {len(parts)} parts for {len(places)} devices")
    from .streams import stream

    moved = []
    for i, (part, place) in enumerate(zip(parts, places)):
        with stream(streams[i] if streams else None):
            moved.append(part.to(place))
    return tuple(moved)


def gather(tensors, dim: int = 0, destination=None, *, out=None):
    """The tensors one behind the other along `dim`, on `destination` (the current GPU; -1 or "cpu": the host) or in `out`."""
    from .. import cat, device

    if out is not None:
        if destination is not None:
            raise RuntimeError(f"comm.gather: 'destination' must not be given with 'out': got {destination}")
        return out.copy_(cat([t.to(out.device) for t in tensors], dim))
    on_host = destination == -1 or (not isinstance(destination, (int, type(None))) and device(destination).type == "cpu")
    place = device("cpu") if on_host else _places("comm.gather", [destination])[0]
    return cat([t.to(place) for t in tensors], dim)
