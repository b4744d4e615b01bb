"""Operations on images: Pillow's, or tensors of shape (..., C, H, W), uint8 from 0 to 255 or floats from 0 to 1.

Names, arguments and results are those of torchvision.transforms.functional. Sizes are (height, width), angles degrees.
A wrong type raises TypeError, a wrong value ValueError, both before anything is computed.
"""

import math
import numbers

import numpy as np

from ... import Tensor, float32, float64, from_numpy, get_default_dtype, is_tensor, linalg, tensor
from ... import uint8 as _uint8
from ..._warn import warn
from .._pillow import is_pil_image, pillow
from . import _pil, _tensor
from ._modes import InterpolationMode, as_mode

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation", "adjust_sharpness",
    "affine", "autocontrast", "center_crop", "convert_image_dtype", "crop", "elastic_transform", "equalize", "erase", "five_crop",
    "gaussian_blur", "get_dimensions", "get_image_num_channels", "get_image_size", "hflip", "invert", "normalize", "pad", "perspective",
    "pil_to_tensor", "posterize", "resize", "resized_crop", "rgb_to_grayscale", "rotate", "solarize", "ten_crop", "to_grayscale",
    "to_pil_image", "to_tensor", "vflip",
]


def _kernels(image, who: str):
    """The module with the operations for this kind of image."""
    if isinstance(image, Tensor):
        if image.ndim < 2:
            raise TypeError(f"{who}: Tensor is not a torch image: got shape {tuple(image.shape)}")
        return _tensor
    if is_pil_image(image):
        return _pil
    raise TypeError(f"{who}: img should be PIL Image or Tensor: got {type(image)}")


# What an image is.
def get_dimensions(img) -> list[int]:
    """[channels, height, width]"""
    return _kernels(img, "get_dimensions").dimensions(img)


def get_image_size(img) -> list[int]:
    """[width, height]"""
    _, height, width = _kernels(img, "get_image_size").dimensions(img)
    return [width, height]


def get_image_num_channels(img) -> int:
    """The number of channels."""
    return _kernels(img, "get_image_num_channels").dimensions(img)[0]


