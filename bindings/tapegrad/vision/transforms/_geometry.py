"""Transforms of size and shape: resizing, cropping, flipping, turning."""

import math
import numbers
from collections.abc import Sequence

from ... import cat, rand
from ...nn import Module
from . import functional as F
from ._base import RandomChange, check_fill, fill_for, interval, shown, size_pair, size_pair_of_numbers, uniform, whole
from .functional import InterpolationMode, as_mode


# Sizes and parts.
class Resize(Module):
    """The image at another size; one number is the length of its shorter side."""

    def __init__(self, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True) -> None:
        super().__init__()
        if not isinstance(size, (int, Sequence)) and not (size is None and max_size is not None):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.max_size, self.antialias = size, max_size, antialias
        self.interpolation = as_mode(interpolation, "Resize")

    def forward(self, img):
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(size={self.size}, interpolation={self.interpolation.value}, max_size={self.max_size}, "
                f"antialias={self.antialias})")


class _Crop(Module):
    """Base of what is cut to one size."""

    def __init__(self, size) -> None:
        super().__init__()
        self.size = size_pair(size)

    __repr__ = shown("size")


class CenterCrop(_Crop):
    """The middle of the image."""

    def forward(self, img):
        return F.center_crop(img, self.size)


class Pad(Module):
    """Borders around the image."""

    def __init__(self, padding, fill=0, padding_mode: str = "constant") -> None:
        super().__init__()
        if not isinstance(padding, (numbers.Number, tuple, list)):
            raise TypeError("Got inappropriate padding arg")
        if not isinstance(fill, (numbers.Number, str, tuple, list)):
            raise TypeError("Got inappropriate fill arg")
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        if isinstance(padding, Sequence) and len(padding) not in (1, 2, 4):
            raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img):
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    __repr__ = shown("padding", "fill", "padding_mode")


