"""Weights of convolutions in another memory format."""

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module, kinds: tuple, memory_format):
    for layer in module.modules():
        if isinstance(layer, kinds):
            layer.weight.data = layer.weight.detach().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Puts the weights of all Conv2d and ConvTranspose2d in `module` into `memory_format`; returns the module."""
    from .. import Conv2d, ConvTranspose2d

    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module, memory_format):
    """Puts the weights of all Conv3d and ConvTranspose3d in `module` into `memory_format`; returns the module."""
    from .. import Conv3d, ConvTranspose3d

    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