# Between kinds of images.
def pil_to_tensor(pic):
    """A Pillow image as a tensor (C, H, W) of the same numbers."""
    if not is_pil_image(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    if pic.mode == "1":
        pic = pic.convert("L").point(lambda v: v // 255)
    array = np.array(pic, copy=True)
    if array.dtype == np.uint16:
        array = array.astype(np.int32)
    image = from_numpy(array)
    return image.unsqueeze(0) if array.ndim == 2 else image.permute(2, 0, 1)


def to_tensor(pic):
    """An image or an array (H, W, C) as a float tensor (C, H, W); 8-bit values become 0 to 1."""
    if is_pil_image(pic):
        if pic.mode == "1":
            return from_numpy(np.array(pic, dtype=np.uint8, copy=True)).unsqueeze(0).to(get_default_dtype())
        image = from_numpy(np.array(pic.convert("I") if pic.mode == "I;16" else pic, copy=True))
    elif isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        image = from_numpy(np.ascontiguousarray(pic))
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    image = image.unsqueeze(0) if image.ndim == 2 else image.permute(2, 0, 1)
    return image.to(get_default_dtype()).contiguous().div_(255) if image.dtype == _uint8 else image.contiguous()


def to_pil_image(pic, mode=None):
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image; floats of tensors are taken as 0 to 1."""
    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        if pic.ndim == 3 and pic.shape[-3] > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {pic.shape[-3]} channels.")
        pic = pic.detach()
        if pic.dtype.is_floating_point and mode != "F":
            pic = pic.mul(255).to(_uint8)
        pic = (pic.unsqueeze(0) if pic.ndim == 2 else pic).permute(1, 2, 0).contiguous().numpy()
    elif isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pic = pic[:, :, None] if pic.ndim == 2 else pic
        if pic.shape[-1] > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {pic.shape[-1]} channels.")
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    return _array_to_pil(pic, mode)


def _array_to_pil(array, mode):
    channels = array.shape[2]
    if channels == 1:
        array = array[:, :, 0]
        expected = {np.uint8: "L", np.int16: "I;16" if array.dtype.byteorder != ">" else "I;16B", np.int32: "I",
                    np.float32: "F"}.get(array.dtype.type)
        if mode is not None and mode != expected:
            raise ValueError(f"Incorrect mode ({mode}) supplied for input type {np.dtype}. Should be {expected}")
        if expected is None:
            raise TypeError(f"Input type {array.dtype} is not supported")
        if expected.startswith("I;16"):  # 16 bits of Pillow have no sign
            array = array.view(np.uint16)
        return pillow().fromarray(np.ascontiguousarray(array))
    permitted = {2: ("LA",), 3: ("RGB", "YCbCr", "HSV"), 4: ("RGBA", "CMYK", "RGBX")}[channels]
    if mode is not None and mode not in permitted:
        raise ValueError(f"Only modes {list(permitted)} are supported for {channels}D inputs")
    if array.dtype != np.uint8:
        raise TypeError(f"Input type {array.dtype} is not supported")
    mode = mode or permitted[0]
    height, width = array.shape[:2]
    return pillow().frombytes(mode, (width, height), np.ascontiguousarray(array).tobytes())


def convert_image_dtype(image, dtype=float32):
    """The image in another dtype, its values scaled to the new dtype's range."""
    if not isinstance(image, Tensor):
        raise TypeError("Input img should be Tensor Image")
    return _tensor.convert_dtype(image, dtype)


def normalize(tensor, mean, std, inplace: bool = False):  # noqa: A002
    """(tensor - mean) / std for each channel of a float image (..., C, H, W)."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.size()}")
    mean, std = (v.to(tensor.dtype) if isinstance(v, Tensor) else tensor.new_tensor(v) for v in (mean, std))
    if (std == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
    mean, std = (v.view(-1, 1, 1) if v.ndim == 1 else v for v in (mean, std))
    return (tensor.sub_(mean) if inplace else tensor - mean).div_(std)


# Sizes and parts.
def _pair(size, who: str, message: str) -> list[int]:
    if isinstance(size, numbers.Number):
        return [int(size), int(size)]
    if isinstance(size, (list, tuple)) and len(size) == 1:
        return [size[0], size[0]]
    if len(size) != 2:
        raise ValueError(f"{who}: {message}: got {size}")
    return list(size)


def resized_shape(height: int, width: int, size, max_size=None) -> list[int]:
    """[height, width] that `resize` gives: one number is the length of the shorter side."""
    if size is not None and len(size) == 2:
        return list(size)
    short, long = (width, height) if width <= height else (height, width)
    if size is None:
        new_short, new_long = int(max_size * short / long), max_size
    else:
        new_short, new_long = size[0], int(size[0] * long / short)
    if max_size is not None and size is not None:
        if max_size <= size[0]:
            raise ValueError(f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge size = {size}")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return [new_long, new_short] if width <= height else [new_short, new_long]


def resize(img, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
    """The image at another size; one number is the length of its shorter side, with the proportions kept."""
    mode = as_mode(interpolation, "resize")
    kernels = _kernels(img, "resize")
    if isinstance(size, int):
        size = [size]
    if isinstance(size, (list, tuple)):
        if len(size) not in (1, 2):
            raise ValueError(f"Size must be an int or a 1 or 2 element tuple/list, not a {len(size)} element tuple/list")
        if max_size is not None and len(size) != 1:
            raise ValueError("max_size should only be passed if size specifies the length of the smaller edge, i.e. size should be an "
                             "int or a sequence of length 1 in torchscript mode.")
    elif size is not None or max_size is None:
        raise TypeError(f"resize: got inappropriate size: {size!r}")
    _, height, width = kernels.dimensions(img)
    target = resized_shape(height, width, size, max_size)
    if target == [height, width]:
        return img
    if kernels is _pil:
        if antialias is False:
            warn("Anti-alias option is always applied for PIL Image input. Argument antialias is ignored.")
        return _pil.resize(img, target, mode)
    if mode not in (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC):
        raise NotImplementedError(f"resize: tensors have no interpolation {mode.value!r}")
    return _tensor.resize(img, target, mode.value, antialias)


def pad(img, padding, fill=0, padding_mode: str = "constant"):
    """Borders of `padding` pixels: one number, (left and right, top and bottom), or (left, top, right, bottom)."""
    kernels = _kernels(img, "pad")
    if not isinstance(padding, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate padding arg")
    if not isinstance(fill, (numbers.Number, str, tuple, list)) and fill is not None:
        raise TypeError("Got inappropriate fill arg")
    if not isinstance(padding_mode, str):
        raise TypeError("Got inappropriate padding_mode arg")
    if isinstance(padding, (tuple, list)) and len(padding) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    sides = [padding] if isinstance(padding, numbers.Number) else list(padding)
    left, top, right, bottom = (sides * 4)[:4] if len(sides) == 1 else sides * 2 if len(sides) == 2 else sides
    return kernels.pad(img, left, top, right, bottom, fill, padding_mode)


def crop(img, top: int, left: int, height: int, width: int):
    """The rectangle with the given corner and size; what lies outside of the image is 0."""
    return _kernels(img, "crop").crop(img, top, left, height, width)


def center_crop(img, output_size):
    """The middle of the image, with zeros around it where it is smaller than output_size."""
    kernels = _kernels(img, "center_crop")
    new_height, new_width = _pair(output_size, "center_crop", "please provide only two dimensions (h, w) for size")
    _, height, width = kernels.dimensions(img)
    if new_width > width or new_height > height:
        left, top = max((new_width - width) // 2, 0), max((new_height - height) // 2, 0)
        right, bottom = max((new_width - width + 1) // 2, 0), max((new_height - height + 1) // 2, 0)
        img = pad(img, [left, top, right, bottom], fill=0)
        _, height, width = kernels.dimensions(img)
        if (new_width, new_height) == (width, height):
            return img
    return kernels.crop(img, int(round((height - new_height) / 2.0)), int(round((width - new_width) / 2.0)), new_height, new_width)


def resized_crop(img, top: int, left: int, height: int, width: int, size, interpolation=InterpolationMode.BILINEAR, antialias=True):
    """A rectangle of the image at another size."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def hflip(img):
    """Left and right exchanged."""
    return _kernels(img, "hflip").hflip(img)


def vflip(img):
    """Top and bottom exchanged."""
    return _kernels(img, "vflip").vflip(img)


def five_crop(img, size):
    """The four corners and the middle: (top left, top right, bottom left, bottom right, centre)."""
    crop_height, crop_width = _pair(size, "five_crop", "Please provide only two dimensions (h, w) for size.")
    _, height, width = get_dimensions(img)
    if crop_width > width or crop_height > height:
        raise ValueError(f"Requested crop size {(crop_height, crop_width)} is bigger than input size {(height, width)}")
    below, beside = height - crop_height, width - crop_width
    corners = [(0, 0), (0, beside), (below, 0), (below, beside)]
    return (*(crop(img, top, left, crop_height, crop_width) for top, left in corners), center_crop(img, [crop_height, crop_width]))


def ten_crop(img, size, vertical_flip: bool = False):
    """The five crops of the image and those of its mirror image."""
    size = _pair(size, "ten_crop", "Please provide only two dimensions (h, w) for size.")
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


# Colours.
def _not_negative(value, name: str) -> float:
    if value < 0:
        raise ValueError(f"{name} ({value}) is not non-negative.")
    return value


def adjust_brightness(img, brightness_factor: float):
    """0 gives black, 1 the image itself, 2 twice its brightness."""
    return _kernels(img, "adjust_brightness").adjust_brightness(img, _not_negative(brightness_factor, "brightness_factor"))


def adjust_contrast(img, contrast_factor: float):
    """0 gives one shade of gray, 1 the image itself, 2 twice its contrast."""
    return _kernels(img, "adjust_contrast").adjust_contrast(img, _not_negative(contrast_factor, "contrast_factor"))


def adjust_saturation(img, saturation_factor: float):
    """0 gives a black and white picture, 1 the image itself, 2 twice its saturation."""
    return _kernels(img, "adjust_saturation").adjust_saturation(img, _not_negative(saturation_factor, "saturation_factor"))


def adjust_hue(img, hue_factor: float):
    """Turns the circle of hues by hue_factor (-0.5 to 0.5) of a full turn."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    return _kernels(img, "adjust_hue").adjust_hue(img, hue_factor)


def adjust_gamma(img, gamma: float, gain: float = 1):
    """gain * value ** gamma, with values from 0 to 1."""
    return _kernels(img, "adjust_gamma").adjust_gamma(img, _not_negative(gamma, "gamma"), gain)


def adjust_sharpness(img, sharpness_factor: float):
    """0 gives a blurred image, 1 the image itself, 2 a sharper one."""
    kernels = _kernels(img, "adjust_sharpness")
    if kernels is _tensor:
        _tensor.need_channels(img, (1, 3), "adjust_sharpness")
    return kernels.adjust_sharpness(img, _not_negative(sharpness_factor, "sharpness_factor"))


def to_grayscale(img, num_output_channels: int = 1):
    """A Pillow image in shades of gray, with one channel or three equal ones."""
    if not is_pil_image(img):
        raise TypeError("Input should be PIL Image")
    return rgb_to_grayscale(img, num_output_channels)


def rgb_to_grayscale(img, num_output_channels: int = 1):
    """Shades of gray, with one channel or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    return _kernels(img, "rgb_to_grayscale").to_grayscale(img, num_output_channels)


def invert(img):
    """The negative."""
    return _kernels(img, "invert").invert(img)


def posterize(img, bits: int):
    """Only the highest `bits` (0 to 8) bits of each channel."""
    if not 0 <= bits <= 8:
        raise ValueError(f"The number if bits should be between 0 and 8. Got {bits}")
    return _kernels(img, "posterize").posterize(img, bits)


def solarize(img, threshold: float):
    """All values of at least threshold inverted."""
    return _kernels(img, "solarize").solarize(img, threshold)


def autocontrast(img):
    """Each channel stretched over the whole range."""
    kernels = _kernels(img, "autocontrast")
    if kernels is _tensor:
        _tensor.need_channels(img, (1, 3), "autocontrast")
    return kernels.autocontrast(img)


def equalize(img):
    """Each channel with a flat histogram."""
    kernels = _kernels(img, "equalize")
    if kernels is _tensor:
        _tensor.need_channels(img, (1, 3), "equalize")
    return kernels.equalize(img)


# Geometry.
def _inverse_affine(center, angle, translate, scale, shear) -> list[float]:
    """The 2 x 3 matrix that says where a pixel of the output comes from.

    Forwards, a pixel is sheared along x and y, scaled and turned about center, and moved by translate:
    M = T(translate + center) R(angle) S(scale) Sh_y Sh_x T(-center); this is its inverse, row by row.
    """
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a, c = math.cos(turn - sy) / math.cos(sy), math.sin(turn - sy) / math.cos(sy)
    b, d = -a * math.tan(sx) - math.sin(turn), -c * math.tan(sx) + math.cos(turn)
    rows = [[d / scale, -b / scale], [-c / scale, a / scale]]  # the determinant of turns and shears is 1
    x, y = center[0] + translate[0], center[1] + translate[1]
    return [value for (p, q), middle in zip(rows, center, strict=True) for value in (p, q, middle - p * x - q * y)]


_GRID_MODES = (InterpolationMode.NEAREST, InterpolationMode.BILINEAR)


def _grid_mode(interpolation, kernels, who: str):
    mode = as_mode(interpolation, who)
    if kernels is _pil:
        return mode
    if mode not in _GRID_MODES:
        raise ValueError(f"This interpolation mode ({mode.value}) is unsupported with Tensor input")
    return mode.value


def rotate(img, angle: float, interpolation=InterpolationMode.NEAREST, expand: bool = False, center=None, fill=None):
    """The image turned counter-clockwise by angle about its middle or center (x, y); expand: large enough for all of it."""
    kernels = _kernels(img, "rotate")
    mode = _grid_mode(interpolation, kernels, "rotate")
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if center is not None and not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    if kernels is _pil:
        return _pil.rotate(img, angle, mode, expand, center, fill)
    _, height, width = _tensor.dimensions(img)
    middle = [0.0, 0.0] if center is None else [c - s * 0.5 for c, s in zip(center, (width, height), strict=True)]
    return _tensor.rotate(img, _inverse_affine(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0]), mode, expand, fill)


def affine(img, angle: float, translate, scale: float, shear, interpolation=InterpolationMode.NEAREST, fill=None, center=None):
    """The image sheared and scaled, turned clockwise by angle about its middle or center, and moved by translate (x, y) pixels."""
    kernels = _kernels(img, "affine")
    mode = _grid_mode(interpolation, kernels, "affine")
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if not isinstance(translate, (list, tuple)):
        raise TypeError("Argument translate should be a sequence")
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    if not isinstance(shear, (numbers.Number, list, tuple)):
        raise TypeError("Shear should be either a single value or a sequence of two values")
    shear = [shear, 0.0] if isinstance(shear, numbers.Number) else list(shear) * (3 - len(shear)) if len(shear) in (1, 2) else list(shear)
    if len(shear) != 2:
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    if center is not None and not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    _, height, width = kernels.dimensions(img)
    if kernels is _pil:
        middle = [width * 0.5, height * 0.5] if center is None else center
    else:
        middle = [0.0, 0.0] if center is None else [c - s * 0.5 for c, s in zip(center, (width, height), strict=True)]
    return kernels.affine(img, _inverse_affine(middle, angle, translate, scale, shear), mode, fill)


def _perspective_coefficients(startpoints, endpoints) -> list[float]:
    """The eight numbers of the projective map that takes endpoints to startpoints, by least squares."""
    rows, values = [], []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return linalg.lstsq(tensor(rows, dtype=float64), tensor(values, dtype=float64).unsqueeze(1)).solution.squeeze(1).tolist()


def perspective(img, startpoints, endpoints, interpolation=InterpolationMode.BILINEAR, fill=None):
    """The image seen so that the four startpoints (x, y) come to lie at endpoints."""
    kernels = _kernels(img, "perspective")
    mode = _grid_mode(interpolation, kernels, "perspective")
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise ValueError(f"Please provide exactly four corners, got {len(startpoints)} startpoints and {len(endpoints)} endpoints.")
    return kernels.perspective(img, _perspective_coefficients(startpoints, endpoints), mode, fill)


def elastic_transform(img, displacement, interpolation=InterpolationMode.BILINEAR, fill=None):
    """Each pixel taken from displacement (1, H, W, 2) away, in units of half the image."""
    kernels = _kernels(img, "elastic_transform")
    mode = _grid_mode(interpolation, _tensor, "elastic_transform")
    if not isinstance(displacement, Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    picture = pil_to_tensor(img) if kernels is _pil else img
    shape = (1, *picture.shape[-2:], 2)
    if tuple(displacement.shape) != shape:
        raise ValueError(f"Argument displacement shape should be {shape}, but given {tuple(displacement.shape)}")
    out = _tensor.displace(picture, displacement, mode, fill)
    return to_pil_image(out, mode=img.mode) if kernels is _pil else out


def gaussian_blur(img, kernel_size, sigma=None):
    """Smoothed with a Gaussian; kernel_size and sigma: one number, or (x, y)."""
    kernels = _kernels(img, "gaussian_blur")
    if not isinstance(kernel_size, (int, list, tuple)):
        raise TypeError(f"kernel_size should be int or a sequence of integers. Got {type(kernel_size)}")
    kernel_size = [kernel_size, kernel_size] if isinstance(kernel_size, int) else list(kernel_size)
    if len(kernel_size) != 2:
        raise ValueError(f"If kernel_size is a sequence its length should be 2. Got {len(kernel_size)}")
    for size in kernel_size:
        if size % 2 == 0 or size < 0:
            raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    if sigma is None:
        sigma = [size * 0.15 + 0.35 for size in kernel_size]
    if not isinstance(sigma, (int, float, list, tuple)):
        raise TypeError(f"sigma should be either float or sequence of floats. Got {type(sigma)}")
    sigma = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else list(sigma) * (3 - len(sigma)) if len(sigma) in (1, 2) else list(sigma)
    if len(sigma) != 2:
        raise ValueError(f"If sigma is a sequence, its length should be 2. Got {len(sigma)}")
    if min(sigma) <= 0.0:
        raise ValueError(f"sigma should have positive values. Got {sigma}")
    picture = pil_to_tensor(img) if kernels is _pil else img
    out = _tensor.gaussian_blur(picture, kernel_size, sigma)
    return to_pil_image(out, mode=img.mode) if kernels is _pil else out


def erase(img, i: int, j: int, h: int, w: int, v, inplace: bool = False):
    """The rectangle at row i and column j of height h and width w set to v."""
    if not is_tensor(img):
        raise TypeError(f"img should be Tensor Image. Got {type(img)}")
    return _tensor.erase(img, i, j, h, w, v, inplace)
