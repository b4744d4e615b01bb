"""ShuffleNet V2 (Ma et al., 2018)."""

from __future__ import annotations

from ... import cat, nn
from ...nn import functional as F
from ._registry import variant

__all__ = ["ShuffleNetV2", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"]


def _convolution(inside, outside, kernel, stride=1, each=False, activation=True) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=inside if each else 1, bias=False)
    return [conv, nn.BatchNorm2d(outside), *([nn.ReLU(inplace=True)] if activation else [])]


class InvertedResidual(nn.Module):
    """One half of the channels passes by, or both halves are made anew; then the halves are mixed."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        if not 1 <= stride <= 3:
            raise ValueError("illegal stride value")
        self.stride = stride
        half = oup // 2
        if stride == 1 and inp != half << 1:
            raise ValueError(f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values. If stride == 1 then inp should be equal to oup // 2 << 1.")
        self.branch1 = nn.Sequential(*([] if stride == 1 else [*_convolution(inp, inp, 3, stride, True, False), *_convolution(inp, half, 1)]))
        self.branch2 = nn.Sequential(*_convolution(inp if stride > 1 else half, half, 1), *_convolution(half, half, 3, stride, True, False),
                                     *_convolution(half, half, 1))

    def forward(self, x):
        if self.stride == 1:
            past, x = x.chunk(2, dim=1)
            out = cat((past, self.branch2(x)), dim=1)
        else:
            out = cat((self.branch1(x), self.branch2(x)), dim=1)
        return F.channel_shuffle(out, 2)


class ShuffleNetV2(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes), with stages_repeats blocks in three stages."""

    def __init__(self, stages_repeats, stages_out_channels, num_classes: int = 1000, inverted_residual=InvertedResidual) -> None:
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError("expected stages_repeats as list of 3 positive ints")
        if len(stages_out_channels) != 5:
            raise ValueError("expected stages_out_channels as list of 5 positive ints")
        self._stage_out_channels = stages_out_channels
        channels = stages_out_channels[0]
        self.conv1 = nn.Sequential(*_convolution(3, channels, 3, 2))
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        for name, count, width in zip(("stage2", "stage3", "stage4"), stages_repeats, stages_out_channels[1:], strict=False):
            blocks = [inverted_residual(channels, width, 2), *(inverted_residual(width, width, 1) for _ in range(count - 1))]
            setattr(self, name, nn.Sequential(*blocks))
            channels = width
        self.conv5 = nn.Sequential(*_convolution(channels, stages_out_channels[-1], 1))
        self.fc = nn.Linear(stages_out_channels[-1], num_classes)

    def forward(self, x):
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(self.conv5(x).mean([2, 3]))


shufflenet_v2_x0_5 = variant("shufflenet_v2_x0_5", ShuffleNetV2, "ShuffleNet V2 of half the width.",
                             [4, 8, 4], [24, 48, 96, 192, 1024])
shufflenet_v2_x1_0 = variant("shufflenet_v2_x1_0", ShuffleNetV2, "ShuffleNet V2.", [4, 8, 4], [24, 116, 232, 464, 1024])
shufflenet_v2_x1_5 = variant("shufflenet_v2_x1_5", ShuffleNetV2, "ShuffleNet V2 of one and a half times the width.",
                             [4, 8, 4], [24, 176, 352, 704, 1024])
shufflenet_v2_x2_0 = variant("shufflenet_v2_x2_0", ShuffleNetV2, "ShuffleNet V2 of twice the width.",
                             [4, 8, 4], [24, 244, 488, 976, 2048])
