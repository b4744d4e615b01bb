"""SqueezeNet (Iandola et al., 2016)."""

from ... import cat, flatten, nn
from ._registry import variant

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]


class Fire(nn.Module):
    """Few channels, then many: half of them of 1 x 1, half of 3 x 3."""

    def __init__(self, inplanes: int, squeeze_planes: int, expand1x1_planes: int, expand3x3_planes: int) -> None:
        super().__init__()
        self.inplanes = inplanes
        self.squeeze = nn.Conv2d(inplanes, squeeze_planes, kernel_size=1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_planes, expand1x1_planes, kernel_size=1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_planes, expand3x3_planes, kernel_size=3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.squeeze_activation(self.squeeze(x))
        return cat([self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes); version 1_0 or 1_1, which is 2.4 times cheaper."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.num_classes = num_classes
        if version not in ("1_0", "1_1"):
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")

        def pool():
            return nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True)

        def fire(inside, squeezed, outside):
            return Fire(inside, squeezed, outside, outside)

        if version == "1_0":
            self.features = nn.Sequential(
                nn.Conv2d(3, 96, kernel_size=7, stride=2), nn.ReLU(inplace=True), pool(), fire(96, 16, 64), fire(128, 16, 64),
                fire(128, 32, 128), pool(), fire(256, 32, 128), fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), pool(),
                fire(512, 64, 256))
        else:
            self.features = nn.Sequential(
                nn.Conv2d(3, 64, kernel_size=3, stride=2), nn.ReLU(inplace=True), pool(), fire(64, 16, 64), fire(128, 16, 64), pool(),
                fire(128, 32, 128), fire(256, 32, 128), pool(), fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256),
                fire(512, 64, 256))
        last = nn.Conv2d(512, num_classes, kernel_size=1)
        self.classifier = nn.Sequential(nn.Dropout(p=dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                if m is last:
                    nn.init.normal_(m.weight, mean=0.0, std=0.01)
                else:
                    nn.init.kaiming_uniform_(m.weight)
                if m.bias is not None:
                    nn.init.constant_(m.bias, 0)

    def forward(self, x):
        return flatten(self.classifier(self.features(x)), 1)


squeezenet1_0 = variant("squeezenet1_0", SqueezeNet, "SqueezeNet 1.0.", "1_0")
squeezenet1_1 = variant("squeezenet1_1", SqueezeNet, "SqueezeNet 1.1.", "1_1")
