"""LoggingTensor: a wrapper that hands each operator to the tensor in it."""

import sys

from ...utils import _pytree

_tg = sys.modules[__package__.partition(".")[0]]


class LoggingTensor(_tg.Tensor):
    """A tensor `elem` in a wrapper."""

    __slots__ = ["elem"]

    @staticmethod
    def __new__(cls, elem, *args, **kwargs):
        made = _tg.Tensor._make_wrapper_subclass(cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(), dtype=elem.dtype,
                                                 layout=elem.layout, device=elem.device, requires_grad=kwargs.get("requires_grad", False))
        made.elem = elem.detach() if made.requires_grad else elem
        return made

    def __repr__(self):
        return super().__repr__(tensor_contents=f"{self.elem}")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = _pytree.tree_map_only(cls, lambda x: x.elem, (args, kwargs or {}))
        return _pytree.tree_map_only(_tg.Tensor, cls, func(*plain[0], **plain[1]))
