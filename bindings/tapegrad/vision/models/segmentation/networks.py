"""FCN and DeepLabV3 on dilated ResNets."""

from __future__ import annotations

from collections import OrderedDict

from .... import cat, nn
from ....nn import functional as F
from .._registry import builder
from .._utils import IntermediateLayerGetter
from ..resnet import resnet50, resnet101

__all__ = ["DeepLabV3", "FCN", "deeplabv3_resnet50", "deeplabv3_resnet101", "fcn_resnet50", "fcn_resnet101"]


class FCNHead(nn.Sequential):
    """A convolution of 3 x 3 with a quarter of the channels, then the classes."""

    def __init__(self, in_channels: int, channels: int) -> None:
        middle = in_channels // 4
        super().__init__(nn.Conv2d(in_channels, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(), nn.Dropout(0.1),
                         nn.Conv2d(middle, channels, 1))


def _convolution(inside: int, outside: int, **options) -> list[nn.Module]:
    return [nn.Conv2d(inside, outside, bias=False, **options), nn.BatchNorm2d(outside), nn.ReLU()]


class _Pooled(nn.Sequential):
    """What the whole picture says, at every pixel."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), *_convolution(inside, outside, kernel_size=1))

    def forward(self, x):
        size = tuple(x.shape[-2:])
        for module in self:
            x = module(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: convolutions of several dilations side by side."""

    def __init__(self, in_channels: int, atrous_rates, out_channels: int = 256) -> None:
        super().__init__()
        self.convs = nn.ModuleList([
            nn.Sequential(*_convolution(in_channels, out_channels, kernel_size=1)),
            *(nn.Sequential(*_convolution(in_channels, out_channels, kernel_size=3, padding=r, dilation=r)) for r in atrous_rates),
            _Pooled(in_channels, out_channels)])
        self.project = nn.Sequential(*_convolution(len(self.convs) * out_channels, out_channels, kernel_size=1), nn.Dropout(0.5))

    def forward(self, x):
        return self.project(cat([conv(x) for conv in self.convs], dim=1))


class DeepLabHead(nn.Sequential):
    """The pyramid, a convolution of 3 x 3, the classes."""

    def __init__(self, in_channels: int, num_classes: int, atrous_rates=(12, 24, 36)) -> None:
        super().__init__(ASPP(in_channels, atrous_rates), *_convolution(256, 256, kernel_size=3, padding=1), nn.Conv2d(256, num_classes, 1))


class _Segmentation(nn.Module):
    """Images (N, 3, H, W) to {'out': scores (N, classes, H, W)}, and 'aux' of the same shape where there is such a head."""

    def __init__(self, backbone, classifier, aux_classifier=None) -> None:
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x):
        size = tuple(x.shape[-2:])
        features, result = self.backbone(x), OrderedDict()
        for name, head in (("out", self.classifier), ("aux", self.aux_classifier)):
            if head is not None:
                result[name] = F.interpolate(head(features[name]), size=size, mode="bilinear", align_corners=False)
        return result


class FCN(_Segmentation):
    """A fully convolutional network."""


class DeepLabV3(_Segmentation):
    """DeepLabV3."""


def _function(name: str, network, head, make_backbone, doc: str):
    def build(*, num_classes: int = 21, aux_loss: bool = False, weights_backbone=None, **kwargs):
        layers = {"layer4": "out", **({"layer3": "aux"} if aux_loss else {})}
        backbone = make_backbone(weights=weights_backbone, replace_stride_with_dilation=[False, True, True], **kwargs)
        return network(IntermediateLayerGetter(backbone, layers), head(2048, num_classes), FCNHead(1024, num_classes) if aux_loss else None)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return builder(build)


fcn_resnet50 = _function("fcn_resnet50", FCN, FCNHead, resnet50, "FCN on ResNet-50.")
fcn_resnet101 = _function("fcn_resnet101", FCN, FCNHead, resnet101, "FCN on ResNet-101.")
deeplabv3_resnet50 = _function("deeplabv3_resnet50", DeepLabV3, DeepLabHead, resnet50, "DeepLabV3 on ResNet-50.")
deeplabv3_resnet101 = _function("deeplabv3_resnet101", DeepLabV3, DeepLabHead, resnet101, "DeepLabV3 on ResNet-101.")
