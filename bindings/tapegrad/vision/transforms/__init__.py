"""What is done to images before a network sees them: on Pillow's images and on tensors (..., C, H, W)."""

from . import functional
from .functional import InterpolationMode
from .transforms import *
