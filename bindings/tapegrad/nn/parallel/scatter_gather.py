"""Nested values cut into parts for several devices, and put together again."""

import importlib

__all__ = ["gather", "scatter", "scatter_kwargs"]


def _devices(target) -> list:
    return list(target) if isinstance(target, (list, tuple)) else [target]


def scatter(inputs, target_gpus, dim: int = 0) -> list:
    """One value per device, each with its part of every tensor; what is not a tensor goes to all.

    With one device (of any name that is there) the only part is the whole.
    """
    targets = _devices(target_gpus)
    Tensor = importlib.import_module("tapegrad").Tensor

    def parts(value):
        if isinstance(value, Tensor):
            return [chunk.to(device) for chunk, device in zip(value.chunk(len(targets), dim), targets)] if len(targets) > 1 else [_moved(value, targets[0])]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value)(*row) for row in zip(*map(parts, value))]
        if isinstance(value, tuple) and value:
            return list(zip(*map(parts, value)))
        if isinstance(value, list) and value:
            return [list(row) for row in zip(*map(parts, value))]
        if isinstance(value, dict) and value:
            return [type(value)(row) for row in zip(*map(parts, value.items()))]
        return [value for _ in targets]

    return parts(inputs)


def _moved(value, device):
    return value.to(device) if device is not None and device != -1 else value


def scatter_kwargs(inputs, kwargs, target_gpus, dim: int = 0):
    """Positional and named arguments for each device; the shorter list is filled up with empty ones."""
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    names = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(rows), len(names))
    rows += [()] * (count - len(rows))
    names += [{} for _ in range(count - len(names))]
    return tuple(rows), tuple(names)


def gather(outputs, target_device, dim: int = 0):
    """The parts of several devices put together: tensors along `dim`, containers entry by entry."""
    root = importlib.import_module("tapegrad")
    first = outputs[0]
    if isinstance(first, root.Tensor):
        moved = [_moved(o, target_device) for o in outputs]
        if len(moved) == 1:
            return moved[0]
        return root.stack(moved) if first.dim() == 0 else root.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(first) != len(o) for o in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([o[key] for o in outputs], target_device, dim)) for key in first)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)._make(gather(row, target_device, dim) for row in zip(*outputs))
    return type(first)(gather(row, target_device, dim) for row in zip(*outputs))
