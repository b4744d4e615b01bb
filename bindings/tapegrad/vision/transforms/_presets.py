"""The preprocessing that published weights expect."""

from ... import float32
from ...nn import Module
from .._pillow import is_pil_image
from . import functional as F
from .functional import InterpolationMode

__all__ = ["ImageClassification", "SemanticSegmentation"]


class ImageClassification(Module):
    """The shorter side resized, the middle cut out, values from 0 to 1, normalised: an image or a batch of tensors."""

    def __init__(self, *, crop_size: int, resize_size: int = 256, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
                 interpolation=InterpolationMode.BILINEAR, antialias=True) -> None:
        super().__init__()
        self.crop_size, self.resize_size, self.mean, self.std = [crop_size], [resize_size], list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias

    def forward(self, img):
        img = F.center_crop(F.resize(img, self.resize_size, self.interpolation, antialias=self.antialias), self.crop_size)
        img = F.pil_to_tensor(img) if is_pil_image(img) else img
        return F.normalize(F.convert_image_dtype(img, float32), self.mean, self.std)


class SemanticSegmentation(Module):
    """The shorter side resized, values from 0 to 1, normalised."""

    def __init__(self, *, resize_size: int | None, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
                 interpolation=InterpolationMode.BILINEAR, antialias=True) -> None:
        super().__init__()
        self.resize_size, self.mean, self.std = None if resize_size is None else [resize_size], list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias

    def forward(self, img):
        if self.resize_size is not None:
            img = F.resize(img, self.resize_size, self.interpolation, antialias=self.antialias)
        img = F.pil_to_tensor(img) if is_pil_image(img) else img
        return F.normalize(F.convert_image_dtype(img, float32), self.mean, self.std)
