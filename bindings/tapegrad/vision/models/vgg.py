"""VGG (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from ... import flatten, nn
from ._registry import variant

__all__ = ["VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]


class VGG(nn.Module):
    """Images (N, 3, H, W) of at least 32 x 32 to scores (N, num_classes)."""

    def __init__(self, features, num_classes: int = 1000, init_weights: bool = True, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(p=dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(p=dropout), nn.Linear(4096, num_classes))
        if init_weights:
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                    if m.bias is not None:
                        nn.init.constant_(m.bias, 0)
                elif isinstance(m, nn.BatchNorm2d):
                    nn.init.constant_(m.weight, 1)
                    nn.init.constant_(m.bias, 0)
                elif isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0, 0.01)
                    nn.init.constant_(m.bias, 0)

    def forward(self, x):
        return self.classifier(flatten(self.avgpool(self.features(x)), 1))


# The number of convolutions in each of the five stages.
_STAGES = {"A": (1, 1, 2, 2, 2), "B": (2, 2, 2, 2, 2), "D": (2, 2, 3, 3, 3), "E": (2, 2, 4, 4, 4)}


def make_layers(stages, batch_norm: bool = False) -> nn.Sequential:
    """Convolutions of 64 to 512 channels, with pooling after each stage."""
    layers: list[nn.Module] = []
    channels = 3
    for count, width in zip(stages, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
            layers += [nn.BatchNorm2d(width)] if batch_norm else []
            layers.append(nn.ReLU(inplace=True))
            channels = width
        layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


def _vgg(kind: str, batch_norm: bool, **kwargs) -> VGG:
    return VGG(make_layers(_STAGES[kind], batch_norm), **kwargs)


def _function(name: str, kind: str, batch_norm: bool):
    doc = f"VGG with {sum(_STAGES[kind]) + 3} layers{' and batch normalisation' if batch_norm else ''}."
    return variant(name, _vgg, doc, kind, batch_norm)


vgg11, vgg11_bn = _function("vgg11", "A", False), _function("vgg11_bn", "A", True)
vgg13, vgg13_bn = _function("vgg13", "B", False), _function("vgg13_bn", "B", True)
vgg16, vgg16_bn = _function("vgg16", "D", False), _function("vgg16_bn", "D", True)
vgg19, vgg19_bn = _function("vgg19", "E", False), _function("vgg19_bn", "E", True)
