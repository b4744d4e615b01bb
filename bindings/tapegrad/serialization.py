"""`save` and `load`. No pickle: tensors, numbers, texts and containers of them, in a file that every safetensors reader opens.

A save to a path is atomic: the old file is there until the new one is complete. Every tensor has a checksum.
PyTorch's .pt files are read, too.
"""

from __future__ import annotations

import io
import os

from . import device as _device_type
from ._files import container, torch_archive
from ._files.atomic import atomic_writer

__all__ = ["load", "save"]


def save(obj, f, pickle_module=None, pickle_protocol=None, _use_new_zipfile_serialization: bool = True) -> None:
    """Writes tensors and plain data to a path or a binary file object.

    dict, list, tuple, set, OrderedDict, numbers, texts, bytes, None, NumPy arrays, dtypes, devices and tensors are kept as
    they are, tied tensors stay tied. Other objects are refused: save their state_dict(). The pickle arguments are PyTorch's
    and have no effect.
    """
    if isinstance(f, (str, bytes, os.PathLike)):
        with atomic_writer(f) as file:
            container.write(obj, file)
    elif hasattr(f, "write"):
        container.write(obj, f)
    else:
        raise AttributeError(f"expected 'f' to be string, path, or a file-like object with a 'write' attribute: got "
                             f"{type(f).__name__}")


def _placer(map_location):
    """A function that moves a tensor, saved from the given device, to where map_location wants it."""
    def to(t, device):
        device = _device_type(device) if isinstance(device, (str, int)) else device
        return t if device.type == "cpu" else t.to(device)

    if map_location is None:
        return to
    if isinstance(map_location, (str, int, _device_type)):
        return lambda t, location: to(t, map_location)
    if isinstance(map_location, dict):
        return lambda t, location: to(t, map_location.get(location, location))
    if callable(map_location):
        def ask(t, location):
            chosen = map_location(t.untyped_storage(), location)
            return to(t, location if chosen is None else chosen.device)
        return ask
    raise TypeError(f"load: map_location must be a device, a dictionary or a function: got {type(map_location).__name__}")


def load(f, map_location=None, pickle_module=None, *, weights_only: bool | None = None, mmap: bool | None = None,
         **pickle_load_args):
    """Reads what `save` wrote, any safetensors file (as a dictionary of tensors) or a .pt file of PyTorch.

    map_location says where the tensors go: a device, a dictionary from saved to wanted device, or a function
    (storage, location) -> storage. Nothing in a file can run code, whatever weights_only says.
    """
    place = _placer(map_location)
    if isinstance(f, (str, bytes, os.PathLike)):
        with open(f, "rb") as file:
            return _read(file, place)
    if hasattr(f, "read"):
        return _read(f, place)
    raise AttributeError(f"load: expected a path or a file object with a 'read' method: got {type(f).__name__}")


def _read(file, place):
    start = bytes(container.read_exactly(file, 8, "its first eight bytes"))
    if torch_archive.is_archive(start):
        if hasattr(file, "seekable") and file.seekable():
            file.seek(-8, os.SEEK_CUR)
            return torch_archive.read(file, place)
        return torch_archive.read(io.BytesIO(start + file.read()), place)
    try:
        return container.read(file, start, place)
    except container.UnknownFormat:
        if start[0] == 0x80 and start[1] <= 5:
            raise RuntimeError("load: this is a bare pickle, which could run code and is not read\nold .pt files: load and save "
                               "them again with a torch of version 1.6 or newer") from None
        raise
