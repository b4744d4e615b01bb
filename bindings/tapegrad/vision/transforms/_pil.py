"""The image operations on Pillow's images. Called through `functional`, which checks arguments."""

import numpy as np

from .._pillow import pillow
from ._modes import PILLOW_NUMBERS

_CHANNELS = {"1": 1, "L": 1, "I": 1, "F": 1, "P": 1, "I;16": 1, "LA": 2, "PA": 2, "RGB": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "RGBA": 4,
             "RGBX": 4, "RGBa": 4, "CMYK": 4}


def dimensions(image) -> list[int]:
    """[channels, height, width]"""
    channels = _CHANNELS.get(image.mode) or len(image.getbands())
    return [channels, image.height, image.width]


def hflip(image):
    return image.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)


def vflip(image):
    return image.transpose(pillow().Transpose.FLIP_TOP_BOTTOM)


def crop(image, top, left, height, width):
    return image.crop((left, top, left + width, top + height))


def resize(image, size, mode):
    return image.resize((size[1], size[0]), PILLOW_NUMBERS[mode])


def fill_for(image, fill, name="fill"):
    """The fill as Pillow wants it: a number for one channel, a tuple of ints for several."""
    channels = dimensions(image)[0]
    if fill is None:
        fill = 0
    if isinstance(fill, (int, float)) and channels > 1:
        return tuple([fill] * channels)
    if isinstance(fill, (list, tuple)):
        if len(fill) == 1:
            fill = tuple(fill) * channels
        if len(fill) != channels:
            raise ValueError(f"The number of elements in '{name}' does not match the number of channels of the image ({len(fill)} != {channels})")
        fill = tuple(fill)
    if image.mode != "F":
        fill = tuple(int(v) for v in fill) if isinstance(fill, tuple) else int(fill)
    return fill[0] if isinstance(fill, tuple) and channels == 1 else fill


def pad(image, left, top, right, bottom, fill, padding_mode):
    if padding_mode == "constant":
        width, height = image.width + left + right, image.height + top + bottom
        out = pillow().new(image.mode, (width, height), fill_for(image, fill))
        if image.mode == "P":
            out.putpalette(image.getpalette())
        out.paste(image, (left, top))  # negative paddings cut
        return out
    if min(left, top, right, bottom) < 0:
        image = image.crop((-min(left, 0), -min(top, 0), image.width + min(right, 0), image.height + min(bottom, 0)))
        left, top, right, bottom = (max(v, 0) for v in (left, top, right, bottom))
    array = np.asarray(image)
    widths = ((top, bottom), (left, right)) + ((0, 0),) * (array.ndim - 2)
    out = pillow().fromarray(np.pad(array, widths, mode=padding_mode))
    if image.mode == "P":
        out.putpalette(image.getpalette())
    return out


def adjust_brightness(image, factor):
    return pillow("ImageEnhance").Brightness(image).enhance(factor)


def adjust_contrast(image, factor):
    return pillow("ImageEnhance").Contrast(image).enhance(factor)


def adjust_saturation(image, factor):
    return pillow("ImageEnhance").Color(image).enhance(factor)


def adjust_sharpness(image, factor):
    return pillow("ImageEnhance").Sharpness(image).enhance(factor)


def adjust_hue(image, factor):
    mode = image.mode
    if mode in {"L", "1", "I", "F"}:
        return image
    h, s, v = image.convert("HSV").split()
    shifted = np.asarray(h, dtype=np.uint8) + np.int32(factor * 255).astype(np.uint8)  # wraps around the circle of hues
    return pillow().merge("HSV", (pillow().fromarray(shifted.astype(np.uint8)), s, v)).convert(mode)


def adjust_gamma(image, gamma, gain):
    mode = image.mode
    image = image.convert("RGB")
    table = [int((255 + 1 - 1e-3) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    return image.point([min(v, 255) for v in table] * 3).convert(mode)


def to_grayscale(image, channels):
    gray = image.convert("L")
    return gray if channels == 1 else pillow().merge("RGB", (gray, gray, gray))


def affine(image, matrix, mode, fill):
    return image.transform(image.size, pillow().Transform.AFFINE, matrix, PILLOW_NUMBERS[mode], fillcolor=fill_for(image, fill))


def rotate(image, angle, mode, expand, center, fill):
    return image.rotate(angle, PILLOW_NUMBERS[mode], expand, center, fillcolor=fill_for(image, fill))


def perspective(image, coefficients, mode, fill):
    return image.transform(image.size, pillow().Transform.PERSPECTIVE, coefficients, PILLOW_NUMBERS[mode],
                           fillcolor=fill_for(image, fill))


def invert(image):
    return pillow("ImageOps").invert(image)


def posterize(image, bits):
    return pillow("ImageOps").posterize(image, bits)


def solarize(image, threshold):
    return pillow("ImageOps").solarize(image, threshold)


def autocontrast(image):
    return pillow("ImageOps").autocontrast(image)


def equalize(image):
    return pillow("ImageOps").equalize(image)
