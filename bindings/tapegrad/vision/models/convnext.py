"""ConvNeXt (Liu et al., 2022)."""

from __future__ import annotations

from functools import partial

from ... import nn, ones
from ...nn import functional as F
from ..ops.misc import Conv2dNormActivation, Permute, StochasticDepth
from ._registry import variant

__all__ = ["ConvNeXt", "convnext_base", "convnext_large", "convnext_small", "convnext_tiny"]


class LayerNorm2d(nn.LayerNorm):
    """A normalisation of the channels of each pixel."""

    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """A convolution of each channel, then two linear layers at each pixel, and the way around them."""

    def __init__(self, dim: int, layer_scale: float, stochastic_depth_prob: float, norm_layer=None) -> None:
        super().__init__()
        norm_layer = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim, bias=True), Permute([0, 2, 3, 1]), norm_layer(dim),
            nn.Linear(dim, 4 * dim, bias=True), nn.GELU(), nn.Linear(4 * dim, dim, bias=True), Permute([0, 3, 1, 2]))
        self.layer_scale = nn.Parameter(ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input):  # noqa: A002
        return self.stochastic_depth(self.layer_scale * self.block(input)) + input


class ConvNeXt(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes); block_setting: rows of (channels, channels of the next stage or None, blocks)."""

    def __init__(self, block_setting, stochastic_depth_prob=0.0, layer_scale=1e-6, num_classes=1000, block=None, norm_layer=None) -> None:
        super().__init__()
        block, norm_layer = block or CNBlock, norm_layer or partial(LayerNorm2d, eps=1e-6)
        width = block_setting[0][0]
        layers: list[nn.Module] = [Conv2dNormActivation(3, width, kernel_size=4, stride=4, padding=0, norm_layer=norm_layer,
                                                        activation_layer=None, bias=True)]
        total, number = sum(row[2] for row in block_setting), 0
        for inside, outside, count in block_setting:
            layers.append(nn.Sequential(*(block(inside, layer_scale, stochastic_depth_prob * (number + i) / (total - 1.0)) for i in range(count))))
            number += count
            if outside is not None:
                layers.append(nn.Sequential(norm_layer(inside), nn.Conv2d(inside, outside, kernel_size=2, stride=2)))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = block_setting[-1][0]
        self.classifier = nn.Sequential(norm_layer(last), nn.Flatten(1), nn.Linear(last, num_classes))
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(m.weight, std=0.02)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)))


def _function(name: str, widths, depths, drop: float):
    setting = list(zip(widths, [*widths[1:], None], depths, strict=True))
    return variant(f"convnext_{name}", ConvNeXt, f"ConvNeXt, {name}.", setting, stochastic_depth_prob=drop)


convnext_tiny = _function("tiny", (96, 192, 384, 768), (3, 3, 9, 3), 0.1)
convnext_small = _function("small", (96, 192, 384, 768), (3, 3, 27, 3), 0.4)
convnext_base = _function("base", (128, 256, 512, 1024), (3, 3, 27, 3), 0.5)
convnext_large = _function("large", (192, 384, 768, 1536), (3, 3, 27, 3), 0.5)
