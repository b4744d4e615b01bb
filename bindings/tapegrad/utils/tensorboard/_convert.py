"""Values as NumPy arrays; pictures as arrays of height, width and channels."""

import numpy as np

from ... import Tensor


def as_array(x) -> np.ndarray:
    """A tensor, array, number or list of numbers as an array; bfloat16 as float32."""
    if isinstance(x, Tensor):
        x = x.detach()
        return (x.float() if str(x.dtype) == "tapegrad.bfloat16" else x).numpy()
    if isinstance(x, (np.ndarray, np.generic, int, float, bool, complex)):
        return np.atleast_1d(x) if not isinstance(x, np.ndarray) else x
    if isinstance(x, (list, tuple)):
        return np.array([as_array(v).reshape(()) if isinstance(v, Tensor) else v for v in x])
    raise NotImplementedError(f"SummaryWriter: expected a tensor, an array or numbers: got {type(x).__name__}")


def as_number(x) -> float:
    """The single value of a tensor or array, or a number."""
    array = as_array(x)
    if array.size != 1:
        raise AssertionError(f"add_scalar: expected one value: got shape {array.shape}")
    return float(array.reshape(()))


def grid(pictures: np.ndarray, columns: int = 8) -> np.ndarray:
    """(N, C, H, W) as one picture (C, rows H, columns W) without gaps."""
    n, c, h, w = pictures.shape
    columns = min(n, columns)
    rows = -(-n // columns)
    canvas = np.zeros((c, rows * h, columns * w), dtype=pictures.dtype)
    for k in range(n):
        y, x = k // columns * h, k % columns * w
        canvas[:, y:y + h, x:x + w] = pictures[k]
    return canvas


def to_hwc(array: np.ndarray, formats: str) -> np.ndarray:
    """A picture, or several as a grid, whose dimensions the letters of `formats` name (of N, C, H, W), as (H, W, 3 or 4)."""
    letters = formats.upper()
    if len(set(letters)) != len(letters) or not set(letters) <= set("NCHW"):
        raise AssertionError(f"add_image: dataformats names each dimension once, of N, C, H and W: got {formats!r}")
    if array.ndim != len(letters):
        raise AssertionError(f"add_image: size of input tensor and input format are different: shape {array.shape}, format {formats!r}")
    if "C" not in letters:
        array, letters = array[..., None], letters + "C"
    array = array.transpose([letters.index(d) for d in ("NCHW" if "N" in letters else "CHW")])
    if "N" in letters:
        array = grid(array)
    return (np.repeat(array, 3, 0) if array.shape[0] == 1 else array).transpose(1, 2, 0)


def as_bytes(picture: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1 become 0 to 255; bytes stay."""
    return picture if picture.dtype == np.uint8 else (picture.astype(np.float32) * 255).clip(0, 255).astype(np.uint8)


def figure_to_array(figures, close: bool = True) -> np.ndarray:
    """A figure of matplotlib, or several, drawn: (C, H, W) or (N, C, H, W) of bytes."""
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def draw(figure):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].transpose(2, 0, 1).copy()
        if close:
            pyplot.close(figure)
        return pixels

    return np.stack([draw(f) for f in figures]) if isinstance(figures, (list, tuple)) else draw(figures)
