"""Collectives that gradients pass through, and modules on other workers."""

from ..._lazy import load as _load
from . import functional
from .functional import *  # noqa: F403
from .functional import __all__ as _names

__all__ = [*_names, "RemoteModule", "functional"]  # noqa: F405, F822  it is loaded when it is asked for


def __getattr__(name: str):
    if name in ("RemoteModule", "api"):
        module = _load(f"{__name__}.api.remote_module")
        return module.RemoteModule if name == "RemoteModule" else _load(f"{__name__}.api")
    from ..._hints import no_attribute

    raise no_attribute(__name__, name, __all__)
