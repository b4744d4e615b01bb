"""Tensors tagged with their kind (image, video, mask), by which `transforms.v2` chooses what to apply."""

from .. import _C, Tensor, as_tensor
from ._pillow import is_pil_image

__all__ = ["Image", "Mask", "TVTensor", "Video", "wrap"]


class TVTensor(Tensor):
    """Base of the kinds. Operators give plain tensors; `wrap(result, like=image)` makes them the same kind again."""

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data, *, dtype=None, device=None, requires_grad=None):
        if is_pil_image(data):
            from .transforms.functional import pil_to_tensor

            data = pil_to_tensor(data)
        tensor = as_tensor(data, dtype=dtype, device=device)
        if requires_grad is not None:
            tensor = tensor.requires_grad_(requires_grad)
        return tensor.as_subclass(cls)


class Image(TVTensor):
    """A picture (..., C, H, W)."""


class Video(TVTensor):
    """Pictures (..., T, C, H, W)."""


class Mask(TVTensor):
    """Classes of pixels, or bool masks: (..., H, W)."""


def wrap(wrappee, *, like):
    """A tensor as the kind of another one."""
    return wrappee.as_subclass(type(like)) if isinstance(like, TVTensor) else wrappee
