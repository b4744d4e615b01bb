"""Transforms of whole samples: images, videos and masks in tuples, lists and dictionaries, with the same random numbers for all of them.

What is no image goes through unchanged. Of plain tensors the first is an image where the sample has no other one. Masks follow the
geometry (without interpolation) and keep their values. Bounding boxes are not supported. `functional` is that of `transforms`.
"""

from __future__ import annotations

from ... import tv_tensors
from .. import functional
from ..autoaugment import AutoAugmentPolicy
from ..functional import InterpolationMode
from ._samples import *
