"""Transforms as objects: called with an image, they give the changed one. Names and arguments are torchvision's.

Random numbers come from tapegrad's generator (`RandomChoice` and `RandomOrder` use Python's), so that the loader's keys for each
sample make them independent of the number of workers.
"""

from __future__ import annotations

import math
import numbers
import random
from collections.abc import Sequence

from ... import cat, empty, float32, is_tensor, rand, randint, randperm, tensor
from ...nn import Module
from . import functional as F
from .functional import InterpolationMode, as_mode

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "ElasticTransform", "FiveCrop", "GaussianBlur", "Grayscale", "Lambda",
    "LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandomAdjustSharpness", "RandomAffine", "RandomApply",
    "RandomAutocontrast", "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip",
    "RandomInvert", "RandomOrder", "RandomPerspective", "RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSolarize",
    "RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage", "ToTensor",
]


# Small tools that several transforms share.
def size_pair_of_numbers(value, name: str):
    """The same number twice, or the two given ones."""
    if isinstance(value, numbers.Number):
        return value, value
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a number or a sequence of numbers. Got {type(value)}")
    if len(value) not in (1, 2):
        raise ValueError(f"If {name} is a sequence its length should be 1 or 2. Got {len(value)}")
    return value[0], value[-1]



def uniform(low: float, high: float) -> float:
    """A random number between low and high."""
    return low + (high - low) * rand(()).item()


def _whole(low: int, high: int) -> int:
    """A random integer from low to high - 1."""
    return int(randint(low, high, ()).item())


def size_pair(size, message="Please provide only two dimensions (h, w) for size."):
    """(height, width) of one number or a sequence of one or two."""
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(message)
    return size


def _range(value, name: str, lengths=(2,)) -> list[float]:
    """The interval -value to value of one number, or the interval itself."""
    if isinstance(value, numbers.Number):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length {' or '.join(map(str, lengths))}.")
    if len(value) not in lengths:
        raise ValueError(f"{name} should be sequence of length {' or '.join(map(str, lengths))}.")
    return [float(v) for v in value]


def fill_for(img, fill):
    """A fill of random geometry: for a tensor one number for each channel."""
    if not is_tensor(img):
        return fill
    channels = F.get_dimensions(img)[0]
    return [float(fill)] * channels if isinstance(fill, (int, float)) else [float(v) for v in fill]


def _check_fill(fill):
    if fill is None:
        return 0
    if not isinstance(fill, (Sequence, numbers.Number)):
        raise TypeError("Fill should be either a sequence or a number.")
    return fill


class _Random(Module):
    """Base of what happens with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img):
        return self._change(img) if rand(()).item() < self.p else img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


# Containers.
class Compose:
    """Several transforms one after the other."""

    def __init__(self, transforms) -> None:
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(" + "".join(f"\n    {t}" for t in self.transforms) + "\n)"


class Lambda:
    """A function of one's own."""

    def __init__(self, lambd) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RandomTransforms:
    """Base of RandomOrder and RandomChoice."""

    def __init__(self, transforms) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    __repr__ = Compose.__repr__


class RandomApply(Module):
    """All transforms with probability p, or none."""

    def __init__(self, transforms, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img):
        if self.p < rand(()).item():
            return img
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    p={self.p}" + "".join(f"\n    {t}" for t in self.transforms) + "\n)"


class RandomOrder(RandomTransforms):
    """All transforms in a random order."""

    def __call__(self, img):
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img


class RandomChoice(RandomTransforms):
    """One of the transforms, drawn with the weights p."""

    def __init__(self, transforms, p=None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args):
        return random.choices(self.transforms, weights=self.p)[0](*args)

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"


# Between kinds of images.
class ToTensor:
    """A Pillow image or an array (H, W, C) as a float tensor (C, H, W) with values from 0 to 1."""

    def __call__(self, pic):
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """A Pillow image as a tensor (C, H, W) of the same numbers."""

    def __call__(self, pic):
        return F.pil_to_tensor(pic)

    __repr__ = ToTensor.__repr__


class ToPILImage:
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image."""

    def __init__(self, mode=None) -> None:
        self.mode = mode

    def __call__(self, pic):
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(Module):
    """The image in another dtype, its values scaled to the new dtype's range."""

    def __init__(self, dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image):
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Module):
    """(value - mean) / std for each channel of a float image."""

    def __init__(self, mean, std, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor):
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


