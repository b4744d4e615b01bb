"""Images made from tensors: grids, files, and boxes, masks and points drawn on them."""

import math

from .. import Tensor, cat, is_tensor, no_grad, ones_like, stack, tensor, uint8
from .. import bool as _bool
from ._pillow import pillow
from .transforms import _tensor
from .transforms import functional as F

__all__ = ["draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "flow_to_image", "make_grid", "save_image"]


@no_grad()
def make_grid(tensor, nrow: int = 8, padding: int = 2, normalize: bool = False, value_range=None, scale_each: bool = False,
              pad_value: float = 0.0):
    """One picture (3, H, W) of a batch (N, C, H, W), or of a list of images, nrow in a row with `padding` pixels between them.

    normalize: shifted and scaled to 0 to 1, by value_range (low, high) or the smallest and largest value of all, or with scale_each of
    each image.
    """
    images = tensor
    if not is_tensor(images):
        if not isinstance(images, (list, tuple)):
            raise TypeError(f"tensor or list of tensors expected, got {type(images)}")
        for image in images:
            if not is_tensor(image):
                raise TypeError(f"tensor or list of tensors expected, got a list containing {type(image)}")
        images = stack(list(images), dim=0)
    if images.ndim == 2:
        images = images.unsqueeze(0)
    if images.ndim == 3:
        images = images.unsqueeze(0)
    if images.size(1) == 1:
        images = cat((images, images, images), 1)
    if normalize:
        images = _stretched(images.clone(), value_range, scale_each)
    elif value_range is not None and not isinstance(value_range, tuple):
        raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
    count, channels = images.size(0), images.size(1)
    if count == 1:
        return images.squeeze(0)
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = images.size(2) + padding, images.size(3) + padding
    grid = images.new_full((channels, height * rows + padding, width * columns + padding), pad_value)
    for i in range(count):
        top, left = i // columns * height + padding, i % columns * width + padding
        grid[:, top:top + images.size(2), left:left + images.size(3)] = images[i]
    return grid


def _stretched(images, value_range, scale_each):
    if value_range is not None and not isinstance(value_range, tuple):
        raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
    for part in images if scale_each else [images]:
        low, high = (part.min().item(), part.max().item()) if value_range is None else (float(v) for v in value_range)
        part.clamp_(min=low, max=high).sub_(low).div_(max(high - low, 1e-5))
    return images


@no_grad()
def save_image(tensor, fp, format=None, **kwargs) -> None:  # noqa: A002
    """Writes make_grid(tensor, **kwargs), with values from 0 to 1, to a file name or an open file."""
    grid = make_grid(tensor, **kwargs)
    array = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to("cpu", uint8).contiguous().numpy()
    pillow().fromarray(array).save(fp, format=format)


def _check_picture(image, no_tensor: str, channels=(1, 3), other_channels="Only grayscale and RGB images are supported") -> None:
    if not isinstance(image, Tensor):
        raise TypeError(f"{no_tensor} {type(image)}")
    if not (image.dtype == uint8 or image.is_floating_point()):
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.ndim != 3:
        raise ValueError("Pass individual images, not batches")
    if image.size(0) not in channels:
        raise ValueError(other_channels)


def _palette(n: int) -> list[tuple[int, int, int]]:
    """n colours far from each other."""
    base = (2**25 - 1, 2**15 - 1, 2**21 - 1)
    return [tuple(i * b % 255 for b in base) for i in range(n)]


def _colours(colors, n: int) -> list:
    if colors is None:
        colors = _palette(n)
    elif isinstance(colors, list):
        if len(colors) < n:
            raise ValueError(f"Number of colors must be equal or larger than the number of objects, but got {len(colors)} < {n}.")
    elif isinstance(colors, tuple):
        if len(colors) != 3:
            raise ValueError("If passed as tuple, colors should be an RGB triplet")
        colors = [colors] * n
    elif isinstance(colors, str):
        colors = [colors] * n
    else:
        raise ValueError(f"colors must be a tuple or a string, or a list thereof, but got {colors}")
    ask = pillow("ImageColor").getrgb
    return [ask(c) if isinstance(c, str) else c for c in colors]


def _canvas(image):
    """(the image as Pillow's in RGB, whether its values are floats)"""
    floats = image.is_floating_point()
    picture = F.convert_image_dtype(image, uint8) if floats else image
    return F.to_pil_image(picture.expand(3, -1, -1) if image.size(0) == 1 else picture), floats


def _finish(picture, image):
    out = F.pil_to_tensor(picture)
    return F.convert_image_dtype(out, image.dtype) if image.is_floating_point() else out


@no_grad()
def draw_bounding_boxes(image, boxes, labels=None, colors=None, fill: bool = False, width: int = 1, font=None, font_size=None,
                        label_colors=None, label_background_colors=None, fill_labels: bool = False):
    """The image (3 or 1, H, W) with boxes (N, 4) of (xmin, ymin, xmax, ymax) drawn on it, and labels (N strings) in their corners."""
    _check_picture(image, "draw_bounding_boxes: The image must be a tensor: got")
    if boxes.numel() and ((boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any()):
        raise ValueError("Boxes need to be in (xmin, ymin, xmax, ymax) format. Use torchvision.ops.box_convert to convert them")
    count = boxes.shape[0]
    if count == 0:
        return image
    if labels is None:
        labels = [None] * count
    elif len(labels) != count:
        raise ValueError(f"The number of boxes ({count}) and labels ({len(labels)}) mismatch. Please specify labels for each box.")
    colours = _colours(colors, count)
    text_colours = _colours(label_colors, count) if label_colors else colours
    behind = _colours(label_background_colors, count) if label_background_colors else colours
    picture, _ = _canvas(image)
    draw = pillow("ImageDraw").Draw(picture, "RGBA" if fill else None)
    letters = _font(font, font_size)
    for i, (box, label) in enumerate(zip(boxes.to("cpu").to(dtype=tensor(0).dtype).tolist(), labels, strict=True)):
        draw.rectangle(box, width=width, outline=colours[i], fill=(*colours[i][:3], 100) if fill else None)
        if label is not None:
            place = (box[0] + width + 1, box[1] + width + 1)
            if fill_labels or label_background_colors:
                draw.rectangle(draw.textbbox(place, label, font=letters), fill=behind[i])
            draw.text(place, label, fill=text_colours[i] if not fill_labels else (0, 0, 0), font=letters)
    return _finish(picture, image)


def _font(font, size):
    fonts = pillow("ImageFont")
    if font is None:
        return fonts.load_default(size) if size is not None else fonts.load_default()
    return fonts.truetype(font=font, size=size or 10)


@no_grad()
def draw_segmentation_masks(image, masks, alpha: float = 0.8, colors=None):
    """The image (3, H, W) with each of the bool masks (N, H, W) or (H, W) laid over it in a colour; alpha 1 hides the image."""
    _check_picture(image, "The image must be a tensor, got", (3,), "Pass an RGB image. Other Image formats are not supported")
    if masks.ndim == 2:
        masks = masks[None, :, :]
    if masks.ndim != 3:
        raise ValueError("masks must be of shape (H, W) or (batch_size, H, W)")
    if masks.dtype != _bool:
        raise ValueError(f"The masks must be of dtype bool. Got {masks.dtype}")
    if masks.shape[-2:] != image.shape[-2:]:
        raise ValueError("The image and the masks must have the same height and width")
    if masks.size(0) == 0:
        return image
    out = image.clone()
    for mask, colour in zip(masks, _colours(colors, masks.size(0)), strict=False):
        paint = tensor(colour, dtype=image.dtype)
        out[:, mask] = (paint / 255 if image.is_floating_point() else paint)[:, None]
    return (image * (1 - alpha) + out * alpha).to(image.dtype)


@no_grad()
def draw_keypoints(image, keypoints, connectivity=None, colors=None, radius: int = 2, width: int = 3, visibility=None):
    """The image (3, H, W) with keypoints (N, K, 2) of N objects drawn as dots, joined as the pairs of connectivity say."""
    _check_picture(image, "draw_keypoints: The image must be a tensor: got")
    if keypoints.ndim != 3:
        raise ValueError("keypoints must be of shape (num_instances, K, 2)")
    picture, _ = _canvas(image)
    draw = pillow("ImageDraw").Draw(picture)
    points = keypoints.tolist()
    seen = [[True] * len(p) for p in points] if visibility is None else visibility.reshape(keypoints.shape[:2]).to(_bool).tolist()
    colours = _colours(colors, len(points)) if isinstance(colors, list) or colors is None else _colours(colors, len(points))
    for places, shown, colour in zip(points, seen, colours, strict=False):
        for (x, y), visible in zip(places, shown, strict=True):
            if visible:
                draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour, outline=None, width=0)
        for a, b in connectivity or ():
            if shown[a] and shown[b]:
                draw.line((tuple(places[a]), tuple(places[b])), width=width, fill=colour)
    return _finish(picture, image)


@no_grad()
def flow_to_image(flow):
    """Optical flow (N, 2, H, W) or (2, H, W) as colours: the direction is the hue, the length (of the longest: 1) the saturation."""
    if flow.ndim not in (3, 4) or flow.shape[-3] != 2:
        raise ValueError(f"Input flow should have shape (2, H, W) or (N, 2, H, W), got {tuple(flow.shape)}.")
    if not flow.is_floating_point():
        raise ValueError(f"Flow should be of dtype torch.float, got {flow.dtype}.")
    u, v = flow.unbind(-3)
    length = (u * u + v * v).sqrt()
    length = length / length.amax((-2, -1), keepdim=True).clamp(min=1e-6)
    hue = (v.atan2(u) / (2 * math.pi)) % 1.0
    return (_tensor.from_hsv(hue, length, ones_like(hue)) * 255).to(uint8)
