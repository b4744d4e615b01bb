"""The image operations on tensors of shape (..., C, H, W). Called through `functional`, which checks arguments.

Float images have values from 0 to 1, integer images from 0 to the dtype's largest value.
"""

from ... import arange, bincount, cat, float32, float64, iinfo, linspace, ones, stack, tensor, where, zeros_like
from ... import uint8 as _uint8
from ...nn import functional as F


def dimensions(image) -> list[int]:
    """[channels, height, width]"""
    return [1 if image.ndim == 2 else image.shape[-3], image.shape[-2], image.shape[-1]]


def max_value(dtype) -> int:
    """The value of white."""
    return 1 if dtype.is_floating_point else iinfo(dtype).max


def need_channels(image, permitted, who: str) -> None:
    channels = dimensions(image)[0]
    if channels not in permitted:
        raise TypeError(f"{who}: input image tensor permitted channel values are {list(permitted)}: got {channels}")


def convert_dtype(image, dtype):
    """The same picture in another dtype; between integers and floats the range changes with it."""
    if image.dtype == dtype:
        return image
    if image.dtype.is_floating_point:
        if dtype.is_floating_point:
            return image.to(dtype)
        if (image.dtype == float32 and iinfo(dtype).bits >= 32) or (image.dtype == float64 and iinfo(dtype).bits >= 64):
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
        # Not "max", which only white itself would reach: every integer gets an interval of the same length.
        return (image * (max_value(dtype) + 1 - 1e-3)).to(dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / max_value(image.dtype)
    mine, wanted = max_value(image.dtype), max_value(dtype)
    if mine > wanted:
        return image.div((mine + 1) // (wanted + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((wanted + 1) // (mine + 1))


def _cast_in(image, dtypes):
    """(image as a 4-d batch of one of dtypes, whether a dimension was added, whether the dtype changed, dtype)"""
    added = image.ndim < 4
    old = image.dtype
    if added:
        image = image.unsqueeze(0)
    changed = old not in dtypes
    return (image.to(float32) if changed else image), added, changed, old


def _cast_out(image, added, changed, dtype):
    if added:
        image = image.squeeze(0)
    if changed:
        image = (image if dtype.is_floating_point else image.round()).to(dtype)
    return image


def hflip(image):
    return image.flip(-1)


def vflip(image):
    return image.flip(-2)


def crop(image, top, left, height, width):
    h, w = image.shape[-2:]
    right, bottom = left + width, top + height
    inside = image[..., max(top, 0):max(bottom, 0), max(left, 0):max(right, 0)]
    if left < 0 or top < 0 or right > w or bottom > h:
        borders = [max(min(right, 0) - left, 0), max(right - max(w, left), 0), max(min(bottom, 0) - top, 0), max(bottom - max(h, top), 0)]
        return F.pad(inside, borders)
    return inside


def resize(image, size, mode, antialias):
    image, added, changed, dtype = _cast_in(image, (float32, float64))
    smooth = mode in ("bilinear", "bicubic")
    out = F.interpolate(image, size=tuple(size), mode=mode, align_corners=False if smooth else None, antialias=smooth and bool(antialias))
    if mode == "bicubic" and dtype == _uint8:  # bicubic weights may be negative
        out = out.clamp(0, 255)
    return _cast_out(out, added, changed, dtype)


def pad(image, left, top, right, bottom, fill, padding_mode):
    if padding_mode == "symmetric":
        return _pad_symmetric(image, left, top, right, bottom)
    dtype, added = image.dtype, image.ndim < 4
    if added:
        image = image.unsqueeze(0)
    changed = padding_mode != "constant" and dtype not in (float32, float64)
    if changed:
        image = image.to(float32 if dtype.itemsize < 4 else float64)  # the exact integers of a double are enough for pictures
    mode = {"edge": "replicate"}.get(padding_mode, padding_mode)
    borders = [left, right, top, bottom]
    if mode == "constant" and isinstance(fill, (list, tuple)) and len(fill) > 1:
        channels = dimensions(image)[0]
        if len(fill) != channels:
            raise ValueError(f"The number of elements in 'fill' does not match the number of channels of the image ({len(fill)} != {channels})")
        out = F.pad(image, borders)
        inside = F.pad(ones(image.shape[-2:], dtype=_uint8), borders).bool()
        out = where(inside, out, tensor(fill, dtype=dtype).view(-1, 1, 1))
    elif mode == "constant":
        value = fill[0] if isinstance(fill, (list, tuple)) else fill
        out = F.pad(image, borders, mode=mode, value=float(value or 0))
    else:
        out = F.pad(image, borders, mode=mode)
    return _cast_out(out, added, changed, dtype)


def _pad_symmetric(image, left, top, right, bottom):
    image = crop_negative(image, left, top, right, bottom)
    left, top, right, bottom = (max(v, 0) for v in (left, top, right, bottom))

    def order(n, before, after):
        place = arange(-before, n + after) % (2 * n)
        return where(place < n, place, 2 * n - 1 - place)

    h, w = image.shape[-2:]
    return image.index_select(-2, order(h, top, bottom)).index_select(-1, order(w, left, right))


def crop_negative(image, left, top, right, bottom):
    h, w = image.shape[-2:]
    return image[..., max(-top, 0):h + min(bottom, 0), max(-left, 0):w + min(right, 0)]


# Colours.
def blend(image, other, ratio):
    """ratio * image + (1 - ratio) * other, kept within the range of the dtype."""
    ratio = float(ratio)
    return (ratio * image + (1.0 - ratio) * other).clamp(0, max_value(image.dtype)).to(image.dtype)


def to_grayscale(image, channels=1):
    need_channels(image, (1, 3), "rgb_to_grayscale")
    if image.shape[-3] == 3:  # the luma of ITU-R BT.601
        r, g, b = image.unbind(-3)
        gray = (0.2989 * r + 0.587 * g + 0.114 * b).to(image.dtype).unsqueeze(-3)
    else:
        gray = image.clone()
    return gray.expand(*image.shape[:-3], 3, *image.shape[-2:]) if channels == 3 else gray


def adjust_brightness(image, factor):
    need_channels(image, (1, 3), "adjust_brightness")
    return blend(image, zeros_like(image), factor)


def adjust_contrast(image, factor):
    need_channels(image, (1, 3), "adjust_contrast")
    gray = to_grayscale(image) if image.shape[-3] == 3 else image
    dtype = image.dtype if image.dtype.is_floating_point else float32
    return blend(image, gray.to(dtype).mean(dim=(-3, -2, -1), keepdim=True), factor)


def adjust_saturation(image, factor):
    need_channels(image, (1, 3), "adjust_saturation")
    return image if image.shape[-3] == 1 else blend(image, to_grayscale(image), factor)


def adjust_hue(image, factor):
    need_channels(image, (1, 3), "adjust_hue")
    if image.shape[-3] == 1:
        return image
    dtype = image.dtype
    h, s, v = to_hsv(convert_dtype(image, float32) if not dtype.is_floating_point else image)
    return convert_dtype(from_hsv((h + factor) % 1.0, s, v), dtype)


def to_hsv(image):
    """Hue (0 to 1, red at 0), saturation and value of RGB, each of shape (..., H, W)."""
    r, g, b = image.unbind(-3)
    value, low = image.amax(-3), image.amin(-3)
    span = value - low
    gray = span == 0
    one = value.new_ones(())
    saturation = span / where(gray, one, value)
    safe = where(gray, one, span)
    rc, gc, bc = (value - r) / safe, (value - g) / safe, (value - b) / safe
    hue = where(value == r, bc - gc, where(value == g, 2.0 + rc - bc, 4.0 + gc - rc))
    hue = where(gray, value.new_zeros(()), hue)
    return (hue / 6.0 + 1.0) % 1.0, saturation, value


def from_hsv(h, s, v):
    """RGB of shape (..., 3, H, W)."""
    def channel(n):  # distance on the circle of hues to the channel's own sextant
        k = (n + h * 6.0) % 6.0
        return v - v * s * k.minimum(4.0 - k).clamp(0, 1)

    return stack([channel(5.0), channel(3.0), channel(1.0)], dim=-3).clamp(0, 1)


def adjust_gamma(image, gamma, gain):
    dtype = image.dtype
    out = image if dtype.is_floating_point else convert_dtype(image, float32)
    return convert_dtype((gain * out ** gamma).clamp(0, 1), dtype)


def invert(image):
    return max_value(image.dtype) - image


def posterize(image, bits):
    if image.dtype != _uint8:
        raise TypeError(f"posterize: only uint8 image tensors are supported: got {image.dtype}")
    return image & (-(2 ** (8 - bits)) & 0xFF)


def solarize(image, threshold):
    if threshold > max_value(image.dtype):
        raise TypeError("solarize: threshold should be less than bound of img: "
                        f"got {threshold} for {image.dtype}")
    return where(image >= threshold, invert(image), image)


def adjust_sharpness(image, factor):
    if image.shape[-1] <= 2 or image.shape[-2] <= 2:
        return image
    work = image if image.dtype.is_floating_point else image.to(float32)
    flat = work.reshape(-1, 1, *image.shape[-2:])
    kernel = ones(1, 1, 3, 3, dtype=work.dtype)
    kernel[0, 0, 1, 1] = 5.0
    inner = F.conv2d(flat, kernel / kernel.sum()).reshape(*image.shape[:-2], image.shape[-2] - 2, image.shape[-1] - 2)
    smooth = work.clone()  # the border stays as it is
    smooth[..., 1:-1, 1:-1] = inner if image.dtype.is_floating_point else inner.round()
    return blend(image, smooth.to(image.dtype), factor)


def autocontrast(image):
    bound = max_value(image.dtype)
    dtype = image.dtype if image.dtype.is_floating_point else float32
    low, high = image.amin((-2, -1), keepdim=True).to(dtype), image.amax((-2, -1), keepdim=True).to(dtype)
    flat = high == low
    scale = where(flat, low.new_ones(()), bound / (high - low + flat.to(dtype)))
    return ((image - where(flat, low.new_zeros(()), low)) * scale).clamp(0, bound).to(image.dtype)


def equalize(image):
    if image.dtype != _uint8:
        raise TypeError(f"equalize: only uint8 image tensors are supported: got {image.dtype}")
    planes = image.reshape(-1, *image.shape[-2:])
    return stack([_equalize_plane(p) for p in planes.unbind(0)]).reshape(image.shape) if len(planes) else image


def _equalize_plane(plane):
    histogram = bincount(plane.reshape(-1).long(), minlength=256)
    filled = histogram[histogram != 0]
    step = int(filled[:-1].sum()) // 255
    if step == 0:
        return plane
    table = (histogram.cumsum(0) + step // 2) // step
    table = F.pad(table, [1, 0])[:-1].clamp(0, 255)
    return table[plane.long()].to(_uint8)


# Filters and geometry.
def gaussian_kernel(size: int, sigma: float, dtype):
    """The normalised weights exp(-x^2 / (2 sigma^2)) at `size` whole steps around 0."""
    half = (size - 1) * 0.5
    weights = (-0.5 * (linspace(-half, half, size, dtype=dtype) / sigma) ** 2).exp()
    return weights / weights.sum()


def gaussian_blur(image, kernel_size, sigma):
    image, added, changed, dtype = _cast_in(image, (float32, float64))
    channels, (kx, ky) = image.shape[-3], kernel_size
    x, y = (gaussian_kernel(k, s, image.dtype) for k, s in zip(kernel_size, sigma, strict=True))
    out = F.pad(image, [kx // 2, kx // 2, ky // 2, ky // 2], mode="reflect")
    out = F.conv2d(out, x.expand(channels, 1, 1, kx), groups=channels)  # separable: k + k products each, not k * k
    out = F.conv2d(out, y.view(ky, 1).expand(channels, 1, ky, 1), groups=channels)
    return _cast_out(out, added, changed, dtype)


def sample_grid(image, grid, mode, fill):
    """image at the places of grid (1, H, W, 2); outside of it, fill (None: black; a number or one for each channel)."""
    image, added, changed, dtype = _cast_in(image, (float32, float64))
    grid = grid.to(image.dtype).expand(image.shape[0], *grid.shape[1:])
    if fill is not None:  # how much of each pixel lies inside is sampled along with it
        image = cat([image, image.new_ones(image.shape[0], 1, *image.shape[-2:])], dim=1)
    out = F.grid_sample(image, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        inside, out = out[:, -1:], out[:, :-1]
        colour = tensor([float(v) for v in (fill if isinstance(fill, (list, tuple)) else [fill])], dtype=out.dtype).view(1, -1, 1, 1)
        if colour.shape[1] not in (1, out.shape[1]):
            raise ValueError(f"The number of elements in 'fill' does not match the number of channels of the image ({colour.shape[1]} != {out.shape[1]})")
        out = where(inside < 0.5, colour, out) if mode == "nearest" else out * inside + (1.0 - inside) * colour
    return _cast_out(out, added, changed, dtype)


def affine_grid(matrix, width, height, out_width, out_height):
    """Where in an image of width x height each pixel of the output comes from, in grid_sample's coordinates: (1, H, W, 2)."""
    m = tensor(matrix, dtype=float32).reshape(2, 3)
    x = linspace(-out_width * 0.5 + 0.5, out_width * 0.5 - 0.5, out_width)
    y = linspace(-out_height * 0.5 + 0.5, out_height * 0.5 - 0.5, out_height)
    base = stack([x.expand(out_height, out_width), y.view(-1, 1).expand(out_height, out_width), ones(out_height, out_width)], dim=-1)
    scaled = m.t() / tensor([0.5 * width, 0.5 * height])
    return (base.reshape(-1, 3) @ scaled).reshape(1, out_height, out_width, 2)


def affine(image, matrix, mode, fill):
    h, w = image.shape[-2:]
    return sample_grid(image, affine_grid(matrix, w, h, w, h), mode, fill)


def rotated_size(matrix, width: int, height: int) -> tuple[int, int]:
    """Width and height of the box that holds the whole turned image."""
    corners = tensor([[-0.5 * width, -0.5 * height, 1.0], [-0.5 * width, 0.5 * height, 1.0], [0.5 * width, 0.5 * height, 1.0],
                      [0.5 * width, -0.5 * height, 1.0]])
    m = tensor(matrix, dtype=float32).reshape(2, 3)
    points = corners @ m.t()
    low, high = points.amin(0) + tensor([width * 0.5, height * 0.5]), points.amax(0) + tensor([width * 0.5, height * 0.5])
    # Cut to 1e-4 first, so that rounding errors do not make a quarter turn grow by a pixel.
    low, high = ((low * 1e4).trunc() * 1e-4).floor(), ((high * 1e4).trunc() * 1e-4).ceil()
    size = (high - low).tolist()
    return int(size[0]), int(size[1])


def rotate(image, matrix, mode, expand, fill):
    h, w = image.shape[-2:]
    out_w, out_h = rotated_size(matrix, w, h) if expand else (w, h)
    return sample_grid(image, affine_grid(matrix, w, h, out_w, out_h), mode, fill)


def perspective(image, coefficients, mode, fill):
    h, w = image.shape[-2:]
    a, b, c, d, e, f, g, i = coefficients
    x, y = arange(w, dtype=float32) + 0.5, (arange(h, dtype=float32) + 0.5).view(-1, 1)
    scale = g * x + i * y + 1.0
    u, v = (a * x + b * y + c) / scale, (d * x + e * y + f) / scale
    return sample_grid(image, stack([u / (0.5 * w) - 1.0, v / (0.5 * h) - 1.0], dim=-1).unsqueeze(0), mode, fill)


def displace(image, displacement, mode, fill):
    """displacement (1, H, W, 2) in grid_sample's coordinates is added to where each pixel comes from."""
    h, w = image.shape[-2:]
    x, y = ((2.0 * arange(n, dtype=float32) + 1.0) / n - 1.0 for n in (w, h))
    identity = stack([x.expand(h, w), y.view(-1, 1).expand(h, w)], dim=-1).unsqueeze(0)
    return sample_grid(image, identity + displacement, mode, fill)


def erase(image, top, left, height, width, value, inplace):
    if not inplace:
        image = image.clone()
    image[..., top:top + height, left:left + width] = value
    return image
