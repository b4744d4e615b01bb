"""Pillow is optional: it is imported when an image is first made, read or written."""

import importlib
import sys


def pillow(module: str = "Image"):
    """The module PIL.<module>; ImportError with what to install when Pillow is missing."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError:
        raise ImportError("tapegrad.vision: images need Pillow, which is not installed\n"
                          "pip install pillow, or pip install 'tapegrad[vision]'") from None


def is_pil_image(value) -> bool:
    """Whether value is an image of Pillow; as long as Pillow was not imported nothing can be one."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)
