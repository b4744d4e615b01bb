"""Convolutions of images that are cut into bands: values, gradients, and bits for any number of threads."""

import numpy as np
import pytest
import tapegrad as tg
from tapegrad.nn import functional as F

torch = pytest.importorskip("torch", reason="values are compared with those of torch")

# (input, weight, stride, padding, dilation, groups); each has some megabytes, in bands of odd lengths
SHAPES = {
    "3x3": ((1, 8, 301, 299), (8, 8, 3, 3), 1, 1, 1, 1),
    "two images, stride 2": ((2, 16, 331, 220), (12, 16, 3, 3), 2, 1, 1, 1),
    "stride 3 and kernel 2: rows that nothing reads": ((1, 12, 401, 300), (16, 12, 2, 2), 3, 0, 1, 1),
    "1x1 with stride 2": ((1, 16, 403, 300), (24, 16, 1, 1), 2, 0, 1, 1),
    "more padding than the kernel reaches": ((1, 8, 300, 300), (8, 8, 1, 1), 1, 5, 1, 1),
    "more padding than the kernel reaches, stride 3": ((1, 16, 400, 301), (16, 16, 3, 3), 3, 11, 1, 1),
    "dilation": ((1, 8, 303, 300), (8, 8, 3, 3), 1, 7, 5, 1),
    "dilation and stride": ((1, 16, 403, 301), (16, 16, 3, 5), (2, 1), (2, 4), (3, 2), 1),
    "groups": ((1, 16, 301, 301), (32, 4, 3, 3), 1, 1, 1, 4),
    "depthwise": ((1, 24, 301, 301), (24, 1, 5, 5), 1, 2, 1, 24),
    "depthwise, stride 2": ((1, 24, 301, 301), (48, 1, 3, 3), 2, 1, 1, 24),
    "large kernel": ((1, 4, 256, 256), (4, 4, 31, 31), 1, 15, 1, 1),
    "many channels": ((1, 128, 113, 111), (64, 128, 3, 3), 1, 1, 1, 1),
    "a wide image": ((1, 16, 3, 50_001), (16, 16, 3, 3), 1, 1, 1, 1),
    "many images, of which the last range has fewer": ((13, 64, 28, 28), (96, 64, 3, 3), 1, 1, 1, 1),
    "ranges of channels, of which the last has fewer": ((3, 256, 8, 8), (144, 256, 3, 3), 1, 1, 1, 1),
    "1d": ((1, 8, 100_003), (16, 8, 9), 2, 4, 1, 1),
    "patches, of which the last columns of the image are in none": ((5, 3, 160, 166), (40, 3, 16, 16), 16, 0, 1, 1),
    "patches of a line": ((3, 8, 2050), (24, 8, 8), 8, 0, 1, 1),
    "patches of a volume, dilation of a side of one": ((2, 4, 9, 33, 40), (24, 4, 1, 4, 5), (1, 4, 5), 0, (3, 1, 1), 1),
    "few patches": ((4, 3, 64, 64), (40, 3, 32, 32), 32, 0, 1, 1),
    "3d": ((1, 8, 31, 70, 71), (8, 8, 3, 3, 3), (1, 2, 1), 1, 1, 1),
}


def results(library, conv, x, w, b, g, options):
    leaves = [library.from_numpy(a).requires_grad_() for a in (x, w, b)]
    y = conv(*leaves, **options)
    return [y.detach(), *(library.autograd.grad(y, leaves, library.from_numpy(g).reshape(y.shape)))]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_bits(name, transposed):
    size, kernel, stride, padding, dilation, groups = SHAPES[name]
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    function = f"conv{len(size) - 2}d"
    rng = np.random.default_rng(0)
    y_size = tuple(getattr(torch.nn.functional, function)(torch.empty(size, device="meta"), torch.empty(kernel, device="meta"), **options).shape)
    x, w, g = (rng.standard_normal(s, dtype=np.float32) for s in (size, kernel, y_size))
    b = rng.standard_normal(kernel[0], dtype=np.float32)
    if transposed:  # from the output of the other to its input, where the formula of sizes gives that back
        function = function.replace("conv", "conv_transpose")
        x, b = g, rng.standard_normal(kernel[1] * groups, dtype=np.float32)
        shape = getattr(torch.nn.functional, function)(torch.empty(y_size, device="meta"), torch.empty(kernel, device="meta"), **options).shape
        g = rng.standard_normal(tuple(shape), dtype=np.float32)
    found = []
    for threads in (1, 2):
        tg.set_num_threads(threads)
        found.append(results(tg, getattr(F, function), x, w, b, g, options))
    wanted = results(torch, getattr(torch.nn.functional, function), *(a.astype(np.float64) for a in (x, w, b, g)), options)
    for one, two, right in zip(*found, wanted):
        assert one.numpy().tobytes() == two.numpy().tobytes()
        right = right.numpy()
        np.testing.assert_allclose(one.numpy(), right, rtol=1e-4, atol=2e-5 * np.abs(right).max())
