"""Convolutions forward, and forward with backward, of common shapes in float32."""

from ..harness import Case

# batch, channels in, channels out, image side, kernel, stride, padding, groups
SHAPES = [(32, 1, 16, 28, 3, 1, 1, 1), (32, 16, 32, 14, 3, 1, 1, 1), (8, 64, 64, 56, 3, 1, 1, 1), (8, 64, 128, 56, 3, 2, 1, 1),
          (8, 256, 64, 28, 1, 1, 0, 1), (8, 64, 64, 28, 3, 1, 1, 64),
          (4, 128, 128, 56, 3, 1, 1, 128), (4, 128, 128, 56, 3, 2, 1, 128), (4, 96, 96, 28, 7, 1, 3, 96), (4, 512, 512, 14, 3, 1, 1, 512),
          (4, 960, 960, 7, 5, 1, 2, 960)]


def _runs(lib, shape):
    n, c, k, side, kernel, stride, padding, groups = shape
    x = lib.randn(n, c, side, side, requires_grad=True)
    w = lib.randn(k, c // groups, kernel, kernel, requires_grad=True)
    conv = lib.nn.functional.conv2d

    def forward():
        with lib.no_grad():
            return conv(x, w, None, stride, padding, 1, groups)

    def both():
        x.grad = w.grad = None
        conv(x, w, None, stride, padding, 1, groups).sum().backward()

    return forward, both


def cases(libraries):
    for shape in SHAPES:
        runs = {name: _runs(lib, shape) for name, lib in libraries.items() if name != "numpy"}
        label = "{0}x{1}x{3}x{3} -> {2}, {4}x{4} stride {5} groups {7}".format(*shape)
        yield Case("convolutions", f"{label}: forward", {n: r[0] for n, r in runs.items()})
        yield Case("convolutions", f"{label}: forward and backward", {n: r[1] for n, r in runs.items()})
