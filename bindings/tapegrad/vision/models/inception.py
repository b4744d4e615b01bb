"""Inception v3 (Szegedy et al., 2015)."""

from collections import namedtuple

from ... import cat, flatten, nn
from ...nn import functional as F
from ._registry import builder
from .googlenet import BasicConv2d, imagenet_to_half, truncated_normal

__all__ = ["Inception3", "InceptionOutputs", "inception_v3"]

InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])


class _Ways(nn.Module):
    """Chains of convolutions side by side, named as in torchvision; a chain may end in a fork, and may begin with pooling.

    ways: for each way [names and convolutions], in which a list stands for a fork.
    """

    def __init__(self, inside: int, ways, pool=None) -> None:
        super().__init__()
        self.pool = pool
        self.ways = []
        for way in ways:
            channels, names = inside, []
            for step in way:
                fork = step if isinstance(step, list) else [step]
                for name, outside, options in fork:
                    self.add_module(name, BasicConv2d(channels, outside, **options))
                names.append([name for name, _, _ in fork])
                channels = fork[0][1]
            self.ways.append(names)

    def forward(self, x):
        parts = []
        for names in self.ways:
            part = F.avg_pool2d(x, kernel_size=3, stride=1, padding=1) if names[0] == ["branch_pool"] else x
            for step in names:
                made = [getattr(self, name)(part) for name in step]
                part = made[0] if len(made) == 1 else cat(made, 1)
            parts.append(part)
        if self.pool is not None:
            parts.append(self.pool(x))
        return cat(parts, 1)


_1, _3, _5 = {"kernel_size": 1}, {"kernel_size": 3, "padding": 1}, {"kernel_size": 5, "padding": 2}
_HALF = {"kernel_size": 3, "stride": 2}
_ROW, _COLUMN = {"kernel_size": (1, 7), "padding": (0, 3)}, {"kernel_size": (7, 1), "padding": (3, 0)}
_ROW3, _COLUMN3 = {"kernel_size": (1, 3), "padding": (0, 1)}, {"kernel_size": (3, 1), "padding": (1, 0)}


class InceptionA(_Ways):
    """1 x 1, 5 x 5, twice 3 x 3, and pooling."""

    def __init__(self, in_channels: int, pool_features: int) -> None:
        super().__init__(in_channels, [
            [("branch1x1", 64, _1)], [("branch5x5_1", 48, _1), ("branch5x5_2", 64, _5)],
            [("branch3x3dbl_1", 64, _1), ("branch3x3dbl_2", 96, _3), ("branch3x3dbl_3", 96, _3)], [("branch_pool", pool_features, _1)]])


class InceptionB(_Ways):
    """To half the size."""

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels, [
            [("branch3x3", 384, _HALF)], [("branch3x3dbl_1", 64, _1), ("branch3x3dbl_2", 96, _3), ("branch3x3dbl_3", 96, _HALF)]],
            nn.MaxPool2d(kernel_size=3, stride=2))


class InceptionC(_Ways):
    """1 x 1, and 7 x 7 in the form of rows and columns."""

    def __init__(self, in_channels: int, channels_7x7: int) -> None:
        c = channels_7x7
        super().__init__(in_channels, [
            [("branch1x1", 192, _1)], [("branch7x7_1", c, _1), ("branch7x7_2", c, _ROW), ("branch7x7_3", 192, _COLUMN)],
            [("branch7x7dbl_1", c, _1), ("branch7x7dbl_2", c, _COLUMN), ("branch7x7dbl_3", c, _ROW), ("branch7x7dbl_4", c, _COLUMN),
             ("branch7x7dbl_5", 192, _ROW)], [("branch_pool", 192, _1)]])


class InceptionD(_Ways):
    """To half the size."""

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels, [
            [("branch3x3_1", 192, _1), ("branch3x3_2", 320, _HALF)],
            [("branch7x7x3_1", 192, _1), ("branch7x7x3_2", 192, _ROW), ("branch7x7x3_3", 192, _COLUMN), ("branch7x7x3_4", 192, _HALF)]],
            nn.MaxPool2d(kernel_size=3, stride=2))


class InceptionE(_Ways):
    """1 x 1, and 3 x 3 that forks into rows and columns."""

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels, [
            [("branch1x1", 320, _1)], [("branch3x3_1", 384, _1), [("branch3x3_2a", 384, _ROW3), ("branch3x3_2b", 384, _COLUMN3)]],
            [("branch3x3dbl_1", 448, _1), ("branch3x3dbl_2", 384, _3), [("branch3x3dbl_3a", 384, _ROW3), ("branch3x3dbl_3b", 384, _COLUMN3)]],
            [("branch_pool", 192, _1)]])


class InceptionAux(nn.Module):
    """Scores out of the middle of the network, for training only."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv0 = BasicConv2d(in_channels, 128, kernel_size=1)
        self.conv1 = BasicConv2d(128, 768, kernel_size=5)
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x):
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """Images (N, 3, H, W) of at least 75 x 75 (the paper: 299) to scores, in training with aux_logits to (scores, auxiliary scores)."""

    def __init__(self, num_classes=1000, aux_logits=True, transform_input=False, init_weights=True, dropout=0.5) -> None:
        super().__init__()
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = InceptionA(192, 32), InceptionA(256, 64), InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b, self.Mixed_6c = InceptionC(768, 128), InceptionC(768, 160)
        self.Mixed_6d, self.Mixed_6e = InceptionC(768, 160), InceptionC(768, 192)
        self.AuxLogits = InceptionAux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = InceptionD(768), InceptionE(1280), InceptionE(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights or init_weights is None:
            truncated_normal(self, 0.1)

    def forward(self, x):
        if self.transform_input:
            x = imagenet_to_half(x)
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        auxiliary = self.training and self.aux_logits
        aux = self.AuxLogits(x) if auxiliary else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        x = self.fc(flatten(self.dropout(self.avgpool(x)), 1))
        return InceptionOutputs(x, aux) if auxiliary else x


@builder
def inception_v3(**kwargs) -> Inception3:
    """Inception v3."""
    return Inception3(**kwargs)
