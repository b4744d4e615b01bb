"""Residual networks: ResNet (He et al., 2015), ResNeXt (Xie et al., 2016), wide ResNet (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from ... import flatten, nn
from ._registry import variant

__all__ = ["BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
           "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"]


def conv3x3(in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A convolution of 3 x 3 that keeps the size, but for its stride."""
    return nn.Conv2d(in_planes, out_planes, 3, stride=stride, padding=dilation, groups=groups, bias=False, dilation=dilation)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of 1 x 1."""
    return nn.Conv2d(in_planes, out_planes, 1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 and the way around them."""

    expansion = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None, groups=1, base_width=64, dilation=1, norm_layer=None) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += around
        return self.relu(x)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 with four times the channels, and the way around them; the stride sits at the 3 x 3."""

    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None, groups=1, base_width=64, dilation=1, norm_layer=None) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += around
        return self.relu(x)


class ResNet(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes), through four stages of blocks.

    layers: the number of blocks in each stage; groups and width_per_group: ResNeXt's; replace_stride_with_dilation: for each of the last
    three stages, whether dilation takes the place of the stride.
    """

    def __init__(self, block, layers, num_classes=1000, zero_init_residual=False, groups=1, width_per_group=64,
                 replace_stride_with_dilation=None, norm_layer=None) -> None:
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        dilate = replace_stride_with_dilation or [False, False, False]
        if len(dilate) != 3:
            raise ValueError(f"replace_stride_with_dilation should be None or a 3-element tuple, got {dilate}")
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], stride=2, dilate=dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], stride=2, dilate=dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], stride=2, dilate=dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
        if zero_init_residual:  # every block begins as the identity (Goyal et al., 2017)
            for m in self.modules():
                last = getattr(m, "bn3", None) if isinstance(m, Bottleneck) else getattr(m, "bn2", None) if isinstance(m, BasicBlock) else None
                if last is not None and last.weight is not None:
                    nn.init.constant_(last.weight, 0)

    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        before = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(conv1x1(self.inplanes, planes * block.expansion, stride), self._norm_layer(planes * block.expansion))
        shared = (self.groups, self.base_width)
        layers = [block(self.inplanes, planes, stride, downsample, *shared, before, self._norm_layer)]
        self.inplanes = planes * block.expansion
        layers += [block(self.inplanes, planes, 1, None, *shared, self.dilation, self._norm_layer) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def _forward_impl(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(flatten(self.avgpool(x), 1))

    def forward(self, x):
        return self._forward_impl(x)


resnet18 = variant("resnet18", ResNet, "ResNet with 18 layers.", BasicBlock, [2, 2, 2, 2])
resnet34 = variant("resnet34", ResNet, "ResNet with 34 layers.", BasicBlock, [3, 4, 6, 3])
resnet50 = variant("resnet50", ResNet, "ResNet with 50 layers.", Bottleneck, [3, 4, 6, 3])
resnet101 = variant("resnet101", ResNet, "ResNet with 101 layers.", Bottleneck, [3, 4, 23, 3])
resnet152 = variant("resnet152", ResNet, "ResNet with 152 layers.", Bottleneck, [3, 8, 36, 3])
resnext50_32x4d = variant("resnext50_32x4d", ResNet, "ResNeXt with 50 layers, 32 groups of 4 channels.",
                          Bottleneck, [3, 4, 6, 3], groups=32, width_per_group=4)
resnext101_32x8d = variant("resnext101_32x8d", ResNet, "ResNeXt with 101 layers, 32 groups of 8 channels.",
                           Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=8)
resnext101_64x4d = variant("resnext101_64x4d", ResNet, "ResNeXt with 101 layers, 64 groups of 4 channels.",
                           Bottleneck, [3, 4, 23, 3], groups=64, width_per_group=4)
wide_resnet50_2 = variant("wide_resnet50_2", ResNet, "ResNet with 50 layers, twice as wide inside of the bottlenecks.",
                          Bottleneck, [3, 4, 6, 3], width_per_group=128)
wide_resnet101_2 = variant("wide_resnet101_2", ResNet, "ResNet with 101 layers, twice as wide inside of the bottlenecks.",
                           Bottleneck, [3, 4, 23, 3], width_per_group=128)
