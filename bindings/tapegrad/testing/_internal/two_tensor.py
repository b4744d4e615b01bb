"""TwoTensor: a wrapper that runs each operator on two tensors, as tests of wrappers use it."""

import sys

from ...utils import _pytree

_tg = sys.modules[__package__.partition(".")[0]]


class TwoTensor(_tg.Tensor):
    """Two tensors `a` and `b` of one shape, layout, device and dtype."""

    @staticmethod
    def __new__(cls, a, b, outer_size=None, outer_stride=None, *, requires_grad=None):
        if (a.device, a.layout, a.requires_grad, a.dtype, a.shape, a.stride()) != (b.device, b.layout, b.requires_grad, b.dtype, b.shape, b.stride()):
            raise AssertionError("TwoTensor: the two differ in shape, strides, dtype, layout, device or requires_grad")
        return _tg.Tensor._make_wrapper_subclass(cls, outer_size or a.size(), strides=outer_stride or a.stride(), storage_offset=a.storage_offset(),
                                                 device=a.device, layout=a.layout, dtype=a.dtype, requires_grad=requires_grad or a.requires_grad)

    def __init__(self, a, b, outer_size=None, outer_stride=None, *, requires_grad=None):
        self.a, self.b = a, b

    def __repr__(self):
        return f"TwoTensor({self.a!r}, {self.b!r})"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner_tensors, meta, outer_size, outer_stride):
        return TwoTensor(inner_tensors["a"], inner_tensors["b"], outer_size, outer_stride)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def half(name):
            chosen = _pytree.tree_map_only(TwoTensor, lambda x: getattr(x, name), (args, kwargs or {}))
            return func(*chosen[0], **chosen[1])

        first, spec = _pytree.tree_flatten(half("a"))
        second = _pytree.tree_leaves(half("b"))
        return _pytree.tree_unflatten([cls(a, b) if isinstance(a, _tg.Tensor) else a for a, b in zip(first, second)], spec)
