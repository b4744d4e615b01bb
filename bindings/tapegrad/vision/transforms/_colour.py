"""Transforms of colours, blurring and erasing."""

import math
import numbers
from collections.abc import Sequence

from ... import empty, float32, rand, randperm, tensor
from ...nn import Module
from . import functional as F
from ._base import RandomChange, shown, size_pair, uniform, whole


# Colours.
class Grayscale(Module):
    """Shades of gray in one channel or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img):
        return F.rgb_to_grayscale(img, self.num_output_channels)

    __repr__ = shown("num_output_channels")


class RandomGrayscale(RandomChange):
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

    __repr__ = shown("brightness", "contrast", "saturation", "hue")


class RandomInvert(RandomChange):
    """The negative with probability p."""

    _change = staticmethod(F.invert)


class _RandomChangeBy(RandomChange):
    # _parameter: the attribute that is the second argument of _function
    def _set(self, value, p: float) -> None:
        RandomChange.__init__(self, p)
        setattr(self, self._parameter, value)

    def _change(self, img):
        return self._function(img, getattr(self, self._parameter))

    def __repr__(self) -> str:
        return shown(self._parameter, "p", separator=",")(self)


class RandomPosterize(_RandomChangeBy):
    """Fewer bits of each channel with probability p."""

    _parameter, _function = "bits", staticmethod(F.posterize)

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self._set(bits, p)


class RandomSolarize(_RandomChangeBy):
    """All values of at least threshold inverted with probability p."""

    _parameter, _function = "threshold", staticmethod(F.solarize)

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self._set(threshold, p)


class RandomAdjustSharpness(_RandomChangeBy):
    """Another sharpness with probability p."""

    _parameter, _function = "sharpness_factor", staticmethod(F.adjust_sharpness)

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self._set(sharpness_factor, p)


class RandomAutocontrast(RandomChange):
    """Each channel stretched over the whole range with probability p."""

    _change = staticmethod(F.autocontrast)


class RandomEqualize(RandomChange):
    """A flat histogram of each channel with probability p."""

    _change = staticmethod(F.equalize)


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
            top = whole(0, height - h + 1)
            return top, whole(0, width - w + 1), h, w, v
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

    __repr__ = shown("p", "scale", "ratio", "value", "inplace")


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

    __repr__ = shown("kernel_size", "sigma")
