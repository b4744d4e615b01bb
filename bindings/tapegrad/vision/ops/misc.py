"""Building blocks of networks."""

from ... import empty, ones, zeros
from ...nn import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    BatchNorm3d,
    Conv2d,
    Conv3d,
    Dropout,
    Linear,
    Module,
    ReLU,
    Sequential,
    Sigmoid,
)
from ...nn import functional as F

__all__ = ["Conv2dNormActivation", "Conv3dNormActivation", "ConvNormActivation", "DropBlock2d", "FrozenBatchNorm2d", "MLP", "Permute", "SqueezeExcitation", "StochasticDepth", "drop_block2d", "stochastic_depth"]


def stochastic_depth(input, p: float, mode: str, training: bool = True):  # noqa: A002
    """Zero with probability p, else input / (1 - p): for the whole batch, or for each row (Huang et al., 2016)."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    stays = 1.0 - p
    noise = empty([input.shape[0] if mode == "row" else 1] + [1] * (input.ndim - 1), dtype=input.dtype).bernoulli_(stays)
    return input * (noise.div_(stays) if stays > 0.0 else noise)


class StochasticDepth(Module):
    """stochastic_depth as a module."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input):  # noqa: A002
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, mode={self.mode})"


def drop_block2d(input, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06, training: bool = True):  # noqa: A002
    """Squares of block_size x block_size set to zero, so that about a share p is, and the rest scaled up (Ghiasi et al., 2018)."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}.")
    if input.ndim != 4:
        raise ValueError(f"input should be 4 dimensional. Got {input.ndim} dimensions.")
    if not training or p == 0.0:
        return input
    n, c, h, w = input.shape
    block = min(block_size, w, h)
    rate = (p * h * w) / (block**2 * (h - block + 1) * (w - block + 1))
    centres = empty((n, c, h - block + 1, w - block + 1), dtype=input.dtype).bernoulli_(rate)
    centres = F.pad(centres, [block // 2] * 4)
    mask = 1 - F.max_pool2d(centres, (block, block), stride=(1, 1), padding=block // 2)
    scale = mask.numel() / (eps + mask.sum())
    mask = mask[..., :h, :w]
    return input.mul_(mask).mul_(scale) if inplace else input * mask * scale


class DropBlock2d(Module):
    """drop_block2d as a module."""

    def __init__(self, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06) -> None:
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input):  # noqa: A002
        return drop_block2d(input, self.p, self.block_size, self.inplace, self.eps, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, block_size={self.block_size}, inplace={self.inplace})"


class FrozenBatchNorm2d(Module):
    """Batch normalisation with statistics and parameters that never change."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, start in (("weight", ones), ("bias", zeros), ("running_mean", zeros), ("running_var", ones)):
            self.register_buffer(name, start(num_features))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x):
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return x * scale.view(1, -1, 1, 1) + (self.bias - self.running_mean * scale).view(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


class ConvNormActivation(Sequential):
    """A convolution that keeps the size (but for its stride), a normalisation and an activation, either of which may be None."""

    def __init__(self, in_channels, out_channels, kernel_size=3, stride=1, padding=None, groups=1, norm_layer=BatchNorm2d,
                 activation_layer=ReLU, dilation=1, inplace=True, bias=None, conv_layer=Conv2d) -> None:
        if padding is None:
            if isinstance(kernel_size, int) and isinstance(dilation, int):
                padding = (kernel_size - 1) // 2 * dilation
            else:
                n = len(kernel_size) if not isinstance(kernel_size, int) else len(dilation)
                kernels = kernel_size if not isinstance(kernel_size, int) else [kernel_size] * n
                dilations = dilation if not isinstance(dilation, int) else [dilation] * n
                padding = tuple((k - 1) // 2 * d for k, d in zip(kernels, dilations, strict=True))
        layers = [conv_layer(in_channels, out_channels, kernel_size, stride, padding, dilation=dilation, groups=groups,
                             bias=norm_layer is None if bias is None else bias)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class Conv2dNormActivation(ConvNormActivation):
    """ConvNormActivation in two dimensions."""


class Conv3dNormActivation(ConvNormActivation):
    """ConvNormActivation in three dimensions."""

    def __init__(self, in_channels, out_channels, kernel_size=3, stride=1, padding=None, groups=1, norm_layer=BatchNorm3d,
                 activation_layer=ReLU, dilation=1, inplace=True, bias=None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, groups, norm_layer, activation_layer, dilation, inplace,
                         bias, Conv3d)


class SqueezeExcitation(Module):
    """Channels weighted by what the whole picture says (Hu et al., 2017)."""

    def __init__(self, input_channels: int, squeeze_channels: int, activation=ReLU, scale_activation=Sigmoid) -> None:
        super().__init__()
        self.avgpool = AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = Conv2d(input_channels, squeeze_channels, 1), Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input):  # noqa: A002
        return input * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input)))))


class MLP(Sequential):
    """Linear layers with normalisation, activation and dropout between them; the last has dropout only."""

    def __init__(self, in_channels, hidden_channels, norm_layer=None, activation_layer=ReLU, inplace=None, bias=True, dropout=0.0) -> None:
        params = {} if inplace is None else {"inplace": inplace}
        layers: list[Module] = []
        for i, width in enumerate(hidden_channels):
            layers.append(Linear(in_channels, width, bias=bias))
            if i + 1 < len(hidden_channels):
                layers += [] if norm_layer is None else [norm_layer(width)]
                layers.append(activation_layer(**params))
            layers.append(Dropout(dropout, **params))
            in_channels = width
        super().__init__(*layers)


class Permute(Module):
    """Dimensions in another order."""

    def __init__(self, dims) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)