class RandomCrop(Module):
    """A rectangle of the given size anywhere in the (padded) image."""

    @staticmethod
    def get_params(img, output_size) -> tuple[int, int, int, int]:
        """(top, left, height, width)"""
        _, h, w = F.get_dimensions(img)
        th, tw = output_size
        if h < th or w < tw:
            raise ValueError(f"Required crop size {(th, tw)} is larger than input image size {(h, w)}")
        if (w, h) == (tw, th):
            return 0, 0, h, w
        top = whole(0, h - th + 1)
        return top, whole(0, w - tw + 1), th, tw

    def __init__(self, size, padding=None, pad_if_needed: bool = False, fill=0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.size = tuple(size_pair(size))
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    def forward(self, img):
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    __repr__ = shown("size", "padding")


class RandomResizedCrop(Module):
    """A random part of the image, of a random share of its area and proportions, at the given size."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        self.size = size_pair(size)
        for name, value in (("Scale", scale), ("Ratio", ratio)):
            if not isinstance(value, Sequence):
                raise TypeError(f"{name} should be a sequence")
        self.interpolation = as_mode(interpolation, "RandomResizedCrop")
        self.antialias, self.scale, self.ratio = antialias, scale, ratio

    @staticmethod
    def get_params(img, scale, ratio) -> tuple[int, int, int, int]:
        """(top, left, height, width); ten tries, then the middle of the image."""
        _, height, width = F.get_dimensions(img)
        low, high = math.log(ratio[0]), math.log(ratio[1])
        for _ in range(10):
            area = height * width * uniform(scale[0], scale[1])
            aspect = math.exp(uniform(low, high))
            w, h = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
            if 0 < w <= width and 0 < h <= height:
                top = whole(0, height - h + 1)
                return top, whole(0, width - w + 1), h, w
        aspect = width / height
        w = width if aspect <= max(ratio) else int(round(height * max(ratio)))
        h = height if aspect >= min(ratio) else int(round(width / min(ratio)))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img):
        return F.resized_crop(img, *self.get_params(img, self.scale, self.ratio), self.size, self.interpolation, antialias=self.antialias)

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(v, 4) for v in values) for values in (self.scale, self.ratio))
        return (f"{type(self).__name__}(size={self.size}, scale={scale}, ratio={ratio}, interpolation={self.interpolation.value}, "
                f"antialias={self.antialias})")


class FiveCrop(_Crop):
    """The four corners and the middle, as a tuple."""

    def forward(self, img):
        return F.five_crop(img, self.size)


class TenCrop(Module):
    """The five crops of the image and of its mirror image, as a tuple."""

    def __init__(self, size, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = size_pair(size), vertical_flip

    def forward(self, img):
        return F.ten_crop(img, self.size, self.vertical_flip)

    __repr__ = shown("size", "vertical_flip")


class RandomHorizontalFlip(RandomChange):
    """Left and right exchanged with probability p."""

    _change = staticmethod(F.hflip)


class RandomVerticalFlip(RandomChange):
    """Top and bottom exchanged with probability p."""

    _change = staticmethod(F.vflip)


# Geometry and filters.
class RandomRotation(Module):
    """Turned by an angle between the two of degrees (or -degrees and degrees)."""

    def __init__(self, degrees, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=0) -> None:
        super().__init__()
        self.degrees = interval(degrees, "degrees")
        self.interpolation = as_mode(interpolation, "RandomRotation")
        if center is not None and (not isinstance(center, Sequence) or len(center) != 2):
            raise (ValueError if isinstance(center, Sequence) else TypeError)("center should be a sequence of length 2.")
        self.center, self.resample, self.expand, self.fill = center, self.interpolation, expand, check_fill(fill)

    @staticmethod
    def get_params(degrees) -> float:
        """An angle."""
        return uniform(float(degrees[0]), float(degrees[1]))

    def forward(self, img):
        return F.rotate(img, self.get_params(self.degrees), self.interpolation, self.expand, self.center, fill_for(img, self.fill))

    def __repr__(self) -> str:
        parts = [f"degrees={self.degrees}", f"interpolation={self.interpolation.value}", f"expand={self.expand}"]
        parts += [] if self.center is None else [f"center={self.center}"]
        parts += [] if self.fill is None else [f"fill={self.fill}"]
        return f"{type(self).__name__}({', '.join(parts)})"


class RandomAffine(Module):
    """Turned, moved by up to the given shares of its size, scaled and sheared at random."""

    def __init__(self, degrees, translate=None, scale=None, shear=None, interpolation=InterpolationMode.NEAREST, fill=0, center=None):
        super().__init__()
        self.degrees = interval(degrees, "degrees")
        for name, value in (("translate", translate), ("scale", scale), ("center", center)):
            if value is not None and (not isinstance(value, Sequence) or len(value) != 2):
                raise (ValueError if isinstance(value, Sequence) else TypeError)(f"{name} should be a sequence of length 2.")
        if translate is not None and not all(0.0 <= t <= 1.0 for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and min(scale) <= 0:
            raise ValueError("scale values should be positive")
        self.translate, self.scale, self.center, self.fill = translate, scale, center, check_fill(fill)
        self.shear = None if shear is None else interval(shear, "shear", (2, 4))
        self.resample = self.interpolation = as_mode(interpolation, "RandomAffine")

    @staticmethod
    def get_params(degrees, translate, scale_ranges, shears, img_size):
        """(angle, (x, y) to move by, scale, (x, y) to shear by); img_size: [width, height]"""
        angle = uniform(float(degrees[0]), float(degrees[1]))
        shift = (0, 0)
        if translate is not None:
            shift = tuple(int(round(uniform(-float(t * n), float(t * n)))) for t, n in zip(translate, img_size, strict=True))
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1])
        shear = (0.0, 0.0)
        if shears is not None:
            shear = (uniform(shears[0], shears[1]), uniform(shears[2], shears[3]) if len(shears) == 4 else 0.0)
        return angle, shift, scale, shear

    def forward(self, img):
        _, height, width = F.get_dimensions(img)
        angle, shift, scale, shear = self.get_params(self.degrees, self.translate, self.scale, self.shear, [width, height])
        return F.affine(img, angle, shift, scale, shear, self.interpolation, fill_for(img, self.fill), self.center)

    def __repr__(self) -> str:
        parts = [f"degrees={self.degrees}"]
        parts += [f"{name}={getattr(self, name)}" for name in ("translate", "scale", "shear") if getattr(self, name) is not None]
        parts += [] if self.interpolation is InterpolationMode.NEAREST else [f"interpolation={self.interpolation.value}"]
        parts += [f"fill={self.fill}"] if self.fill != 0 else []
        parts += [f"center={self.center}"] if self.center is not None else []
        return f"{type(self).__name__}({', '.join(parts)})"


class RandomPerspective(Module):
    """Seen from a random side with probability p; distortion_scale from 0 to 1 says how much."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation=InterpolationMode.BILINEAR, fill=0) -> None:
        super().__init__()
        self.p, self.distortion_scale, self.fill = p, distortion_scale, check_fill(fill)
        self.interpolation = as_mode(interpolation, "RandomPerspective")

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float):
        """The four corners before and after."""
        across, down = (int(distortion_scale * (n // 2)) for n in (width, height))
        topleft = [whole(0, across + 1), whole(0, down + 1)]
        topright = [whole(width - across - 1, width), whole(0, down + 1)]
        botright = [whole(width - across - 1, width), whole(height - down - 1, height)]
        botleft = [whole(0, across + 1), whole(height - down - 1, height)]
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        return start, [topleft, topright, botright, botleft]

    def forward(self, img):
        if rand(()).item() >= self.p:
            return img
        _, height, width = F.get_dimensions(img)
        start, end = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, start, end, self.interpolation, fill_for(img, self.fill))

    __repr__ = shown("p")


class ElasticTransform(Module):
    """Shifted by a smooth random field: alpha says how far, sigma how smooth."""

    def __init__(self, alpha=50.0, sigma=5.0, interpolation=InterpolationMode.BILINEAR, fill=0) -> None:
        super().__init__()
        self.alpha = [float(v) for v in size_pair_of_numbers(alpha, "alpha")]
        self.sigma = [float(v) for v in size_pair_of_numbers(sigma, "sigma")]
        self.interpolation, self.fill = as_mode(interpolation, "ElasticTransform"), fill

    @staticmethod
    def get_params(alpha, sigma, size):
        """A displacement (1, H, W, 2) in units of half the image; size: [height, width]"""
        fields = []
        for amount, smooth, along in zip(alpha, sigma, size, strict=True):
            field = rand(1, 1, *size) * 2 - 1
            if smooth > 0.0:
                kernel = int(8 * smooth + 1)
                field = F.gaussian_blur(field, [kernel + 1 - kernel % 2] * 2, [smooth] * 2)
            fields.append(field * amount / along)
        return cat(fields, 1).permute(0, 2, 3, 1)

    def forward(self, img):
        _, height, width = F.get_dimensions(img)
        return F.elastic_transform(img, self.get_params(self.alpha, self.sigma, [height, width]), self.interpolation, self.fill)

    __repr__ = shown("alpha", "sigma", "interpolation", "fill")
