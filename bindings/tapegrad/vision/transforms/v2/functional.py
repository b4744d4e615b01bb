"""The functions of `transforms.functional` under the names and with the arguments that version 2 has, and what it adds.

Images are tensors (..., C, H, W) or Pillow's images; the classes of `tv_tensors` are accepted as the tensors that they are.
"""

import numpy as np

from .... import Tensor, float32, tensor, uint8, where
from ..._pillow import is_pil_image
from .. import functional as _first
from ..functional import *  # noqa: F403
from ..functional import (
    InterpolationMode,  # noqa: F401
    convert_image_dtype,
    get_dimensions,
    hflip,
    rgb_to_grayscale,
    vflip,
)
from ._samples import ToImage

horizontal_flip, vertical_flip = hflip, vflip
horizontal_flip_image, vertical_flip_image = hflip, vflip
crop_image, center_crop_image, resize_image, normalize_image = _first.crop, _first.center_crop, _first.resize, _first.normalize


def to_image(inpt):
    """A tensor, an array (H, W, C) or a Pillow image as a `tv_tensors.Image`."""
    if not isinstance(inpt, (Tensor, np.ndarray)) and not is_pil_image(inpt):
        raise TypeError(f"to_image: expected a tensor, a NumPy array or a PIL image: got {type(inpt).__name__}")
    return ToImage._convert(inpt)


def to_dtype(inpt, dtype=float32, scale: bool = False):
    """A tensor of another dtype; with `scale` from the range of one dtype (floats: 0 to 1) to that of the other."""
    if not scale:
        return inpt.to(dtype)
    return convert_image_dtype(inpt, dtype)


to_dtype_image = to_dtype_video = to_dtype


def get_size(inpt) -> list[int]:
    """[height, width]."""
    return list(get_dimensions(inpt)[1:])


def pad(inpt, padding, fill=None, padding_mode: str = "constant"):
    """Adds borders: `padding` is one number, (left/right, top/bottom) or (left, top, right, bottom); `fill` 0 if None, or one per channel."""
    if isinstance(fill, (list, tuple)) and isinstance(inpt, Tensor) and padding_mode == "constant":
        inside = _first.pad(inpt.new_ones(inpt.shape[-2:], dtype=uint8)[None], padding).bool()
        return where(inside, _first.pad(inpt, padding), tensor(list(fill), dtype=inpt.dtype).view(-1, 1, 1))
    return _first.pad(inpt, padding, 0 if fill is None else fill, padding_mode)


pad_image = pad


def grayscale_to_rgb(inpt):
    """Three equal channels from one; images of three stay as they are."""
    if is_pil_image(inpt):
        return inpt.convert("RGB")
    return inpt.expand(*inpt.shape[:-3], 3, *inpt.shape[-2:]) if inpt.shape[-3] == 1 else inpt


rgb_to_grayscale_image, grayscale_to_rgb_image = rgb_to_grayscale, grayscale_to_rgb


def permute_channels(inpt, permutation: list[int]):
    """The channels in another order."""
    if inpt.shape[-3] != len(permutation):
        raise ValueError(f"permute_channels: the permutation has {len(permutation)} numbers: expected {inpt.shape[-3]}")
    return inpt[..., permutation, :, :]
