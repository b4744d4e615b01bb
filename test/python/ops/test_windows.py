"""Numbers that describe windows: what is wrong with them is said."""

import pytest
import tapegrad as tg
from tapegrad.nn import functional as F

HUGE = 1 << 61
x1, x2, x3 = tg.ones(1, 1, 8), tg.ones(1, 1, 8, 8), tg.ones(1, 1, 8, 8, 8)
CALLS = {
    "conv2d: padding": lambda n: F.conv2d(x2, tg.ones(1, 1, 3, 3), padding=n),
    "conv2d: stride": lambda n: F.conv2d(x2, tg.ones(1, 1, 3, 3), stride=n),
    "conv1d: dilation": lambda n: F.conv1d(x1, tg.ones(1, 1, 3), dilation=n),
    "conv3d: padding": lambda n: F.conv3d(x3, tg.ones(1, 1, 3, 3, 3), padding=n),
    "max_pool2d: stride": lambda n: F.max_pool2d(x2, 2, stride=n),
    "max_pool1d: kernel_size": lambda n: F.max_pool1d(x1, n),
    "avg_pool2d: kernel_size": lambda n: F.avg_pool2d(x2, n),
    "avg_pool3d: padding": lambda n: F.avg_pool3d(x3, 2, padding=n),
    "unfold: padding": lambda n: F.unfold(x2, 2, padding=n),
    "fold: output_size": lambda n: F.fold(tg.ones(1, 4, 4), n, 2),
}


@pytest.mark.parametrize("what", CALLS)
def test_too_large_and_too_small(what):
    op, _, name = what.partition(": ")
    for number in (HUGE, 1 << 31):
        with pytest.raises(RuntimeError, match=f"^{op[:4]}.*: {name} is too large, at most 2147483647 is possible: got \\[.*{number}"):
            CALLS[what](number)
    with pytest.raises(RuntimeError, match="at least|greater than|non-negative|negative|positive"):
        CALLS[what](-1)


def test_images_that_are_too_large():
    with pytest.raises(RuntimeError, match="^interpolate: the input is too large, at most 2147483647 is possible: got \\[2147483648\\]"):
        F.interpolate(tg.ones(1, 1, 1, dtype=tg.uint8).expand(1, 1, 1 << 31), size=3, mode="linear")
