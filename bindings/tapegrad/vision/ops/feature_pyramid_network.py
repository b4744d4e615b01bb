"""Feature pyramids."""

from collections import OrderedDict

from ...nn import Conv2d, Module, ModuleList, init
from ...nn import functional as F
from .misc import ConvNormActivation

__all__ = ["FeaturePyramidNetwork", "LastLevelMaxPool"]


class FeaturePyramidNetwork(Module):
    """Maps of several sizes, each with what the coarser ones know added to it (Lin et al., 2016).

    in_channels_list: channels of the maps, from fine to coarse; extra_blocks(results, inputs, names) may add coarser ones.
    """

    def __init__(self, in_channels_list, out_channels: int, extra_blocks=None, norm_layer=None) -> None:
        super().__init__()
        if 0 in in_channels_list:
            raise ValueError("in_channels=0 is currently not supported")
        self.inner_blocks, self.layer_blocks = (
            ModuleList(ConvNormActivation(c if k == 1 else out_channels, out_channels, k, norm_layer=norm_layer, activation_layer=None)
                       for c in in_channels_list) for k in (1, 3))
        for m in self.modules():
            if isinstance(m, Conv2d):
                init.kaiming_uniform_(m.weight, a=1)
                if m.bias is not None:
                    init.constant_(m.bias, 0)
        self.extra_blocks = extra_blocks

    def forward(self, x):
        names, maps = list(x), list(x.values())
        known = self.inner_blocks[-1](maps[-1])
        results = [self.layer_blocks[-1](known)]
        for i in range(len(maps) - 2, -1, -1):
            here = self.inner_blocks[i](maps[i])
            known = here + F.interpolate(known, size=tuple(here.shape[-2:]), mode="nearest")
            results.insert(0, self.layer_blocks[i](known))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, maps, names)
        return OrderedDict(zip(names, results, strict=True))


class LastLevelMaxPool(Module):
    """An extra block: the coarsest map at half its size."""

    def forward(self, x, y, names):
        return [*x, F.max_pool2d(x[-1], kernel_size=1, stride=2, padding=0)], [*names, "pool"]