class LinearTransformation(Module):
    """The flattened image minus mean_vector, times a square matrix: whitening."""

    def __init__(self, transformation_matrix, mean_vector) -> None:
        super().__init__()
        n = transformation_matrix.size(0)
        if n != transformation_matrix.size(1):
            raise ValueError(f"transformation_matrix should be square. Got {list(transformation_matrix.size())} rectangular matrix.")
        if mean_vector.size(0) != n:
            raise ValueError(f"mean_vector should have the same length {mean_vector.size(0)} as any one of the dimensions of the "
                             f"transformation_matrix {list(transformation_matrix.size())}")
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor):
        shape = tensor.shape
        n = shape[-3] * shape[-2] * shape[-1]
        if n != self.transformation_matrix.shape[0]:
            raise ValueError(f"Input tensor and transformation matrix have incompatible shape.{list(shape)} != {self.transformation_matrix.shape[0]}")
        return ((tensor.reshape(-1, n) - self.mean_vector) @ self.transformation_matrix).reshape(shape)


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


class CenterCrop(Module):
    """The middle of the image."""

    def __init__(self, size) -> None:
        super().__init__()
        self.size = size_pair(size)

    def forward(self, img):
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


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
        top = _whole(0, h - th + 1)
        return top, _whole(0, w - tw + 1), th, tw

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


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
                top = _whole(0, height - h + 1)
                return top, _whole(0, width - w + 1), h, w
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


class FiveCrop(Module):
    """The four corners and the middle, as a tuple."""

    def __init__(self, size) -> None:
        super().__init__()
        self.size = size_pair(size)

    def forward(self, img):
        return F.five_crop(img, self.size)

    __repr__ = CenterCrop.__repr__


class TenCrop(Module):
    """The five crops of the image and of its mirror image, as a tuple."""

    def __init__(self, size, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = size_pair(size), vertical_flip

    def forward(self, img):
        return F.ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, vertical_flip={self.vertical_flip})"


class RandomHorizontalFlip(_Random):
    """Left and right exchanged with probability p."""

    _change = staticmethod(F.hflip)


class RandomVerticalFlip(_Random):
    """Top and bottom exchanged with probability p."""

    _change = staticmethod(F.vflip)


# Colours.
class Grayscale(Module):
    """Shades of gray in one channel or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img):
        return F.rgb_to_grayscale(img, self.num_output_channels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_output_channels={self.num_output_channels})"


class RandomGrayscale(_Random):
    """Shades of gray with probability p, in as many channels as before."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def _change(self, img):
        return F.rgb_to_grayscale(img, F.get_dimensions(img)[0])


class ColorJitter(Module):
    """Random brightness, contrast, saturation and hue, in random order.

    A number x stands for the range max(0, 1 - x) to 1 + x; of hue for -x to x, at most 0.5.
    """

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0) -> None:
        super().__init__()
        self.brightness = self._check(brightness, "brightness")
        self.contrast = self._check(contrast, "contrast")
        self.saturation = self._check(saturation, "saturation")
        self.hue = self._check(hue, "hue", center=0, bound=(-0.5, 0.5))

    @staticmethod
    def _check(value, name, center=1, bound=(0, float("inf"))):
        if isinstance(value, numbers.Number):
            if value < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            value = [center - float(value), center + float(value)]
            if name != "hue":
                value[0] = max(value[0], 0.0)
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            value = [float(v) for v in value]
        else:
            raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
        if not bound[0] <= value[0] <= value[1] <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {value}.")
        return None if value[0] == value[1] == center else tuple(value)

    @staticmethod
    def get_params(brightness, contrast, saturation, hue):
        """(order, factor of each, or None)"""
        order = randperm(4)
        return order, *(None if limits is None else uniform(limits[0], limits[1]) for limits in (brightness, contrast, saturation, hue))

    def forward(self, img):
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        change = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order.tolist():
            if factors[i] is not None:
                img = change[i](img, factors[i])
        return img

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(brightness={self.brightness}, contrast={self.contrast}, saturation={self.saturation}, "
                f"hue={self.hue})")


class RandomInvert(_Random):
    """The negative with probability p."""

    _change = staticmethod(F.invert)


class RandomPosterize(_Random):
    """Fewer bits of each channel with probability p."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def _change(self, img):
        return F.posterize(img, self.bits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(bits={self.bits},p={self.p})"


class RandomSolarize(_Random):
    """All values of at least threshold inverted with probability p."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def _change(self, img):
        return F.solarize(img, self.threshold)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(threshold={self.threshold},p={self.p})"


