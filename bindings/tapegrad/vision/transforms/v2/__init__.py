"""Transforms of whole samples: images, videos and masks in tuples, lists and dictionaries, with the same random numbers for all of them.

What is no image goes through unchanged. Of plain tensors the first is an image where the sample has no other one. Masks follow the
geometry (without interpolation) and keep their values. Bounding boxes are not supported.
"""

from ... import tv_tensors
from ..autoaugment import AutoAugmentPolicy
from ..functional import InterpolationMode
from . import functional
from ._samples import *
