"""Preprocessing and augmentation of images: Pillow's, and tensors (..., C, H, W)."""

from . import functional
from .autoaugment import *
from .functional import InterpolationMode
from .transforms import *


def __getattr__(name: str):
    if name != "v2":
        from ..._hints import no_attribute

        raise no_attribute(__name__, name, globals())
    import importlib

    return importlib.import_module(f"{__name__}.v2")