class RandomAdjustSharpness(_Random):
    """Another sharpness with probability p."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def _change(self, img):
        return F.adjust_sharpness(img, self.sharpness_factor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sharpness_factor={self.sharpness_factor},p={self.p})"


class RandomAutocontrast(_Random):
    """Each channel stretched over the whole range with probability p."""

    _change = staticmethod(F.autocontrast)


class RandomEqualize(_Random):
    """A flat histogram of each channel with probability p."""

    _change = staticmethod(F.equalize)


# Geometry and filters.
class RandomRotation(Module):
    """Turned by an angle between the two of degrees (or -degrees and degrees)."""

    def __init__(self, degrees, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=0) -> None:
        super().__init__()
        self.degrees = _range(degrees, "degrees")
        self.interpolation = as_mode(interpolation, "RandomRotation")
        if center is not None and (not isinstance(center, Sequence) or len(center) != 2):
            raise (ValueError if isinstance(center, Sequence) else TypeError)("center should be a sequence of length 2.")
        self.center, self.resample, self.expand, self.fill = center, self.interpolation, expand, _check_fill(fill)

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
        self.degrees = _range(degrees, "degrees")
        for name, value in (("translate", translate), ("scale", scale), ("center", center)):
            if value is not None and (not isinstance(value, Sequence) or len(value) != 2):
                raise (ValueError if isinstance(value, Sequence) else TypeError)(f"{name} should be a sequence of length 2.")
        if translate is not None and not all(0.0 <= t <= 1.0 for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and min(scale) <= 0:
            raise ValueError("scale values should be positive")
        self.translate, self.scale, self.center, self.fill = translate, scale, center, _check_fill(fill)
        self.shear = None if shear is None else _range(shear, "shear", (2, 4))
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
        self.p, self.distortion_scale, self.fill = p, distortion_scale, _check_fill(fill)
        self.interpolation = as_mode(interpolation, "RandomPerspective")

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float):
        """The four corners before and after."""
        across, down = (int(distortion_scale * (n // 2)) for n in (width, height))
        topleft = [_whole(0, across + 1), _whole(0, down + 1)]
        topright = [_whole(width - across - 1, width), _whole(0, down + 1)]
        botright = [_whole(width - across - 1, width), _whole(height - down - 1, height)]
        botleft = [_whole(0, across + 1), _whole(height - down - 1, height)]
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        return start, [topleft, topright, botright, botleft]

    def forward(self, img):
        if rand(()).item() >= self.p:
            return img
        _, height, width = F.get_dimensions(img)
        start, end = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, start, end, self.interpolation, fill_for(img, self.fill))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, sigma={self.sigma}, interpolation={self.interpolation}, fill={self.fill})"


class RandomErasing(Module):
    """A rectangle of a tensor image erased with probability p: with a number, one for each channel, or 'random' noise."""

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False) -> None:
        super().__init__()
        if not isinstance(value, (numbers.Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not isinstance(scale, Sequence) or not isinstance(ratio, Sequence):
            raise TypeError("Scale and ratio should be sequences")
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if p < 0 or p > 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    @staticmethod
    def get_params(img, scale, ratio, value=None):
        """(top, left, height, width, what to put there); the image itself when ten tries find no place"""
        channels, height, width = img.shape[-3:]
        low, high = math.log(ratio[0]), math.log(ratio[1])
        for _ in range(10):
            area = height * width * uniform(scale[0], scale[1])
            aspect = math.exp(uniform(low, high))
            h, w = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
            if not (h < height and w < width):
                continue
            v = empty([channels, h, w], dtype=float32).normal_() if value is None else tensor(value)[:, None, None]
            top = _whole(0, height - h + 1)
            return top, _whole(0, width - w + 1), h, w, v
        return 0, 0, height, width, img

    def forward(self, img):
        if rand(()).item() >= self.p:
            return img
        if isinstance(self.value, (int, float)):
            value = [float(self.value)]
        else:
            value = None if isinstance(self.value, str) else [float(v) for v in self.value]
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError("If value is a sequence, it should have either a single value or "
                             f"{img.shape[-3]} (number of input channels)")
        return F.erase(img, *self.get_params(img, self.scale, self.ratio, value), self.inplace)

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(p={self.p}, scale={self.scale}, ratio={self.ratio}, value={self.value}, "
                f"inplace={self.inplace})")


class GaussianBlur(Module):
    """Smoothed with a Gaussian whose sigma is drawn from a range."""

    def __init__(self, kernel_size, sigma=(0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = size_pair(kernel_size, "Kernel size should be a tuple/list of two integers")
        for size in self.kernel_size:
            if size <= 0 or size % 2 == 0:
                raise ValueError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, numbers.Number):
            if sigma <= 0:
                raise ValueError("If sigma is a single number, it must be positive.")
            sigma = (sigma, sigma)
        elif isinstance(sigma, Sequence) and len(sigma) in (1, 2):
            sigma = (sigma[0], sigma[-1])
            if not 0.0 < sigma[0] <= sigma[1]:
                raise ValueError(f"sigma values should be positive and of the form (min, max). Got {sigma}")
        else:
            raise TypeError(f"sigma should be a single number or a sequence with length 2 but got {type(sigma)}.")
        self.sigma = sigma

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """A sigma."""
        return uniform(sigma_min, sigma_max)

    def forward(self, img):
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kernel_size={self.kernel_size}, sigma={self.sigma})"
