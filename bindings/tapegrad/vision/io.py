"""Image files as tensors (C, H, W) of uint8, through Pillow."""

import enum
import io as _io
import os

from .. import from_numpy, uint8
from .._files.atomic import atomic_writer
from ._pillow import pillow
from .transforms import functional as F

__all__ = ["ImageReadMode", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png", "read_file", "read_image", "write_file",
           "write_jpeg", "write_png"]


class ImageReadMode(enum.Enum):
    """As it is, or converted to this many channels."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4
    RGBA = 4


_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def read_file(path):
    """The bytes of a file as a tensor of uint8."""
    with open(path, "rb") as file:
        return from_numpy(_bytes(file.read()))


def _bytes(data: bytes):
    import numpy as np

    return np.frombuffer(bytearray(data), np.uint8)


def write_file(filename, data) -> None:
    """Writes a tensor (N) of uint8 as the bytes of a file."""
    if data.dtype != uint8 or data.ndim != 1:
        raise RuntimeError(f"write_file: expected a 1-dimensional tensor of uint8: got {data.dtype} of shape {tuple(data.shape)}")
    with atomic_writer(os.fspath(filename)) as file:
        file.write(data.contiguous().numpy().tobytes())


def decode_image(input, mode=ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False):  # noqa: A002
    """The picture in a tensor (N) of a file's bytes, or in the file of that name: (C, H, W) of uint8.

    mode: an ImageReadMode or its name; apply_exif_orientation: turned as its camera says. Raises RuntimeError for what is no image.
    """
    if isinstance(mode, str):
        mode = ImageReadMode[mode.upper()]
    if isinstance(input, (str, os.PathLike)):
        input = read_file(input)  # noqa: A001
    if input.dtype != uint8 or input.ndim != 1:
        raise RuntimeError(f"decode_image: expected a 1-dimensional tensor of uint8: got {input.dtype} of shape {tuple(input.shape)}")
    try:
        image = pillow().open(_io.BytesIO(input.contiguous().numpy().tobytes()))
        image.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise RuntimeError(f"decode_image: not an image that can be read: {error}") from None
    if apply_exif_orientation:
        image = pillow("ImageOps").exif_transpose(image)
    if mode.value:
        image = image.convert(_MODES[mode.value])
    elif image.mode in ("P", "1", "CMYK", "YCbCr", "LAB", "HSV", "RGBX"):
        image = image.convert("RGBA" if image.mode == "P" and "transparency" in image.info else "L" if image.mode == "1" else "RGB")
    return F.pil_to_tensor(image).contiguous()


decode_jpeg = decode_png = decode_image


def read_image(path, mode=ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False):
    """The picture in a file: (C, H, W) of uint8."""
    return decode_image(read_file(path), mode, apply_exif_orientation)


def _encode(input, who: str, **options):  # noqa: A002
    if input.dtype != uint8 or input.ndim != 3 or input.shape[0] not in (1, 3):
        raise RuntimeError(f"{who}: expected a tensor (1 or 3, H, W) of uint8: got {input.dtype} of shape {tuple(input.shape)}")
    out = _io.BytesIO()
    F.to_pil_image(input).save(out, **options)
    return from_numpy(_bytes(out.getvalue()))


def encode_png(input, compression_level: int = 6):  # noqa: A002
    """The bytes (N) of a PNG file with this picture."""
    return _encode(input, "encode_png", format="png", compress_level=compression_level)


def encode_jpeg(input, quality: int = 75):  # noqa: A002
    """The bytes (N) of a JPEG file with this picture."""
    if not 1 <= quality <= 100:
        raise ValueError("Image quality should be a positive number between 1 and 100")
    return _encode(input, "encode_jpeg", format="jpeg", quality=quality)


def write_png(input, filename, compression_level: int = 6) -> None:  # noqa: A002
    """Writes a picture (1 or 3, H, W) as a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input, filename, quality: int = 75) -> None:  # noqa: A002
    """Writes a picture (1 or 3, H, W) as a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))
