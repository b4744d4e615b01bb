"""Writes TensorBoard's files; needs the package tensorboard (the extra `tensorboard`)."""

try:
    import tensorboard as _tensorboard
except ImportError as _error:
    raise ImportError("tapegrad.utils.tensorboard needs the package tensorboard, which is not installed\n"
                      "install it with: pip install tensorboard") from _error

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
