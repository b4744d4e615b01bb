"""Interpolation modes."""

import enum


class InterpolationMode(enum.Enum):
    """How pixels between pixels are computed; BOX, HAMMING and LANCZOS are for Pillow's images only."""

    NEAREST, NEAREST_EXACT, BILINEAR, BICUBIC = "nearest", "nearest-exact", "bilinear", "bicubic"
    BOX, HAMMING, LANCZOS = "box", "hamming", "lanczos"


# The numbers of Pillow's Resampling, which old scripts pass as they are.
PILLOW_NUMBERS = {
    InterpolationMode.NEAREST: 0,
    InterpolationMode.NEAREST_EXACT: 0,
    InterpolationMode.LANCZOS: 1,
    InterpolationMode.BILINEAR: 2,
    InterpolationMode.BICUBIC: 3,
    InterpolationMode.BOX: 4,
    InterpolationMode.HAMMING: 5,
}
_FROM_NUMBER = {number: mode for mode, number in PILLOW_NUMBERS.items() if mode is not InterpolationMode.NEAREST_EXACT}


def as_mode(value, who: str) -> InterpolationMode:
    """The mode, given as such, as its name or as Pillow's number."""
    if isinstance(value, InterpolationMode):
        return value
    if isinstance(value, str) and value in {m.value for m in InterpolationMode}:
        return InterpolationMode(value)
    if isinstance(value, int) and value in _FROM_NUMBER:
        return _FROM_NUMBER[int(value)]
    raise TypeError(f"{who}: interpolation should be an InterpolationMode or a corresponding Pillow integer constant: got {value!r}")
