"""What the files here share: which device an argument means, and the library's reports."""

from .. import _C
from .. import device as _Device

__all__ = ["device_index", "missing", "report", "why"]

_HINT = "use device='cpu', or ask tapegrad.cuda.is_available() first"


def device_index(device=None, op: str = "cuda", optional: bool = True) -> int:
    """The index of a device given as None (the current one), a number, a name or a device."""
    if device is None:
        if not optional:
            raise ValueError(f"{op}: a device is needed")
        return _C._cuda_current_device(op)
    if isinstance(device, int):
        return _C._cuda_current_device(op) if device < 0 else device
    if isinstance(device, str):
        device = _Device(device)
    if not isinstance(device, _Device):
        index = getattr(device, "idx", None)
        if isinstance(index, int):
            return device_index(index, op)
        raise TypeError(f"{op}: expected a device, a number or a name: got {type(device).__name__}")
    if device.type != "cuda":
        raise ValueError(f"{op}: expected a CUDA device: got {device}")
    return _C._cuda_current_device(op) if device.index is None else device.index


def report(op: str, what: str, device: int = -1):
    """What the library says of itself, parsed."""
    import json

    return json.loads(_C._cuda_report(op, what, device))


def why(name: str) -> str:
    """The sentence for a function that needs a GPU where there is none."""
    return f"{name}: there is no CUDA device: {_C._cuda_why_not()}\n{_HINT}"


def missing(name: str, needs: str = ""):
    """A function that says what is missing: a GPU, or where there is one, `needs`."""
    full = name if name.startswith("cuda") else f"cuda.{name}"

    def refuse(*args, **kwargs):
        if _C._cuda_device_count() == 0:
            raise RuntimeError(why(full))
        raise NotImplementedError(f"{full}: {needs or 'not there'}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Not there: {needs}" if needs else "Needs a GPU."
    return refuse
