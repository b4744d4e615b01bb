"""MobileNet V2 (Sandler et al., 2018) and V3 (Howard et al., 2019)."""

from __future__ import annotations

from functools import partial

from ... import flatten, nn
from ...nn import functional as F
from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ._registry import builder, variant

__all__ = ["MobileNetV2", "MobileNetV3", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"]


def _make_divisible(v: float, divisor: int = 8, min_value=None) -> int:
    """v rounded to a multiple of divisor, but by no more than a tenth downwards."""
    rounded = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * v else rounded


def _narrow(linear: nn.Linear) -> None:
    nn.init.normal_(linear.weight, 0, 0.01)


def _initialise(module: nn.Module, weight_of=_narrow) -> None:
    """weight_of(layer): sets the weight of a linear layer."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.ones_(m.weight)
            nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Linear):
            weight_of(m)
            nn.init.zeros_(m.bias)


class InvertedResidual(nn.Module):
    """Many channels inside, few at the ends, and the way around them where the shapes agree."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int, norm_layer=None) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm_layer = norm_layer or nn.BatchNorm2d
        hidden = int(round(inp * expand_ratio))
        self.stride, self.use_res_connect = stride, stride == 1 and inp == oup
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, kernel_size=1, norm_layer=norm_layer, activation_layer=nn.ReLU6))
        layers += [Conv2dNormActivation(hidden, hidden, stride=stride, groups=hidden, norm_layer=norm_layer, activation_layer=nn.ReLU6),
                   nn.Conv2d(hidden, oup, 1, 1, 0, bias=False), norm_layer(oup)]
        self.conv = nn.Sequential(*layers)
        self.out_channels = oup
        self._is_cn = stride > 1

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes); width_mult scales the channels.

    inverted_residual_setting: rows of (expansion, channels, blocks, stride).
    """

    def __init__(self, num_classes=1000, width_mult=1.0, inverted_residual_setting=None, round_nearest=8, block=None, norm_layer=None,
                 dropout=0.2) -> None:
        super().__init__()
        block, norm_layer = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        setting = inverted_residual_setting or [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2],
                                                [6, 320, 1, 1]]
        if len(setting) == 0 or len(setting[0]) != 4:
            raise ValueError(f"inverted_residual_setting should be non-empty or a 4-element list, got {setting}")
        channels = _make_divisible(32 * width_mult, round_nearest)
        self.last_channel = _make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features = [Conv2dNormActivation(3, channels, stride=2, norm_layer=norm_layer, activation_layer=nn.ReLU6)]
        for expansion, width, count, stride in setting:
            width = _make_divisible(width * width_mult, round_nearest)
            for i in range(count):
                features.append(block(channels, width, stride if i == 0 else 1, expand_ratio=expansion, norm_layer=norm_layer))
                channels = width
        features.append(Conv2dNormActivation(channels, self.last_channel, kernel_size=1, norm_layer=norm_layer, activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes))
        _initialise(self)

    def forward(self, x):
        return self.classifier(flatten(F.adaptive_avg_pool2d(self.features(x), (1, 1)), 1))


@builder
def mobilenet_v2(**kwargs) -> MobileNetV2:
    """MobileNet V2."""
    return MobileNetV2(**kwargs)


class _BlockV3(nn.Module):
    """Expansion, a convolution of each channel, squeeze and excitation, projection."""

    def __init__(self, inside, kernel, hidden, outside, excite, activation, stride, dilation, norm_layer) -> None:
        super().__init__()
        if not 1 <= stride <= 2:
            raise ValueError("illegal stride value")
        self.use_res_connect = stride == 1 and inside == outside
        layers: list[nn.Module] = []
        if hidden != inside:
            layers.append(Conv2dNormActivation(inside, hidden, kernel_size=1, norm_layer=norm_layer, activation_layer=activation))
        layers.append(Conv2dNormActivation(hidden, hidden, kernel_size=kernel, stride=1 if dilation > 1 else stride, dilation=dilation,
                                           groups=hidden, norm_layer=norm_layer, activation_layer=activation))
        if excite:
            layers.append(SqueezeExcitation(hidden, _make_divisible(hidden // 4, 8), scale_activation=nn.Hardsigmoid))
        layers.append(Conv2dNormActivation(hidden, outside, kernel_size=1, norm_layer=norm_layer, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.out_channels = outside
        self._is_cn = stride > 1

    def forward(self, x):
        return x + self.block(x) if self.use_res_connect else self.block(x)


# kernel, hidden channels, channels, squeeze and excitation, hard swish, stride; the last stages may be narrower and dilated.
_LARGE = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
          (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
          (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)]
_SMALL = [(3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
          (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
          (5, 576, 96, 1, 1, 1)]


class MobileNetV3(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes).

    setting: rows of (kernel, hidden channels, channels, squeeze and excitation, hard swish, stride); last_channel: width of the classifier.
    """

    def __init__(self, setting, last_channel: int, num_classes=1000, norm_layer=None, dropout=0.2, width_mult=1.0, reduced_tail=False,
                 dilated=False) -> None:
        super().__init__()
        norm_layer = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        tail = 2 if reduced_tail else 1
        channels = _make_divisible(setting[0][2] * width_mult)
        first = _make_divisible(16 * width_mult)
        layers: list[nn.Module] = [Conv2dNormActivation(3, first, kernel_size=3, stride=2, norm_layer=norm_layer, activation_layer=nn.Hardswish)]
        channels = first
        for i, (kernel, hidden, width, excite, swish, stride) in enumerate(setting):
            last_stage = i >= len(setting) - 3
            hidden = hidden // tail if last_stage and i > len(setting) - 3 else hidden
            width = width // tail if last_stage else width
            hidden, width = _make_divisible(hidden * width_mult), _make_divisible(width * width_mult)
            layers.append(_BlockV3(channels, kernel, hidden, width, excite, nn.Hardswish if swish else nn.ReLU, stride,
                                   2 if dilated and last_stage else 1, norm_layer))
            channels = width
        layers.append(Conv2dNormActivation(channels, 6 * channels, kernel_size=1, norm_layer=norm_layer, activation_layer=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last_channel = _make_divisible(last_channel // tail * width_mult)
        self.classifier = nn.Sequential(nn.Linear(6 * channels, last_channel), nn.Hardswish(inplace=True), nn.Dropout(p=dropout, inplace=True),
                                        nn.Linear(last_channel, num_classes))
        _initialise(self)

    def forward(self, x):
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


mobilenet_v3_large = variant("mobilenet_v3_large", MobileNetV3, "MobileNet V3, the large one.", _LARGE, 1280)
mobilenet_v3_small = variant("mobilenet_v3_small", MobileNetV3, "MobileNet V3, the small one.", _SMALL, 1024)
