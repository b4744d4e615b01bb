"""Parameter and Buffer: tensors that a Module registers when they are assigned to one of its attributes."""

from __future__ import annotations

from .. import _C, Tensor, empty

Parameter = _C.Parameter  # the type is native, so that operators recognise it at once; its cold methods are these


def _repr(self) -> str:
    return "Parameter containing:\n" + Tensor.__repr__(self)


def _deepcopy(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    copy = type(self)(self.data.clone(), self.requires_grad)
    memo[id(self)] = copy
    return copy


def _reduce_ex(self, protocol):
    return _rebuild, (type(self), self.data, self.requires_grad)


Parameter.__repr__ = _repr
Parameter.__deepcopy__ = _deepcopy
Parameter.__reduce_ex__ = _reduce_ex


class Buffer(Tensor):
    """A tensor that is not trained. Assigned to an attribute of a Module it joins the module's buffers."""

    def __new__(cls, data=None, *, persistent: bool = True):
        if data is None:
            data = empty(0)
        buffer = Tensor._make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        copy = Buffer(self.data.clone(), persistent=self.persistent)
        memo[id(self)] = copy
        return copy


def _rebuild(cls, data, requires_grad):
    return cls(data, requires_grad)
