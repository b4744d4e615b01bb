"""Where loaded storages go: map_location and the devices' tags."""

import os

from .. import cuda
from .. import device as device_type
from ..storage import TypedStorage, UntypedStorage
from .errors import FromCaller, guarded

_packages: list[tuple] = []  # (priority, tagger, deserializer)


def register_package(priority: int, tagger, deserializer) -> None:
    """Adds a kind of device: tagger(storage) gives a location or None, deserializer(storage, location) a storage or None.

    Packages with a lower priority number are asked first.
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda p: p[0])


def location_tag(storage) -> str:
    """The name of a storage's device in files: cpu, meta, cuda:0."""
    for _, tagger, _ in _packages:
        found = tagger(storage)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")


def default_restore_location(storage, location: str):
    """The storage where a file says it was: moved to that device, or an error where this program has none."""
    for _, _, deserializer in _packages:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of {type(storage).__name__} (tagged with {location})")


def _restore_cpu(storage, location: str):
    if location == "cpu":
        return storage if storage.device.type == "cpu" else UntypedStorage._over(storage._bytes.cpu())
    return None


def _restore_meta(storage, location: str):
    return UntypedStorage._over(storage._bytes.to("meta")) if location == "meta" else None


def _restore_cuda(storage, location: str):
    if not location.startswith("cuda"):
        return None
    if not cuda.is_available():
        raise RuntimeError("Attempting to deserialize object on a CUDA device but tapegrad.cuda.is_available() is False. If you are "
                           "running on a CPU-only machine, please use tapegrad.load with map_location=tapegrad.device('cpu') to map your "
                           "storages to the CPU.")
    return UntypedStorage._over(storage._bytes.to(location))


def _tag(kind: str):
    def tagger(storage):
        device = storage.device
        if device.type != kind:
            return None
        return kind if device.index is None or kind == "cpu" else f"{kind}:{device.index}"
    return tagger


register_package(10, _tag("cpu"), _restore_cpu)
register_package(20, _tag("cuda"), _restore_cuda)
register_package(22, _tag("meta"), _restore_meta)


def is_meta(map_location) -> bool:
    return isinstance(map_location, (str, device_type)) and device_type(map_location).type == "meta"


def placer(map_location):
    """A function (bytes, location) -> bytes: tensors of bytes that are the memory of others."""
    def to(memory, location: str):
        if location == "cpu" and memory.is_cpu:
            return memory
        return guarded(default_restore_location, UntypedStorage._over(memory), location)._bytes

    if map_location is None:
        return to
    if isinstance(map_location, bytes):
        map_location = os.fsdecode(map_location)
    if isinstance(map_location, (str, int, device_type)):
        where = str(device_type(map_location))
        return lambda memory, location: to(memory, where)
    if isinstance(map_location, dict):
        table = {str(k): str(v) for k, v in map_location.items()}
        return lambda memory, location: to(memory, table.get(location, location))
    if callable(map_location):
        def ask(memory, location: str):
            chosen = guarded(map_location, UntypedStorage._over(memory), location)
            if chosen is None:
                return to(memory, location)
            if isinstance(chosen, TypedStorage):
                chosen = chosen.untyped()
            if not isinstance(chosen, UntypedStorage):
                raise FromCaller(TypeError(f"load: map_location must return a storage or None: got {type(chosen).__name__}"))
            return chosen._bytes
        return ask
    raise TypeError(f"load: map_location must be a device, a dictionary or a function: got {type(map_location).__name__}")
