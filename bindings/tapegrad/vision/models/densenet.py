"""DenseNet (Huang et al., 2016)."""

from collections import OrderedDict

from ... import cat, flatten, nn
from ...nn import functional as F
from ._registry import variant

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]


class _DenseLayer(nn.Module):
    """growth_rate new channels out of all that came before."""

    def __init__(self, num_input_features, growth_rate, bn_size, drop_rate, memory_efficient=False) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(num_input_features), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, bn_size * growth_rate, kernel_size=1, stride=1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(bn_size * growth_rate), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, kernel_size=3, stride=1, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def _squeezed(self, *before):
        return self.conv1(self.relu1(self.norm1(cat(before, 1))))

    def forward(self, before):
        before = [before] if not isinstance(before, list) else before
        if self.memory_efficient and any(t.requires_grad for t in before):
            from ...utils.checkpoint import checkpoint  # what is wide is computed again in the backward pass

            x = checkpoint(self._squeezed, *before, use_reentrant=False)
        else:
            x = self._squeezed(*before)
        x = self.conv2(self.relu2(self.norm2(x)))
        return F.dropout(x, p=self.drop_rate, training=self.training) if self.drop_rate > 0 else x


class _DenseBlock(nn.ModuleDict):
    def __init__(self, num_layers, num_input_features, bn_size, growth_rate, drop_rate, memory_efficient=False) -> None:
        super().__init__()
        for i in range(num_layers):
            self.add_module(f"denselayer{i + 1}", _DenseLayer(num_input_features + i * growth_rate, growth_rate, bn_size, drop_rate,
                                                              memory_efficient))

    def forward(self, x):
        features = [x]
        for _, layer in self.items():
            features.append(layer(features))
        return cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, num_input_features, num_output_features) -> None:
        super().__init__(OrderedDict(
            norm=nn.BatchNorm2d(num_input_features), relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(num_input_features, num_output_features, kernel_size=1, stride=1, bias=False),
            pool=nn.AvgPool2d(kernel_size=2, stride=2)))


class DenseNet(nn.Module):
    """Images (N, 3, H, W) to scores (N, num_classes); every layer sees all layers before it in its block.

    growth_rate: channels that a layer adds; block_config: layers of each block; bn_size: width of the bottlenecks.
    """

    def __init__(self, growth_rate=32, block_config=(6, 12, 24, 16), num_init_features=64, bn_size=4, drop_rate=0, num_classes=1000,
                 memory_efficient=False) -> None:
        super().__init__()
        self.features = nn.Sequential(OrderedDict(
            conv0=nn.Conv2d(3, num_init_features, kernel_size=7, stride=2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(num_init_features), relu0=nn.ReLU(inplace=True), pool0=nn.MaxPool2d(kernel_size=3, stride=2, padding=1)))
        width = num_init_features
        for i, count in enumerate(block_config):
            self.features.add_module(f"denseblock{i + 1}", _DenseBlock(count, width, bn_size, growth_rate, drop_rate, memory_efficient))
            width += count * growth_rate
            if i + 1 < len(block_config):
                self.features.add_module(f"transition{i + 1}", _Transition(width, width // 2))
                width //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            elif isinstance(m, nn.Linear):
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = F.relu(self.features(x), inplace=True)
        return self.classifier(flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


densenet121 = variant("densenet121", DenseNet, "DenseNet with 121 layers.", 32, (6, 12, 24, 16), 64)
densenet161 = variant("densenet161", DenseNet, "DenseNet with 161 layers.", 48, (6, 12, 36, 24), 96)
densenet169 = variant("densenet169", DenseNet, "DenseNet with 169 layers.", 32, (6, 12, 32, 32), 64)
densenet201 = variant("densenet201", DenseNet, "DenseNet with 201 layers.", 32, (6, 12, 48, 32), 64)
