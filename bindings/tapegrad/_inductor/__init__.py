"""PyTorch's generator of kernels, as scripts steer it: switches are kept and change nothing."""

from . import config

__all__ = ["config"]
