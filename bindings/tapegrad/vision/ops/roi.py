"""Regions of interest in feature maps, and deformable convolutions."""

import math

from ... import arange, cat, empty, stack, zeros
from ...nn import Module, Parameter, init
from ...nn import functional as F
from .boxes import as_rois

__all__ = ["DeformConv2d", "MultiScaleRoIAlign", "RoIAlign", "RoIPool", "deform_conv2d", "roi_align", "roi_pool"]


def _pair(value) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _sample(features, y, x, padding: str):
    """Bilinear values of features (1, C, H, W) at pixels y, x (A, B): (C, A, B)."""
    h, w = features.shape[-2:]
    grid = stack([(2 * x + 1) / w - 1, (2 * y + 1) / h - 1], dim=-1).unsqueeze(0)
    return F.grid_sample(features, grid.to(features.dtype), mode="bilinear", padding_mode=padding, align_corners=False)[0]


def roi_align(input, boxes, output_size, spatial_scale: float = 1.0, sampling_ratio: int = -1, aligned: bool = False):  # noqa: A002
    """Bilinear samples of the boxes, averaged in output_size bins (He et al., 2017): (K, C, height, width).

    input: (N, C, H, W); boxes: (K, 5) with the number of the image first, or a list of (L, 4). sampling_ratio: samples of a bin along each
    side; 0 or less: as many as there are pixels. aligned: pixels are squares around their coordinates, which shifts by a half.
    """
    rois = as_rois(boxes).detach()
    height, width = _pair(output_size)
    if not len(rois):
        return input.new_zeros((0, input.shape[1], height, width))
    if rois[:, 0].min().item() < 0 or rois[:, 0].max().item() >= input.shape[0]:
        raise IndexError(f"roi_align: number of an image is not below {input.shape[0]}: got {rois[:, 0].tolist()}")
    corners = rois[:, 1:].to(input.dtype) * spatial_scale - (0.5 if aligned else 0.0)
    x1, y1, x2, y2 = corners.unbind(1)
    w, h = x2 - x1, y2 - y1
    if not aligned:
        w, h = w.clamp(min=1.0), h.clamp(min=1.0)
    if sampling_ratio > 0:
        counts = [(sampling_ratio, sampling_ratio)] * len(rois)
    else:
        counts = [(max(1, math.ceil(a / height)), max(1, math.ceil(b / width))) for a, b in zip(h.tolist(), w.tolist(), strict=True)]
    groups: dict = {}
    for i, (image, count) in enumerate(zip(rois[:, 0].long().tolist(), counts, strict=True)):
        groups.setdefault((image, *count), []).append(i)
    parts, order = [], []
    for (image, down, across), members in groups.items():
        index = arange(len(rois))[members]

        def places(start, size, bins, samples, index=index):
            step = (arange(bins * samples, dtype=input.dtype) + 0.5) / (bins * samples)
            return start[index, None] + size[index, None] * step  # (K, bins * samples)

        y, x = places(y1, h, height, down), places(x1, w, width, across)
        inside = ((y >= -1) & (y <= input.shape[-2])).unsqueeze(2) & ((x >= -1) & (x <= input.shape[-1])).unsqueeze(1)
        flat_y = y.unsqueeze(2).expand(-1, -1, x.shape[1]).reshape(-1, x.shape[1])
        flat_x = x.unsqueeze(1).expand(-1, y.shape[1], -1).reshape(-1, x.shape[1])
        values = _sample(input[image:image + 1], flat_y, flat_x, "border") * inside.reshape(1, -1, x.shape[1])
        values = values.reshape(-1, len(members), height, down, width, across).mean((3, 5))
        parts.append(values.transpose(0, 1))
        order += members
    back = arange(len(order)).new_zeros(len(order))
    back[order] = arange(len(order))
    return cat(parts)[back]


def roi_pool(input, boxes, output_size, spatial_scale: float = 1.0):  # noqa: A002
    """The largest values in output_size bins of each box, in whole pixels (Girshick, 2015): (K, C, height, width)."""
    rois = as_rois(boxes).detach()
    height, width = _pair(output_size)
    h, w = input.shape[-2:]
    out = []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (math.floor(c * spatial_scale + 0.5) for c in corners)  # halves go up
        down, across = max(y2 - y1 + 1, 1) / height, max(x2 - x1 + 1, 1) / width
        rows = [(min(max(math.floor(i * down) + y1, 0), h), min(max(math.ceil((i + 1) * down) + y1, 0), h)) for i in range(height)]
        columns = [(min(max(math.floor(i * across) + x1, 0), w), min(max(math.ceil((i + 1) * across) + x1, 0), w)) for i in range(width)]
        picture = input[int(image)]
        empty_bin = input.new_zeros(input.shape[1])
        bins = [picture[:, a:b, c:d].amax((1, 2)) if b > a and d > c else empty_bin for a, b in rows for c, d in columns]
        out.append(stack(bins, 1).reshape(-1, height, width))
    return stack(out) if out else input.new_zeros((0, input.shape[1], height, width))


