"""Samples of resampling."""

import tapegrad


def interpolate(make):
    return [((make((2, 3, 4)),), {"size": 7}), ((make((1, 2, 3, 4)), (5, 3)), {}), ((make((1, 2, 3, 4)),), {"scale_factor": 2}), ((make((1, 2, 3, 4)),), {"scale_factor": (1.5, 0.7), "mode": "nearest-exact"}),
            ((make((2, 3, 5)),), {"scale_factor": 1.7, "mode": "linear"}), ((make((2, 3, 5)),), {"size": 9, "mode": "linear", "align_corners": True}),
            ((make((1, 2, 4, 5)),), {"size": (7, 3), "mode": "bilinear"}), ((make((1, 2, 4, 5)),), {"scale_factor": 1.6, "mode": "bilinear", "align_corners": True}),
            ((make((1, 2, 4, 5)),), {"scale_factor": 1.6, "mode": "bilinear", "recompute_scale_factor": True}), ((make((1, 2, 4, 5)),), {"scale_factor": 2, "mode": "bilinear"}),
            ((make((1, 1, 4, 5)),), {"size": (6, 9), "mode": "bicubic"}), ((make((1, 1, 4, 3)),), {"scale_factor": 1.5, "mode": "bicubic", "align_corners": True}),
            ((make((1, 1, 2, 3, 2)),), {"size": (3, 4, 5), "mode": "trilinear"}), ((make((1, 1, 2, 3, 2)),), {"scale_factor": 2.0, "mode": "trilinear", "align_corners": True}),
            ((make((1, 1, 2, 3, 2)),), {"scale_factor": 2.0}), ((make((1, 2, 5, 6)),), {"size": (2, 3), "mode": "area"}), ((make((2, 2, 7)),), {"scale_factor": 0.5, "mode": "area"}),
            ((make((1, 2, 1, 1)),), {"size": (3, 3), "mode": "bilinear", "align_corners": True}), ((make((1, 2, 3, 3)),), {"size": (1, 1), "mode": "bilinear", "align_corners": True}),
            ((make((0, 2, 3, 3)),), {"size": (5, 5)}), ((make((1, 1, 3, 4)),), {"size": (3, 4), "mode": "bicubic"}),
            ((make((1, 2, 7, 5)),), {"size": (3, 4), "mode": "bilinear", "antialias": True}), ((make((2, 1, 5, 6)),), {"scale_factor": 0.6, "mode": "bicubic", "antialias": True}),
            ((make((1, 1, 4, 5)),), {"size": (7, 3), "mode": "bilinear", "antialias": True, "align_corners": True}), ((make((1, 1, 9, 8)),), {"size": (4, 11), "mode": "lanczos", "antialias": True}),
            ((make((1, 1, 6, 5)),), {"size": (1, 1), "mode": "bicubic", "antialias": True, "align_corners": True}), *_of_bytes(make)]


def _of_bytes(make):
    """Of bytes PyTorch's very bytes; of more than four channels PyTorch's own are wrong where the width is 1."""
    modes = [("bilinear", {}), ("bicubic", {}), ("bilinear", {"antialias": True}), ("bicubic", {"antialias": True}), ("bilinear", {"align_corners": True}),
             ("bicubic", {"align_corners": True}), ("bicubic", {"antialias": True, "align_corners": True}), ("lanczos", {"antialias": True}), ("nearest", {})]
    sizes = [((1, 1, 23, 31), {"size": (40, 17)}), ((2, 3, 16, 9), {"scale_factor": (1.7, 2.5)}), ((1, 5, 12, 33), {"size": (7, 90)}),
             ((1, 2, 20, 11), {"size": (20, 5)}), ((1, 4, 9, 20), {"scale_factor": (0.5, 1.03)}), ((1, 1, 3, 1), {"size": (1, 6)}), ((1, 2, 5, 7), {"size": (5, 7)})]
    return [((make(shape, dtype=tapegrad.uint8, low=0, high=256),), {"mode": mode, **size, **more}) for mode, more in modes for shape, size in sizes]


def upsample(make):
    return [((make((1, 2, 3, 4)),), {"scale_factor": 2}), ((make((1, 2, 3, 4)), (5, 7)), {"mode": "bilinear", "align_corners": True})]


def upsample_plain(make):
    return [((make((1, 2, 3, 4)),), {"scale_factor": 2}), ((make((1, 2, 3, 4)), (5, 7)), {})]


def pixel_shuffle(make):
    return [((make((2, 8, 3, 2)), 2), {}), ((make((9, 2, 2)), 3), {}), ((make((2, 1, 4, 1, 2)), 2), {}), ((make((2, 3, 4)), 1), {})]


def pixel_unshuffle(make):
    return [((make((2, 2, 6, 4)), 2), {}), ((make((1, 3, 6)), 3), {}), ((make((2, 1, 1, 2, 2)), 2), {}), ((make((2, 3, 4)), 1), {})]


def channel_shuffle(make):
    return [((make((2, 6, 3)), 2), {}), ((make((1, 4, 2, 3)), 4), {}), ((make((2, 6, 3, 1)), 3), {})]


def affine_grid(make):
    return [((make((2, 2, 3)), (2, 1, 3, 4)), {"align_corners": False}), ((make((2, 2, 3)), (2, 1, 3, 4)), {"align_corners": True}), ((make((1, 3, 4)), (1, 2, 2, 3, 2)), {"align_corners": False}),
            ((make((1, 2, 3)), (1, 2, 1, 3)), {"align_corners": True})]


def grid_sample(make):
    cases = []
    for corners in (False, True):
        for padding in ("zeros", "border", "reflection"):
            cases.append(((make((1, 2, 4, 5)), make((1, 3, 2, 2), low=-1.4, high=1.4)), {"padding_mode": padding, "align_corners": corners}))
        cases.append(((make((1, 2, 4, 5)), make((1, 3, 2, 2), low=-1.2, high=1.2)), {"mode": "bicubic", "align_corners": corners}))
        cases.append(((make((1, 2, 4, 5)), make((1, 3, 2, 2), low=-1.2, high=1.2)), {"mode": "nearest", "align_corners": corners}))
    cases.append(((make((1, 2, 4, 5)), make((1, 3, 2, 2), low=-1.2, high=1.2)), {"mode": "bicubic", "align_corners": False, "padding_mode": "reflection"}))
    cases.append(((make((2, 2, 3, 4, 3)), make((2, 2, 1, 2, 3), low=-1.2, high=1.2)), {"align_corners": False}))
    cases.append(((make((2, 1, 3, 2, 3)), make((2, 2, 1, 2, 3), low=-1.2, high=1.2)), {"align_corners": True, "mode": "nearest", "padding_mode": "border"}))
    return cases


def _upsample(make):
    return [((make((1, 2, 3, 4)), (5, 7), "linear", False, None), {}), ((make((1, 2, 3)), (6,), "nearest", False, [2.0]), {})]


def _upsample_grad(make):
    return [((make((1, 2, 5, 7)), (1, 2, 3, 4), "linear", False, None), {})]


def _grid_sample(make):
    return [((make((1, 2, 4, 5)), make((1, 3, 2, 2)), "bilinear", "zeros", False), {})]


def _grid_sample_grad(make):
    return [((make((1, 2, 3, 2)), make((1, 2, 4, 5)), make((1, 3, 2, 2)), "bilinear", "zeros", False), {})]
