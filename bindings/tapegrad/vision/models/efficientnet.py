"""EfficientNet (Tan and Le, 2019) and EfficientNetV2 (Tan and Le, 2021)."""

from __future__ import annotations

import math
from functools import partial

from ... import flatten, nn
from ..ops.misc import Conv2dNormActivation, SqueezeExcitation, StochasticDepth
from ._registry import variant
from .mobilenet import _initialise, _make_divisible

__all__ = ["EfficientNet", *(f"efficientnet_b{i}" for i in range(8)), "efficientnet_v2_l", "efficientnet_v2_m", "efficientnet_v2_s"]


class _Block(nn.Module):
    """An inverted residual with squeeze and excitation; fused: the first two convolutions are one."""

    def __init__(self, fused, expansion, kernel, stride, inside, outside, drop, norm_layer) -> None:
        super().__init__()
        if not 1 <= stride <= 2:
            raise ValueError("illegal stride value")
        self.use_res_connect = stride == 1 and inside == outside
        hidden = _make_divisible(inside * expansion, 8)
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        if fused and hidden == inside:
            layers = [conv(inside, outside, kernel_size=kernel, stride=stride)]
        else:
            if fused:
                layers = [conv(inside, hidden, kernel_size=kernel, stride=stride)]
            else:
                layers = [conv(inside, hidden, kernel_size=1)] if hidden != inside else []
                layers.append(conv(hidden, hidden, kernel_size=kernel, stride=stride, groups=hidden))
                layers.append(SqueezeExcitation(hidden, max(1, inside // 4), activation=partial(nn.SiLU, inplace=True)))
            layers.append(Conv2dNormActivation(hidden, outside, kernel_size=1, norm_layer=norm_layer, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(drop, "row")
        self.out_channels = outside

    def forward(self, x):
        out = self.block(x)
        return self.stochastic_depth(out) + x if self.use_res_connect else out


def _uniform(linear: nn.Linear) -> None:
    bound = 1.0 / math.sqrt(linear.out_features)
    nn.init.uniform_(linear.weight, -bound, bound)


class EfficientNet(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes).

    setting: rows of (fused, expansion, kernel, stride, channels before, channels, blocks); last_channel None: four times the last.
    """

    def __init__(self, setting, dropout: float, stochastic_depth_prob=0.2, num_classes=1000, norm_layer=None, last_channel=None) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        layers: list[nn.Module] = [conv(3, setting[0][4], kernel_size=3, stride=2)]
        total, number = sum(row[-1] for row in setting), 0
        for fused, expansion, kernel, stride, inside, outside, count in setting:
            stage: list[nn.Module] = []
            for i in range(count):  # later blocks are left out more often
                stage.append(_Block(fused, expansion, kernel, 1 if i else stride, outside if i else inside, outside,
                                    stochastic_depth_prob * number / total, norm_layer))
                number += 1
            layers.append(nn.Sequential(*stage))
        last_channel = last_channel or 4 * setting[-1][5]
        layers.append(conv(setting[-1][5], last_channel, kernel_size=1))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout, inplace=True), nn.Linear(last_channel, num_classes))
        _initialise(self, _uniform)

    def forward(self, x):
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


_B0 = [(1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4),
       (6, 3, 1, 192, 320, 1)]
# Width, depth, dropout; from b5 on batch normalisation has other constants.
_SCALES = [(1.0, 1.0, 0.2), (1.0, 1.1, 0.2), (1.1, 1.2, 0.3), (1.2, 1.4, 0.3), (1.4, 1.8, 0.4), (1.6, 2.2, 0.4), (1.8, 2.6, 0.5), (2.0, 3.1, 0.5)]


def _scaled(number: int):
    width, depth, dropout = _SCALES[number]
    setting = [(False, e, k, s, _make_divisible(i * width), _make_divisible(o * width), math.ceil(n * depth)) for e, k, s, i, o, n in _B0]
    norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01) if number >= 5 else None
    return variant(f"efficientnet_b{number}", EfficientNet, f"EfficientNet B{number}.", setting, dropout=dropout, norm_layer=norm)


(efficientnet_b0, efficientnet_b1, efficientnet_b2, efficientnet_b3, efficientnet_b4, efficientnet_b5, efficientnet_b6,
 efficientnet_b7) = map(_scaled, range(8))

_V2 = {
    "s": (0.2, [(1, 1, 3, 1, 24, 24, 2), (1, 4, 3, 2, 24, 48, 4), (1, 4, 3, 2, 48, 64, 4), (0, 4, 3, 2, 64, 128, 6), (0, 6, 3, 1, 128, 160, 9),
                (0, 6, 3, 2, 160, 256, 15)]),
    "m": (0.3, [(1, 1, 3, 1, 24, 24, 3), (1, 4, 3, 2, 24, 48, 5), (1, 4, 3, 2, 48, 80, 5), (0, 4, 3, 2, 80, 160, 7), (0, 6, 3, 1, 160, 176, 14),
                (0, 6, 3, 2, 176, 304, 18), (0, 6, 3, 1, 304, 512, 5)]),
    "l": (0.4, [(1, 1, 3, 1, 32, 32, 4), (1, 4, 3, 2, 32, 64, 7), (1, 4, 3, 2, 64, 96, 7), (0, 4, 3, 2, 96, 192, 10), (0, 6, 3, 1, 192, 224, 19),
                (0, 6, 3, 2, 224, 384, 25), (0, 6, 3, 1, 384, 640, 7)]),
}


def _second(size: str):
    dropout, setting = _V2[size]
    return variant(f"efficientnet_v2_{size}", EfficientNet, f"EfficientNetV2 of size {size}.", setting, dropout=dropout,
                   norm_layer=partial(nn.BatchNorm2d, eps=1e-03), last_channel=1280)


efficientnet_v2_s, efficientnet_v2_m, efficientnet_v2_l = map(_second, "sml")