class RoIAlign(Module):
    """roi_align as a module."""

    def __init__(self, output_size, spatial_scale: float, sampling_ratio: int, aligned: bool = False) -> None:
        super().__init__()
        self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned = output_size, spatial_scale, sampling_ratio, aligned

    def forward(self, input, rois):  # noqa: A002
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
                f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned})")


class RoIPool(Module):
    """roi_pool as a module."""

    def __init__(self, output_size, spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input, rois):  # noqa: A002
        return roi_pool(input, rois, self.output_size, self.spatial_scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(output_size={self.output_size}, spatial_scale={self.spatial_scale})"


class MultiScaleRoIAlign(Module):
    """roi_align on the map of a feature pyramid that fits the size of each box (Lin et al., 2016, equation 1)."""

    def __init__(self, featmap_names, output_size, sampling_ratio: int, *, canonical_scale: int = 224, canonical_level: int = 4) -> None:
        super().__init__()
        self.featmap_names, self.output_size, self.sampling_ratio = featmap_names, _pair(output_size), sampling_ratio
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def forward(self, x, boxes, image_shapes):
        maps = [v for k, v in x.items() if k in self.featmap_names]
        rois = as_rois(boxes)
        largest = [max(shape[i] for shape in image_shapes) for i in (0, 1)]
        scales = [2.0 ** round(math.log2(m.shape[-2] / largest[0])) for m in maps]
        if len(maps) == 1:
            return roi_align(maps[0], rois, self.output_size, scales[0], self.sampling_ratio)
        low, high = (int(-math.log2(scales[i])) for i in (0, -1))
        side = ((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2])).sqrt()
        level = (self.canonical_level + (side / self.canonical_scale).log2() + 1e-6).floor().clamp(low, high).long() - low
        out = zeros(len(rois), maps[0].shape[1], *self.output_size, dtype=maps[0].dtype)
        for i, (features, scale) in enumerate(zip(maps, scales, strict=True)):
            chosen = (level == i).nonzero().squeeze(1)
            if len(chosen):
                out = out.index_put((chosen,), roi_align(features, rois[chosen], self.output_size, scale, self.sampling_ratio))
        return out

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(featmap_names={self.featmap_names}, output_size={self.output_size}, "
                f"sampling_ratio={self.sampling_ratio})")


def deform_conv2d(input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):  # noqa: A002
    """A convolution whose taps are moved by offset, and weighted by mask if there is one (Dai et al., 2017; Zhu et al., 2018).

    input: (N, C, H, W); offset: (N, 2 * groups * kh * kw, H', W') in pixels, y before x; mask: (N, groups * kh * kw, H', W').
    """
    (sh, sw), (ph, pw), (dh, dw) = _pair(stride), _pair(padding), _pair(dilation)
    n, channels, h, w = input.shape
    out_channels, part, kh, kw = weight.shape
    taps = kh * kw
    groups = offset.shape[1] // (2 * taps)
    if groups == 0 or offset.shape[1] != 2 * groups * taps or channels % groups:
        raise RuntimeError("the shape of the offset tensor at dimension 1 is not valid. It should be a multiple of "
                           f"2 * weight.size[2] * weight.size[3].\nGot offset.shape[1]={offset.shape[1]}, while "
                           f"2 * weight.size[2] * weight.size[3]={2 * taps}")
    oh, ow = offset.shape[-2:]
    if (oh, ow) != ((h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1):
        raise RuntimeError(f"deform_conv2d: offset has spatial size {(oh, ow)}, which is not the output's")
    move = offset.view(n, groups, taps, 2, oh, ow)
    tap = arange(taps)
    y = (tap // kw * dh).view(-1, 1, 1) + (arange(oh) * sh - ph).view(-1, 1) + move[:, :, :, 0]
    x = (tap % kw * dw).view(-1, 1, 1) + (arange(ow) * sw - pw) + move[:, :, :, 1]
    features = input.reshape(n * groups, channels // groups, h, w)
    grid = stack([(2 * x + 1) / w - 1, (2 * y + 1) / h - 1], dim=-1).reshape(n * groups, taps * oh, ow, 2)
    seen = F.grid_sample(features, grid.to(input.dtype), mode="bilinear", padding_mode="zeros", align_corners=False)
    seen = seen.view(n, groups, channels // groups, taps, oh, ow)
    if mask is not None:
        seen = seen * mask.view(n, groups, 1, taps, oh, ow)
    blocks = channels // part
    columns = seen.reshape(n, blocks, part * taps, oh * ow)
    out = (weight.view(blocks, out_channels // blocks, part * taps) @ columns).view(n, out_channels, oh, ow)
    return out if bias is None else out + bias.view(1, -1, 1, 1)


class DeformConv2d(Module):
    """deform_conv2d with weights of its own."""

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{'in' if in_channels % groups else 'out'}_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, _pair(kernel_size)
        self.stride, self.padding, self.dilation, self.groups = _pair(stride), _pair(padding), _pair(dilation), groups
        self.weight = Parameter(empty(out_channels, in_channels // groups, *self.kernel_size))
        if bias:
            self.bias = Parameter(empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The initial values of a convolution."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input, offset, mask=None):  # noqa: A002
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)
