"""Images: data sets, transforms, networks, operations on boxes, files. The names are torchvision's.

Pillow is needed where images are made, read or written; tensors go without it.
"""

import importlib as _importlib

_LAZY = frozenset(("datasets", "io", "models", "ops", "transforms", "tv_tensors", "utils"))
_image_backend = "PIL"


def set_image_backend(backend: str) -> None:
    """Which library reads image files: only 'PIL' is there."""
    if backend not in ("PIL", "accimage"):
        raise ValueError(f"Invalid backend '{backend}'. Options are 'PIL' and 'accimage'")
    if backend == "accimage":
        raise RuntimeError("set_image_backend: 'accimage' is not supported: use 'PIL'")


def get_image_backend() -> str:
    """Which library reads image files."""
    return _image_backend


def disable_beta_transforms_warning() -> None:
    """Accepted: `transforms.v2` gives no warning."""


def _is_tracing() -> bool:
    """False: nothing is traced. Old detection code asks."""
    return False


def __getattr__(name: str):
    if name == "__version__":
        from .._C import __version__ as ours

        value = f"0.28.0+tapegrad{ours}"  # the torchvision whose names these are: the one that belongs to PyTorch 2.13
    elif name in _LAZY:
        value = _importlib.import_module(f"{__name__}.{name}")
    else:
        from .._hints import no_attribute

        raise no_attribute(__name__, name, __dir__())
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_LAZY, "__version__"} - {"annotations"})
