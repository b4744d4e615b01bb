"""Parameter and Buffer: tensors that a Module registers when they are assigned to one of its attributes."""

from __future__ import annotations

from .. import Tensor, empty


class Parameter(Tensor):
    """A tensor that is trained. Assigned to an attribute of a Module it joins the module's parameters."""

    def __new__(cls, data=None, requires_grad: bool = True):
        if data is None:
            data = empty(0)
        return Tensor._make_subclass(cls, data, requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        copy = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol):
        return _rebuild, (type(self), self.data, self.requires_grad)


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
